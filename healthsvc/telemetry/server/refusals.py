"""What a server's failure means and what to do about it."""

import re

import requests

from healthsvc.telemetry.decode import error_text
from healthsvc.telemetry.server.credentials import CredentialsError
from healthsvc.telemetry.server.http_session import Answer, BodyCutOff, BodyTooLarge
from healthsvc.telemetry.server.profiles import PROFILES
from healthsvc.telemetry.source import SourceError

# Mimir and Cortex refuse with 400 what others refuse with 422.
_SIZE_IN_400 = re.compile(r"err-mimir-max|exceeds the limit|too many samples|too long query|max-", re.IGNORECASE)
_NO_TENANT = re.compile(r"no org id|X-Scope-OrgID", re.IGNORECASE)
_SIZE = re.compile(r"too many|too long|exceed|limit|max-|cannot select more|larger", re.IGNORECASE)


class TooMuchError(SourceError):
    """The question was too large for the server or for us; half of it may pass."""


def no_answer(where: str, failure: Exception) -> SourceError:
    """The error for an exchange that ended without an answer."""
    match failure:
        case CredentialsError():
            cure = "Correct the path or its permissions" if failure.permanent else "Check who gives the credentials"
            return SourceError(where, str(failure), cure, permanent=failure.permanent)
        case BodyTooLarge():
            return TooMuchError(where, str(failure), "Lower prometheus.samples_a_query or prometheus.shard_gpus")
        case BodyCutOff():
            cure = "Look for a proxy that cuts answers off, or lower prometheus.samples_a_query"
            return SourceError(where, str(failure), cure)
        case requests.Timeout():
            cure = "Raise prometheus.timeout_s, or lower prometheus.samples_a_query if the server is slow"
            return SourceError(where, "no answer in time", cure)
        case requests.exceptions.SSLError():
            cure = "Check prometheus.ca_file, client_certificate_file and client_key_file"
            return SourceError(where, f"TLS failed: {_innermost(failure)}", cure, permanent=True)
        case requests.exceptions.InvalidHeader():  # whose text holds the header
            cure = "Correct prometheus.headers or prometheus.tenant"
            return SourceError(where, "a header that cannot be sent", cure, permanent=True)
        case requests.ConnectionError():
            cure = "Start the server or correct prometheus.url"
            return SourceError(where, f"no connection: {_innermost(failure)}", cure)
        case _:
            return SourceError(where, f"{type(failure).__name__}: {failure}", "Correct prometheus.url", permanent=True)


def _innermost(failure: requests.ConnectionError) -> str:
    """What the operating system said, without the layers of pools and retries around it."""
    wrapped = failure.args[0] if failure.args else failure
    return str(getattr(wrapped, "reason", wrapped)).split("): ", 1)[-1]


def refusal(where: str, answer: Answer, credentials: str = PROFILES["generic"].credentials) -> SourceError:
    """The error for an answer whose status is not 200. credentials: what this server wants, in words."""
    said = f"HTTP {answer.status}: {error_text(answer.body) or 'no reason given'}"
    match answer.status:
        case 301 | 302 | 303 | 307 | 308:
            target = answer.headers.get("Location", "elsewhere")
            cure = "Set prometheus.url to the API itself; a login page needs prometheus.bearer_token_file or basic_user"
            return SourceError(where, f"HTTP {answer.status}: redirected to {target}", cure, permanent=True)
        case 401 | 403 if _NO_TENANT.search(said):
            return SourceError(where, said, "Set prometheus.tenant", permanent=True)
        case 401 | 403:
            return SourceError(where, said, f"Set {credentials}", permanent=True)
        case 404:
            cure = "Correct the base path in prometheus.url (Mimir: .../prometheus, Grafana Cloud: .../api/prom)"
            return SourceError(where, said, cure, permanent=True)
        case 413:
            return TooMuchError(where, said, "Lower prometheus.samples_a_query or prometheus.shard_gpus")
        case 400 | 422 if (_SIZE if answer.status == 422 else _SIZE_IN_400).search(said):
            return TooMuchError(where, said, "Lower prometheus.samples_a_query or prometheus.shard_gpus")
        case 400 | 422:
            cure = "Check prometheus.selector; otherwise the server does not support the query"
            return SourceError(where, said, cure, permanent=True)
        case 429:
            return SourceError(where, said, "Lower prometheus.concurrency, or raise the server's query limits")
        case _:
            return SourceError(where, said, "Wait until the server is ready, or lower prometheus.samples_a_query")


def not_the_api(where: str, body: bytes, reason: str) -> SourceError:
    """The error for a 200 whose body is no answer of the Prometheus API."""
    if body.lstrip()[:1] == b"<":
        cure = "Set prometheus.url to the API itself; a login page needs prometheus.bearer_token_file or basic_user"
        return SourceError(where, "an HTML page came instead of JSON", cure, permanent=True)
    return SourceError(where, f"a malformed answer: {reason}", "Check that prometheus.url is a Prometheus API")
