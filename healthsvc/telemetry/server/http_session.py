"""One way to speak HTTP: credentials from files, private trust, every request bounded, retries that are polite."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import requests
import stamina
import urllib3
from requests.adapters import HTTPAdapter

from healthsvc.config import HttpClientSettings
from healthsvc.telemetry.server.credentials import credentials_of

T = TypeVar("T")

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
LONGEST_PAUSE_S = 60.0  # a server that asks for more is not asked again in this exchange
_PIECE_BYTES = 2**20
_MOST_NAMES_BYTES = 2**26  # of an answer that a library reads: a million names


class BodyTooLarge(requests.RequestException):
    """The answer is larger than its bound."""


class BodyCutOff(requests.ConnectionError):
    """The answer ended before its announced end."""


@dataclass(frozen=True)
class Answer:
    """A whole answer: status, headers (names as sent) and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def date_s(self) -> float | None:
        """The server's own clock when it answered, to the second; None if it does not say."""
        with suppress(ValueError, TypeError):
            return parsedate_to_datetime(self.headers.get("Date", "")).timestamp()
        return None

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


class _BoundedAdapter(HTTPAdapter):
    """Bounds the answers that requests itself would read to their end, whatever their size: those not streamed."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().send(request, *args, **kwargs)
        if not kwargs.get("stream"):
            timeout_s = kwargs.get("timeout")
            deadline_s = time.monotonic() + (timeout_s if isinstance(timeout_s, int | float) else LONGEST_PAUSE_S)
            try:
                body = read_body(response, _MOST_NAMES_BYTES, deadline_s)
            except requests.RequestException:
                response.close()  # the rest of it is not waited for
                raise
            # What .content gives; there is no public way to say that a body has been read.
            response._content = body
            response._content_consumed = True  # type: ignore[attr-defined]
            response.raw.release_conn()
        return response


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
        session.mount(scheme, _BoundedAdapter(pool_maxsize=16))
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": "healthsvc", **settings.headers})
    session.auth = credentials_of(settings)
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


def read_body(response: requests.Response, most_bytes: int, deadline_s: float) -> bytes:
    """The body, piece by piece, so that neither a flood nor a trickle is waited for.

    Raises BodyTooLarge, BodyCutOff, requests.Timeout or requests.ConnectionError.
    """
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
    except (urllib3.exceptions.IncompleteRead, urllib3.exceptions.ProtocolError) as failure:
        raise BodyCutOff(f"the answer broke off after {size} bytes") from failure
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
                body = read_body(response, self.most_bytes, deadline_s)
                answer = Answer(response.status_code, response.headers, body)
            if answer.status in RETRIED_STATUSES:
                raise ServerBusyError(answer)
            return answer

        try:
            return persist(self.attempts, once)
        except ServerBusyError as busy:
            return busy.answer
