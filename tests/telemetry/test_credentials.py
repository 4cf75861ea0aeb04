"""Who we are to each kind of server, how that rotates, and that no secret is ever said."""

import json
import logging
import ssl
import subprocess
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import requests
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.config import HttpClientSettings, PrometheusSettings
from healthsvc.telemetry.server.credentials import ClientCredentials
from healthsvc.telemetry.server.http_session import build_session
from healthsvc.telemetry.server.prometheus_api import PrometheusApi
from healthsvc.telemetry.source import SourceError
from tests import servers
from tests.telemetry import fake_backends as fake
from tests.telemetry.fake_backends import QUERY, Fake

SECRET = "hunter2/+x"  # noqa: S105
TOKEN = "/tenant/oauth2/v2.0/token"  # noqa: S105


def api(url: str, **settings: object) -> PrometheusApi:
    return PrometheusApi(PrometheusSettings.model_validate({"url": url, "attempts": 1, "timeout_s": 5, **settings}))


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return path


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "is empty"), (b"a\nb\n", "has several lines"), (b"\xff\xfehunter2", "is no text")]
)
def test_a_token_file_with_something_else_in_it_is_named_without_its_contents(
    httpserver: HTTPServer, tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=told) as failure:
        api(Fake(httpserver).url, bearer_token_file=path).points("up", 600)
    assert f"bearer_token_file = {path}" in str(failure.value)
    assert "hunter2" not in str(failure.value)


# -- OAuth 2 client credentials (Azure) -------------------------------------------------------------------------------


class TokenServer:
    """Gives out token-1, token-2, ... that live for `life_s`; `refuse`: says so in Entra's words."""

    def __init__(self, server: HTTPServer, life_s: float = 3600.0, refuse: bool = False) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.url, self.life_s, self.refuse = server.url_for(TOKEN), life_s, refuse
        server.expect_request(TOKEN, method="POST").respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        assert "Authorization" not in request.headers
        self.asked.append(parse_qs(request.get_data(as_text=True)))
        if self.refuse:
            told = {"error": "invalid_client", "error_description": f"AADSTS7000215: {SECRET}"}
            return Response(json.dumps(told), 401)
        return Response(json.dumps({"access_token": f"token-{len(self.asked)}", "expires_in": self.life_s}))


def of_azure(server: TokenServer, secret_file: Path) -> dict[str, object]:
    return {"oauth2_token_url": server.url, "oauth2_client_id": "app", "oauth2_client_secret_file": secret_file}


def test_an_azure_token_is_asked_for_once_and_used(httpserver: HTTPServer, secret_file: Path) -> None:
    tokens = TokenServer(httpserver)
    server = fake.azure(httpserver)
    asked = api(server.url, flavour="azure", **of_azure(tokens, secret_file))
    for _ in range(3):
        asked.points("up", 600)
    sent = [request.headers["Authorization"] for request, _ in httpserver.log if request.path == QUERY]
    assert sent == ["Bearer token-1"] * 3
    (form,) = tokens.asked
    assert form["grant_type"] == ["client_credentials"]
    assert (form["client_id"], form["client_secret"]) == (["app"], [SECRET])
    assert form["scope"] == ["https://prometheus.monitor.azure.com/.default"]


def test_a_token_is_renewed_before_it_ends(httpserver: HTTPServer, secret_file: Path) -> None:
    tokens = TokenServer(httpserver, life_s=61.0)
    asked = api(fake.azure(httpserver).url, flavour="azure", **of_azure(tokens, secret_file))
    asked.points("up", 600)
    time.sleep(1.1)
    asked.points("up", 600)
    assert len(tokens.asked) == 2


def test_a_revoked_token_is_not_used_again(httpserver: HTTPServer, secret_file: Path) -> None:
    tokens = TokenServer(httpserver)

    def revoked(request: Request, _: object) -> Response | None:
        return Response("", 401) if request.headers["Authorization"] == "Bearer token-1" else None

    server = Fake(httpserver, refuse=revoked)
    asked = api(server.url, flavour="azure", **of_azure(tokens, secret_file))
    with pytest.raises(SourceError, match="HTTP 401"):
        asked.points("up", 600)
    asked.points("up", 600)


def test_a_token_server_that_refuses_is_named(httpserver: HTTPServer, secret_file: Path) -> None:
    tokens = TokenServer(httpserver, refuse=True)
    with pytest.raises(SourceError, match=r"oauth2_token_url = .*invalid_client") as failure:
        api(fake.azure(httpserver).url, flavour="azure", **of_azure(tokens, secret_file)).points("up", 600)
    assert failure.value.permanent


@pytest.mark.parametrize("body", ["", "[]", "<html>", '{"access_token": 7}', '{"expires_in": 60}'])
def test_an_answer_without_a_token_is_an_error(httpserver: HTTPServer, secret_file: Path, body: str) -> None:
    httpserver.expect_request(TOKEN).respond_with_data(body)
    auth = ClientCredentials(httpserver.url_for(TOKEN), "app", secret_file, "", build_session(HttpClientSettings()))
    with pytest.raises(requests.RequestException, match="no access_token"):
        auth(requests.Request("GET", "http://x").prepare())


def test_a_token_server_that_is_down_may_come_back(httpserver: HTTPServer, secret_file: Path) -> None:
    url = f"http://127.0.0.1:{servers.free_port()}/token"
    more = {"oauth2_token_url": url, "oauth2_client_id": "app", "oauth2_client_secret_file": secret_file}
    with pytest.raises(SourceError, match="ConnectionError") as failure:
        api(fake.azure(httpserver).url, flavour="azure", **more).points("up", 600)
    assert not failure.value.permanent


# -- mutual TLS -------------------------------------------------------------------------------------------------------


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, and server and client certificates that it has signed."""
    if reason := servers.missing("openssl"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("certificates")
    subject = ("-nodes", "-newkey", "rsa:2048", "-days", "2")
    openssl(folder, "req", "-x509", *subject, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")
    (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        request = (*subject[:3], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(folder, "req", *request)
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


@pytest.fixture
def tls_server(certificates: Path) -> Iterator[HTTPServer]:
    """Answers only those who show a certificate of its authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with HTTPServer(host="127.0.0.1", ssl_context=context) as server:
        yield server


def test_a_client_certificate_opens_a_server_that_asks_for_one(tls_server: HTTPServer, certificates: Path) -> None:
    trust = {"ca_file": certificates / "ca.pem"}
    shown = {"client_certificate_file": certificates / "client.pem", "client_key_file": certificates / "client.key"}
    server = Fake(tls_server, build=fake.PROMETHEUS_2)
    found = api(server.url, **trust, **shown)
    assert found.metric_names(0, 600) == {fake.METRIC}
    assert len(found.samples(fake.METRIC, 600, 600).times_s) == 10
    with pytest.raises(SourceError, match=r"client_certificate_file|no connection"):
        api(server.url, **trust).points("up", 600)
    with pytest.raises(SourceError, match=r"TLS failed.*ca_file"):
        api(server.url, **shown).points("up", 600)
    with pytest.raises(SourceError) as failure:
        api(server.url, flavour="gmp", parameters={"apikey": SECRET}, **shown).points("up", 600)
    assert "hunter2" not in "".join(traceback.format_exception(failure.value))


def test_a_header_that_cannot_be_sent_is_told_without_it(httpserver: HTTPServer) -> None:
    with pytest.raises(SourceError, match=r"prometheus\.headers") as failure:
        api(Fake(httpserver).url, headers={"X-Api-Key": f"{SECRET}\n"}).points("up", 600)
    assert "hunter2" not in "".join(traceback.format_exception(failure.value))


# -- silence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 422, 429, 500])
@pytest.mark.parametrize("how", ["bearer", "basic", "header", "parameter", "oauth2"])
def test_no_error_and_no_log_says_a_secret(
    httpserver: HTTPServer,
    secret_file: Path,
    status: int,
    how: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = TokenServer(httpserver, refuse=True)
    httpserver.expect_request(QUERY).respond_with_data("<html>", status=status)
    given: dict[str, dict[str, object]] = {
        "bearer": {"bearer_token_file": secret_file},
        "basic": {"basic_user": "ops", "basic_password_file": secret_file},
        "header": {"headers": {"X-Api-Key": SECRET}},
        "parameter": {"parameters": {"apikey": SECRET}},
        "oauth2": of_azure(tokens, secret_file),
    }
    with pytest.raises(SourceError) as failure:
        api(httpserver.url_for("/"), flavour="generic", attempts=1, **given[how]).points("up", 600)
    said = capsys.readouterr()
    text = "".join(traceback.format_exception(failure.value)) + said.err + said.out
    ours = [record.getMessage() for record in caplog.records if record.name != "werkzeug"]
    assert SECRET not in text + "\n".join(ours)
