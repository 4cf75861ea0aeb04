"""One way to speak HTTP: credentials from files, private trust, every request bounded, retries that are polite."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import requests
import stamina
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth

from healthsvc.config import HttpClientSettings

T = TypeVar("T")

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
LONGEST_PAUSE_S = 60.0  # a server that asks for more is not asked again in this exchange
_PIECE_BYTES = 2**20


class CredentialsError(requests.RequestException):
    """A credentials file cannot be read; the text names the setting and the file."""


class BodyTooLarge(requests.RequestException):
    """The answer is larger than its bound."""


@dataclass(frozen=True)
class Answer:
    """A whole answer: status, headers (names as sent) and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """What Retry-After asks for, in seconds or as a date; None if absent or unreadable."""
        text = self.headers.get("Retry-After", "")
        with suppress(ValueError):
            return max(float(text), 0.0)
        with suppress(ValueError, TypeError):
            return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0.0)
        return None


class ServerBusyError(Exception):
    """The server answered that it cannot answer now."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


def _secret(setting: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise CredentialsError(f"{setting} = {path}: {failure}") from None


@dataclass(frozen=True)
class _BearerFile(AuthBase):
    """Reads the token anew for each request, because Kubernetes rotates it."""

    path: Path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {_secret('bearer_token_file', self.path)}"
        return request


@dataclass(frozen=True)
class _BasicFile(AuthBase):
    """Reads the password anew for each request."""

    user: str
    path: Path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        password = _secret("basic_password_file", self.path)
        signed: requests.PreparedRequest = HTTPBasicAuth(self.user.encode(), password.encode())(request)
        return signed


class _BoundedSession(requests.Session):
    """A session whose requests all have a timeout, also those of libraries that give none."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self._timeout_s
        return super().send(request, **kwargs)


def build_session(settings: HttpClientSettings) -> requests.Session:
    """A session with these credentials, trust, headers and timeout.

    Answers are asked for uncompressed: on a local network the server's gzip costs more than it saves. Proxies, netrc
    and certificate bundles of the environment are ignored (netrc would replace the bearer token).
    """
    session = _BoundedSession(settings.timeout_s)
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=16))
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": "healthsvc", **settings.headers})
    if settings.bearer_token_file:
        session.auth = _BearerFile(settings.bearer_token_file)
    elif settings.basic_user and settings.basic_password_file:
        session.auth = _BasicFile(settings.basic_user, settings.basic_password_file)
    elif settings.basic_user:
        password = settings.basic_password.get_secret_value() if settings.basic_password else ""
        session.auth = HTTPBasicAuth(settings.basic_user.encode(), password.encode())
    if settings.ca_file:
        session.verify = str(settings.ca_file)
    if settings.client_certificate_file:
        certificate, key = str(settings.client_certificate_file), settings.client_key_file
        session.cert = (certificate, str(key)) if key else certificate
    return session


def _pause(failure: Exception) -> bool | float:
    """Whether to try again, and after how many seconds if the server said so."""
    if isinstance(failure, ServerBusyError):
        asked = failure.answer.retry_after_s
        if asked is None:
            return True
        return asked <= LONGEST_PAUSE_S and max(asked, 0.05)
    if isinstance(failure, requests.exceptions.SSLError | requests.exceptions.ProxyError):
        return False
    return isinstance(failure, requests.ConnectionError | requests.Timeout)


def persist(attempts: int, once: Callable[[], T]) -> T:
    """The result of `once`, tried again with growing pauses after ServerBusyError, a lost connection or a timeout."""
    for attempt in stamina.retry_context(
        on=_pause, attempts=attempts, timeout=None, wait_initial=0.5, wait_max=15.0, wait_jitter=0.5
    ):
        with attempt:
            return once()
    raise AssertionError("stamina ends with a result or an exception")


def _read_body(response: requests.Response, most_bytes: int, deadline_s: float) -> bytes:
    """The body, piece by piece, so that neither a flood nor a trickle is waited for."""
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := response.raw.read1(_PIECE_BYTES, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                raise BodyTooLarge(f"the answer is larger than {most_bytes} bytes")
            if time.monotonic() > deadline_s:
                raise requests.Timeout("the answer was still arriving")
    except urllib3.exceptions.TimeoutError as failure:
        raise requests.Timeout(str(failure)) from failure
    except urllib3.exceptions.HTTPError as failure:
        raise requests.ConnectionError(str(failure)) from failure
    return b"".join(pieces)


@dataclass(frozen=True)
class Exchanger:
    """Sends whole requests and gives back whole answers, whatever their status."""

    session: requests.Session
    timeout_s: float
    attempts: int
    most_bytes: int

    def __call__(self, method: str, url: str, **request: Any) -> Answer:
        """The answer; after the last attempt also a 429 or 5xx. Redirects are answers too: a POST would lose its body.

        Raises requests.RequestException where there is none: no connection, timeout, CredentialsError, BodyTooLarge.
        """

        def once() -> Answer:
            deadline_s = time.monotonic() + self.timeout_s
            with self.session.request(
                method, url, stream=True, allow_redirects=False, timeout=self.timeout_s, **request
            ) as response:
                body = _read_body(response, self.most_bytes, deadline_s)
                answer = Answer(response.status_code, response.headers, body)
            if answer.status in RETRIED_STATUSES:
                raise ServerBusyError(answer)
            return answer

        try:
            return persist(self.attempts, once)
        except ServerBusyError as busy:
            return busy.answer
