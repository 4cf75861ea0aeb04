"""Requests to Amazon Managed Prometheus carry a signature that a server can check from what arrives."""

from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.telemetry.server.credentials import AwsSignature
from healthsvc.telemetry.source import SourceError
from tests.telemetry import fake_backends as fake
from tests.telemetry.fake_backends import Fake
from tests.telemetry.sigv4 import parts_of, signature
from tests.telemetry.test_probe import api

KEY, AWS_SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # of the published suite


@pytest.mark.parametrize(
    ("method", "url", "headers", "body", "signed", "expected"),
    [
        (
            "GET",
            "https://example.amazonaws.com/",
            {},
            b"",
            "host;x-amz-date",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            "POST",
            "https://example.amazonaws.com/",
            {"Content-Type": "application/x-www-form-urlencoded"},
            b"Param1=value1",
            "content-type;host;x-amz-date",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
)
def test_the_twin_signs_as_the_published_vectors(
    method: str, url: str, headers: dict[str, str], body: bytes, signed: str, expected: str
) -> None:
    """get-vanilla and post-x-www-form-urlencoded."""
    sent = {"Host": "example.amazonaws.com", "X-Amz-Date": "20150830T123600Z", **headers}
    scope = "20150830/us-east-1/service/aws4_request"
    assert signature(method, url, sent, body, AWS_SECRET, scope, signed) == expected


@pytest.fixture
def _aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variables that botocore looks at, and no others of this machine."""
    pytest.importorskip("botocore")
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))


@pytest.mark.usefixtures("_aws")
@pytest.mark.parametrize("session_token", ["", "FwoGZXIvYXdzEXAMPLE"])
def test_every_request_to_amazon_is_signed(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, session_token: str
) -> None:
    """The server checks each signature as the specification says, from what arrived."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
    if session_token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session_token)
    checked: list[str] = []

    def check(request: Request, _: object) -> Response | None:
        told = parts_of(request.headers["Authorization"])
        key, _, scope = told["Credential"].partition("/")
        assert (key, scope.split("/", 1)[1]) == (KEY, "eu-west-1/aps/aws4_request")
        assert request.headers.get("X-Amz-Security-Token", "") == session_token
        url = f"http://x{request.environ['REQUEST_URI']}"
        arrived = dict(request.headers.items())
        made = signature(request.method, url, arrived, request.get_data(), AWS_SECRET, scope, told["SignedHeaders"])
        checked.append(request.path)
        return None if made == told["Signature"] else Response("the signature does not match", 403)

    server = Fake(httpserver, "/workspaces/ws-1", refuse=check)
    asked = api(server.url + server.prefix, flavour="amp", aws_region="eu-west-1")
    assert asked.metric_names(0, 600)
    assert asked.present(['up{job="a b+c~d", x="é"}'], 0, 600)
    assert len(asked.samples(fake.METRIC, 600, 600).times_s) == 10
    assert len(checked) == 3


@pytest.mark.usefixtures("_aws")
def test_missing_aws_credentials_and_region_are_named(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    url = Fake(httpserver).url
    with pytest.raises(SourceError, match="AWS credentials: none found"):
        api(url, flavour="amp", aws_region="eu-west-1").points("up", 600)
    with pytest.raises(SourceError, match=r"aws_region is not set"):
        api(url, flavour="amp").points("up", 600)
    with pytest.raises(SourceError, match=r"AWS credentials: .*nobody"):
        api(url, flavour="amp", aws_region="eu-west-1", aws_profile="nobody").points("up", 600)


def test_a_signing_proxy_wants_no_signature(httpserver: HTTPServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-proxy")
    api(Fake(httpserver).url, flavour="amp", bearer_token_file=tmp_path / "token").points("up", 600)
    assert httpserver.log[-1][0].headers["Authorization"] == "Bearer of-the-proxy"


def test_the_text_of_a_signature_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
    assert AWS_SECRET not in repr(AwsSignature("aps", "eu-west-1"))
