"""Who we are to a server: tokens and passwords from files, OAuth 2 client credentials, AWS signatures.

Each is put on a request as it leaves, so whatever rotates is used at once. No error and no text of these holds a
secret: they name settings and files.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from healthsvc.config import HttpClientSettings, PrometheusSettings
from healthsvc.telemetry.server.profiles import BackendProfile, amp_region

RENEWED_BEFORE_S = 60.0  # a token is not used in its last minute
_UNSAID_LIFE_S = 300.0  # of a token whose server does not say


class CredentialsError(requests.RequestException):
    """Credentials cannot be had; the text names the setting, and the file or server. permanent: waiting won't help."""

    def __init__(self, text: str, *, permanent: bool = True) -> None:
        super().__init__(text)
        self.permanent = permanent


def secret_in(setting: str, path: Path) -> str:
    """The contents of a file, without the line end. Raises CredentialsError naming the setting."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise CredentialsError(f"{setting} = {path}: {_told(failure)}") from None
    if not text or len(text.splitlines()) > 1:
        raise CredentialsError(f"{setting} = {path}: {'has several lines' if text else 'is empty'}")
    return text


def _told(failure: OSError | UnicodeDecodeError) -> str:
    """What is wrong with a file, without what is in it."""
    return failure.strerror or str(failure) if isinstance(failure, OSError) else "is no text"


@dataclass(frozen=True)
class BearerFile(AuthBase):
    """Reads the token anew for each request, because Kubernetes rotates it."""

    path: Path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {secret_in('bearer_token_file', self.path)}"
        return request


@dataclass(frozen=True)
class BasicFile(AuthBase):
    """Reads the password anew for each request."""

    user: str
    path: Path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        password = secret_in("basic_password_file", self.path)
        signed: requests.PreparedRequest = HTTPBasicAuth(self.user.encode(), password.encode())(request)
        return signed


@dataclass
class ClientCredentials(AuthBase):
    """An OAuth 2 token for client credentials (RFC 6749, 4.4), kept until a minute before it ends, or a 401.

    session: speaks to the token server, without credentials of its own. Safe for several threads.
    """

    token_url: str
    client_id: str
    secret_file: Path
    scope: str
    session: requests.Session
    _token: str = field(default="", init=False, repr=False)
    _until_s: float = field(default=-float("inf"), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._renew()
            request.headers["Authorization"] = f"Bearer {self._token}"
        request.register_hook("response", self._answered)  # type: ignore[no-untyped-call]
        return request

    def _answered(self, response: requests.Response, **_: Any) -> requests.Response:
        if response.status_code == 401:  # revoked: the next request asks for another
            self._until_s = -float("inf")
        return response

    def _renew(self) -> None:
        form = {"grant_type": "client_credentials", "client_id": self.client_id}
        form["client_secret"] = secret_in("oauth2_client_secret_file", self.secret_file)
        if self.scope:
            form["scope"] = self.scope
        where = f"oauth2_token_url = {self.token_url}"
        try:
            response = self.session.post(self.token_url, data=form, allow_redirects=False)
        except requests.RequestException as failure:
            raise CredentialsError(f"{where}: {type(failure).__name__}", permanent=False) from None
        told = _json_object(response.content)
        token = told.get("access_token")
        if response.status_code != 200 or not isinstance(token, str):
            why = told.get("error", "no access_token in the answer")
            text = f"{where}: HTTP {response.status_code}: {str(why)[:200]}"
            raise CredentialsError(text, permanent=response.status_code in (200, 400, 401, 403, 404))
        try:
            life_s = float(told.get("expires_in", _UNSAID_LIFE_S))
        except (TypeError, ValueError):
            life_s = _UNSAID_LIFE_S
        self._token, self._until_s = token, time.monotonic() + max(life_s - RENEWED_BEFORE_S, 1.0)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


@dataclass
class AwsSignature(AuthBase):
    """Signature version 4, by botocore, with whatever credentials it finds (variables, profile, role, instance).

    Needs the extra `aws`. Signed are the host, the content type, the date and the body: what proxies change is not.
    """

    service: str
    region: str
    profile: str = ""
    _session: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        scheme, rest = (request.url or "").split("?", 1) if "?" in (request.url or "") else (request.url or "", "")
        if rest:
            request.url = f"{scheme}?{rest.replace('+', '%20')}"  # a space, as the signature has it
        body = request.body or b""
        kept = {name: request.headers[name] for name in ("Content-Type",) if name in request.headers}
        copy = AWSRequest(request.method, request.url, kept, body.encode() if isinstance(body, str) else body)
        SigV4Auth(self._credentials(), self.service, self.region).add_auth(copy)
        request.headers.update(
            {
                n: v
                for n, v in copy.headers.items()
                if n.lower() in ("authorization", "x-amz-date", "x-amz-security-token")
            }
        )
        return request

    def _credentials(self) -> Any:
        """Frozen for this request; botocore renews them by itself. Raises CredentialsError."""
        import botocore.session
        from botocore.exceptions import BotoCoreError

        with self._lock:
            try:
                if self._session is None:
                    self._session = botocore.session.Session(profile=self.profile or None)
                found = self._session.get_credentials()
                if found is not None:
                    return found.get_frozen_credentials()
            except BotoCoreError as failure:
                self._session = None
                raise CredentialsError(f"AWS credentials: {failure}", permanent=False) from None
            self._session = None  # they may come: a role that is attached later
        raise CredentialsError("AWS credentials: none found; give variables, aws_profile or a role", permanent=False)


def credentials_of(settings: HttpClientSettings) -> AuthBase | None:
    """What the settings of any HTTP client name: token, password, or nothing."""
    if settings.bearer_token_file:
        return BearerFile(settings.bearer_token_file)
    if settings.basic_user and settings.basic_password_file:
        return BasicFile(settings.basic_user, settings.basic_password_file)
    if settings.basic_user:
        password = settings.basic_password.get_secret_value() if settings.basic_password else ""
        return HTTPBasicAuth(settings.basic_user.encode(), password.encode())
    return None


def flavour_credentials(
    settings: PrometheusSettings, profile: BackendProfile | None, token_session: requests.Session
) -> AuthBase | None:
    """What only a flavour can know how to do: AWS signatures, or client credentials with its scope; None: neither.

    Raises CredentialsError where the region or the extra is missing.
    """
    if settings.oauth2_token_url and settings.oauth2_client_secret_file:
        scope = settings.oauth2_scope or (profile.scope if profile else "")
        url, secret = str(settings.oauth2_token_url), settings.oauth2_client_secret_file
        return ClientCredentials(url, settings.oauth2_client_id, secret, scope, token_session)
    # A signing proxy has its own address, and wants no signature of ours.
    if profile is None or not profile.service or settings.bearer_token_file or settings.basic_user:
        return None
    try:
        import botocore.session  # noqa: F401
    except ModuleNotFoundError:
        raise CredentialsError("signing for AWS needs botocore: pip install botocore") from None
    region = settings.aws_region or amp_region(str(settings.url))
    if not region:
        host = urlsplit(str(settings.url)).hostname
        raise CredentialsError(f"aws_region is not set, and {host} does not tell it")
    return AwsSignature(profile.service, region, settings.aws_profile)
