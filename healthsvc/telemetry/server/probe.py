"""Which kind of server answers: told by its address, by what it says of itself, or by one tiny query."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from healthsvc.config import Flavour, PrometheusSettings
from healthsvc.telemetry.server.http_session import RETRIED_STATUSES, Answer
from healthsvc.telemetry.server.profiles import PROFILES, BackendProfile, profile_by_address

_PREFIXES = ("", "/prometheus", "/api/prom")
_TINY = {"query": "vector(1)"}

Ask = Callable[[str, str, Mapping[str, str]], Answer]
"""ask(method, url, parameters): one try, without retries; raises requests.RequestException where nothing answers."""


@dataclass(frozen=True)
class Backend:
    """A server as it was recognised: profile, base URL with the prefix, its version if it tells, and why we think so.

    sure: False where the server could not say at that moment, and is worth asking again.
    """

    profile: BackendProfile
    url: str
    version: str = ""
    why: str = ""
    sure: bool = True


def chosen_profile(settings: PrometheusSettings, url: str) -> tuple[BackendProfile | None, str]:
    """The profile that needs no asking, and why: set, or given away by the address."""
    if settings.flavour != "auto":
        return PROFILES[settings.flavour], f"prometheus.flavour = {settings.flavour}"
    by_address = profile_by_address(url)
    return by_address, "its address" if by_address else ""


def find_backend(settings: PrometheusSettings, url: str, ask: Ask) -> Backend:
    """Recognise the server at `url` (no slash at its end). Raises requests.RequestException where nothing answers.

    Blind to what a proxy hides: a server that answers queries and nothing else is asked as a plain Prometheus.
    """
    profile, why = chosen_profile(settings, url)
    if profile is not None:
        return Backend(profile, _with_prefix(profile, url, ask), why=why)
    answer = ask("GET", f"{url}/api/v1/status/buildinfo", {})
    if answer.status in RETRIED_STATUSES:
        return Backend(PROFILES["generic"], url, why=f"it could not say: HTTP {answer.status}", sure=False)
    build = _data(answer)
    if isinstance(build, dict):
        flavour, version = _named(build, answer.headers), str(build.get("version", ""))
        profile = PROFILES[flavour]
        told = " ".join(filter(None, ("its build information:", build.get("application"), version)))
        return Backend(profile, _with_prefix(profile, url, ask), version, told)
    return _by_a_query(url, ask)


def _named(build: Mapping[str, Any], headers: Mapping[str, str]) -> Flavour:
    """The flavour behind what /api/v1/status/buildinfo says."""
    application, version = str(build.get("application", "")).lower(), str(build.get("version", ""))
    if "mimir" in application or "enterprise metrics" in application:
        return "mimir"
    if "cortex" in application:
        return "cortex"
    # VictoriaMetrics says {} or the version of a Prometheus that it is as good as.
    if not build or any(name.lower() == "x-server-hostname" for name in headers):
        return "victoriametrics"
    major = version.lstrip("v").partition(".")[0]
    by_major: dict[str, Flavour] = {"0": "thanos", "2": "prometheus2", "3": "prometheus3"}
    return by_major.get(major, "generic")


def _by_a_query(url: str, ask: Ask) -> Backend:
    """For servers that do not tell their build: whose base path, and whose form of answer it is."""
    for prefix in _PREFIXES if not _ends_in_prefix(url) else ("",):
        answer = ask("POST", f"{url}{prefix}/api/v1/query", _TINY)
        if answer.status == 405:
            answer = ask("GET", f"{url}{prefix}/api/v1/query", _TINY)
        if answer.status in RETRIED_STATUSES:
            return Backend(PROFILES["generic"], url, why=f"it could not say: HTTP {answer.status}", sure=False)
        if _data(answer) is None:
            continue
        if "isPartial" in _object(answer):
            return Backend(PROFILES["victoriametrics"], url + prefix, why="its answers tell whether they are partial")
        if prefix:
            return Backend(PROFILES["mimir"], url + prefix, why=f"it answers below {prefix}")
        return Backend(PROFILES["generic"], url, why="it answers queries and does not tell its build")
    return Backend(PROFILES["generic"], url, why="it answers neither questions about its build nor queries", sure=False)


def _ends_in_prefix(url: str) -> bool:
    return any(prefix and url.endswith(prefix) for prefix in _PREFIXES)


def _with_prefix(profile: BackendProfile, url: str, ask: Ask) -> str:
    """The URL below which the API answers: as given if it ends in a prefix already, else the first that answers."""
    if len(profile.prefixes) == 1 or _ends_in_prefix(url):
        return url
    for prefix in profile.prefixes:
        # What refuses us is there; only what is not found is not.
        if ask("POST" if profile.post else "GET", f"{url}{prefix}/api/v1/query", _TINY).status not in (404, 405):
            return url + prefix
    return url


def _object(answer: Answer) -> dict[str, Any]:
    try:
        told = json.loads(answer.body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _data(answer: Answer) -> Any:
    """What a successful answer of the API holds; None for anything else."""
    told = _object(answer)
    return told.get("data") if answer.status == 200 and told.get("status") == "success" else None
