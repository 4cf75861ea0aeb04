"""Servers that speak Prometheus' API as the hosted and clustered ones do: as strict, with their own words of refusal.

Written by hand after the services' API pages and ../shared/data/prometheus-api-responses; no such server runs here.
Each holds one GPU at 50 C, a sample a minute from 60 to 600 s.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

METRIC = "DCGM_FI_DEV_GPU_TEMP"
GPU = {"UUID": "GPU-0aad3a52-9ba4-43f4-8ba7-2fcf3e3c6a4c", "gpu": "0", "Hostname": "n1", "modelName": "NVIDIA L4"}
SAMPLES = [[60 * k, "50"] for k in range(1, 11)]
BUILD = "/api/v1/status/buildinfo"
NAMES = "/api/v1/label/__name__/values"
QUERY = "/api/v1/query"

Refuse = Callable[[Request, Mapping[str, str]], Response | None]


def json_response(body: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(body), status, dict(headers or {}), content_type="application/json")


def refused(status: int, error: str, kind: str = "bad_data") -> Response:
    return json_response({"status": "error", "errorType": kind, "error": error}, status)


def asked_of(request: Request) -> dict[str, str]:
    """The parameters, wherever they stand."""
    return {**request.args, **request.form}


def window_s(query: str) -> float:
    """The longest range selector of a query."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return max((int(n) * units[unit] for n, unit in re.findall(r"\[(\d+)([smhd])", query)), default=0.0)


@dataclass
class Fake:
    """Answers below `prefix`. build: what buildinfo says, None: 404. more: beside the data in every answer.

    refuse: a Response where this server would refuse.
    """

    server: HTTPServer
    prefix: str = ""
    build: Mapping[str, object] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, object] = field(default_factory=dict)
    refuse: Refuse = lambda request, asked: None
    samples: Callable[[Mapping[str, str]], list[list[object]]] = lambda asked: list(map(list, SAMPLES))
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.expect_request(re.compile(".*")).respond_with_handler(self._answer)

    @property
    def url(self) -> str:
        return self.server.url_for("").rstrip("/")

    def sent(self, path: str) -> list[dict[str, str]]:
        """The parameters of every request to a path below the prefix."""
        return [asked for _, at, asked in self.asked if at == self.prefix + path]

    def _answer(self, request: Request) -> Response:
        asked = asked_of(request)
        self.asked.append((request.method, request.path, asked))
        path = request.path
        if path == BUILD and self.build is not None:
            return json_response({"status": "success", "data": self.build}, headers=self.headers)
        if not path.startswith(self.prefix + "/api/v1/"):
            return Response("404 page not found\n", 404, dict(self.headers))
        if (no := self.refuse(request, asked)) is not None:
            return no
        match path.removeprefix(self.prefix):
            case p if p == NAMES:
                return self._told([METRIC])
            case p if p == QUERY:
                return self._told(self._query(asked))
            case _:
                return Response("404 page not found\n", 404, dict(self.headers))

    def _told(self, data: object) -> Response:
        return json_response({"status": "success", "data": data, **self.more}, headers=self.headers)

    def _query(self, asked: Mapping[str, str]) -> dict[str, object]:
        query = asked["query"]
        if query == "vector(1)":
            return {"resultType": "vector", "result": [{"metric": {}, "value": [600, "1"]}]}
        if query.startswith(METRIC):
            values = self.samples(asked)
            series = [{"metric": GPU | {"__name__": METRIC}, "values": values}] if values else []
            return {"resultType": "matrix", "result": series}
        return {"resultType": "vector", "result": [{"metric": GPU, "value": [600, "600"]}]}


PROMETHEUS_2 = {"version": "2.42.0", "revision": "2.42.0-5", "branch": "HEAD", "goVersion": "go1.19.8"}
PROMETHEUS_3 = {**PROMETHEUS_2, "version": "3.5.0", "goVersion": "go1.24.5"}
THANOS = {**PROMETHEUS_2, "version": "0.39.2", "goVersion": "go1.24.4"}
MIMIR = {"application": "Grafana Mimir", "version": "2.17.0", "features": {"ruler_config_api": "true"}}


def thanos(server: HTTPServer, raw: bool = True, broken: bool = False) -> Fake:
    """raw: it still has raw samples, else 5-minute averages only. broken: one of its stores does not answer."""

    def refuse(_: Request, asked: Mapping[str, str]) -> Response | None:
        if broken and asked.get("partial_response", "true") != "false":
            return None
        return refused(503, "fetch series: store-1 unavailable", "execution") if broken else None

    def samples(asked: Mapping[str, str]) -> list[list[object]]:
        coarse = asked.get("max_source_resolution") == "5m"
        return [[300, "49.5"], [600, "50.5"]] if coarse and not raw else list(map(list, SAMPLES)) if raw else []

    more = {"warnings": ["store-1 unavailable: context deadline exceeded"]} if broken else {}
    return Fake(server, build=THANOS, refuse=refuse, samples=samples, more=more)


def mimir(server: HTTPServer, prefix: str = "/prometheus", build: Mapping[str, object] | None = MIMIR) -> Fake:
    """Wants a tenant; refuses to look over more than a day at once, in its own words."""

    def refuse(request: Request, asked: Mapping[str, str]) -> Response | None:
        if not request.headers.get("X-Scope-OrgID"):
            return Response("no org id", 401)
        if window_s(asked.get("query", "")) > 86_400:
            return refused(
                422,
                "the query time range exceeds the limit (query length: 168h, limit: 24h) (err-mimir-max-query-length)",
                "execution",
            )
        return None

    return Fake(server, prefix, build, refuse=refuse)


def google(server: HTTPServer) -> Fake:
    """Takes GET, whole seconds, one exact metric name a selector, and no parameter that it does not know."""
    known = {"query", "time", "timeout", "start", "end", "match[]", "match"}

    def refuse(request: Request, asked: Mapping[str, str]) -> Response | None:
        if request.method != "GET":
            return Response('{"error": {"code": 405, "status": "UNIMPLEMENTED"}}', 405)
        if unknown := asked.keys() - known:
            return refused(400, f"Unknown name: {sorted(unknown)}")
        if any(not asked[name].lstrip("-").isdigit() for name in ("time", "start", "end") if name in asked):
            return refused(400, "times with fractions of a second")
        if "__name__" in asked.get("query", "") or "match[]" in asked:
            return refused(400, "an exact metric name is required")
        return None

    return Fake(server, "/v1/projects/p/location/global/prometheus", refuse=refuse)


def azure(server: HTTPServer) -> Fake:
    """Refuses what looks over more than 32 days, queries and label values alike."""

    def refuse(_: Request, asked: Mapping[str, str]) -> Response | None:
        reach_s = float(asked["end"]) - float(asked["start"]) if "start" in asked and "end" in asked else 0.0
        if max(reach_s, window_s(asked.get("query", ""))) > 32 * 86_400:
            return refused(422, "the time range of the query exceeds 32 days", "execution")
        return None

    return Fake(server, refuse=refuse)
