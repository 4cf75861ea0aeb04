"""Each kind of server is asked in its own way, and what it says of missing data reaches the grid."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.config import PrometheusSettings
from healthsvc.fleet import DAY_S, Signal
from healthsvc.telemetry.prometheus import PrometheusSource
from healthsvc.telemetry.server.prometheus_api import PrometheusApi
from healthsvc.telemetry.source import SourceError
from tests.telemetry import fake_backends as fake
from tests.telemetry.fake_backends import METRIC, NAMES, QUERY, Fake

TIMES_S = np.arange(1.0, 11) * 60.0


def settings(url: str, **more: object) -> PrometheusSettings:
    return PrometheusSettings.model_validate({"url": url, "attempts": 1, "timeout_s": 5, **more})


def source(server: Fake, path: str = "", **more: object) -> PrometheusSource:
    return PrometheusSource(settings(server.url + path, **more))


def temperature(source: PrometheusSource) -> np.ndarray:
    return source.read(TIMES_S).values[Signal.GPU_TEMPERATURE]


# -- how each is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "path", "more"),
    [
        (lambda s: Fake(s, build=fake.PROMETHEUS_2), "", {}),
        (lambda s: Fake(s, build=fake.PROMETHEUS_3), "", {}),
        (fake.thanos, "", {}),
        (fake.mimir, "", {"tenant": "team-a|team-b"}),
        (lambda s: fake.mimir(s, "/api/prom", None), "", {"tenant": "team-a"}),
        (lambda s: Fake(s, build={}), "", {}),
        (lambda s: Fake(s, "/select/0/prometheus"), "/select/0/prometheus", {}),
        (fake.google, "/v1/projects/p/location/global/prometheus", {"flavour": "gmp"}),
        (fake.azure, "", {"flavour": "azure"}),
        (lambda s: Fake(s, "/api/prom"), "/api/prom", {"flavour": "grafana_cloud"}),
    ],
)
def test_every_kind_gives_the_same_grid(
    httpserver: HTTPServer, make: Callable[[HTTPServer], Fake], path: str, more: dict[str, object]
) -> None:
    reader = source(make(httpserver), path, **more)
    grid = reader.read(TIMES_S)
    assert [gpu.device_id for gpu in grid.gpus] == [fake.GPU["UUID"]]
    np.testing.assert_array_equal(grid.values[Signal.GPU_TEMPERATURE], np.full((1, 10), 50.0))
    assert (grid.incomplete, grid.warnings) == (False, ())


def test_thanos_is_asked_for_raw_and_whole_answers(httpserver: HTTPServer) -> None:
    server = fake.thanos(httpserver)
    source(server).read(TIMES_S)
    for asked in (*server.sent(QUERY), *server.sent(NAMES)):
        if asked.get("query") != "vector(1)":
            assert (asked["dedup"], asked["partial_response"], asked["max_source_resolution"]) == (
                "true",
                "false",
                "0s",
            )


def test_victoria_metrics_is_asked_past_its_cache_and_nobody_else_is(httpserver: HTTPServer) -> None:
    server = Fake(httpserver, build={})
    source(server).read(TIMES_S)
    assert {asked.get("nocache") for asked in server.sent(QUERY) if asked["query"] != "vector(1)"} == {"1"}
    httpserver.clear()
    other = Fake(httpserver, build=fake.PROMETHEUS_2)
    source(other).read(TIMES_S)
    assert not any("nocache" in asked for asked in other.sent(QUERY))


def test_a_parameter_of_the_settings_outranks_that_of_the_flavour(httpserver: HTTPServer) -> None:
    server = fake.thanos(httpserver)
    source(server, parameters={"partial_response": "true", "storeMatch[]": '{region="a"}'}).read(TIMES_S)
    asked = server.sent(QUERY)[-1]
    assert (asked["partial_response"], asked["storeMatch[]"], asked["dedup"]) == ("true", '{region="a"}', "true")


def test_the_tenant_travels_with_every_request(httpserver: HTTPServer) -> None:
    server = fake.mimir(httpserver)
    source(server, tenant="team-a").read(TIMES_S)
    assert {request.headers.get("X-Scope-OrgID") for request, _ in httpserver.log} == {"team-a"}


def test_mimirs_limit_of_a_querys_reach_halves_the_question(httpserver: HTTPServer) -> None:
    server = fake.mimir(httpserver)
    times_s = np.arange(1.0, 3 * 1440 + 1) * 60.0
    grid = source(server, tenant="team-a").read(times_s)
    assert np.isfinite(grid.values[Signal.GPU_TEMPERATURE]).sum() == 10
    windows = [fake.window_s(asked["query"]) for asked in server.sent(QUERY) if asked["query"].startswith(METRIC)]
    assert max(windows) > DAY_S >= min(windows)


@pytest.mark.parametrize("days", [1, 45, 700])
def test_azure_is_never_asked_over_more_than_its_limit(httpserver: HTTPServer, days: int) -> None:
    server = fake.azure(httpserver)
    start_s = 1_700_000_000.0
    reader = source(server, flavour="azure")
    reader.discover(start_s - days * DAY_S, start_s)
    reader.metrics(start_s - min(days, 29) * DAY_S, start_s)
    assert reader.span() is not None


def test_google_is_asked_for_presence_by_queries(httpserver: HTTPServer) -> None:
    server = fake.google(httpserver)
    api = PrometheusApi(settings(server.url + server.prefix, flavour="gmp"))
    assert api.present([METRIC], 0, 600)
    assert [asked["query"] for asked in server.sent(QUERY)] == [f"count(last_over_time({METRIC}[600s]))"]


# -- what is missing is said ------------------------------------------------------------------------------------------


def test_a_warning_makes_the_window_incomplete(httpserver: HTTPServer) -> None:
    server = fake.thanos(httpserver, broken=True)
    grid = source(server, parameters={"partial_response": "true"}).read(TIMES_S)
    assert grid.incomplete
    assert grid.warnings == ("store-1 unavailable: context deadline exceeded",)
    np.testing.assert_array_equal(grid.values[Signal.GPU_TEMPERATURE], np.full((1, 10), 50.0))


def test_a_store_that_does_not_answer_is_an_error_unless_partial_answers_are_wanted(httpserver: HTTPServer) -> None:
    server = fake.thanos(httpserver, broken=True)
    with pytest.raises(SourceError, match="store-1 unavailable"):
        source(server).read(TIMES_S)


@pytest.mark.parametrize("partial", [True, False])
def test_a_partial_answer_of_a_cluster_makes_the_window_incomplete(httpserver: HTTPServer, partial: bool) -> None:
    server = Fake(httpserver, "/select/0/prometheus", more={"isPartial": partial})
    assert source(server, "/select/0/prometheus").read(TIMES_S).incomplete is partial


def test_hints_at_the_wording_of_a_query_are_no_warnings(httpserver: HTTPServer) -> None:
    server = Fake(httpserver, build=fake.PROMETHEUS_3, more={"infos": ["PromQL info: metric might not be a counter"]})
    grid = source(server).read(TIMES_S)
    assert (grid.incomplete, grid.warnings) == (False, ())


def test_a_partial_list_of_names_makes_the_window_incomplete(httpserver: HTTPServer) -> None:
    """A metric that is not in the list is not asked for: the grid would lack it without a word."""

    def names_only(request: Request, _: Mapping[str, str]) -> Response | None:
        told = {"status": "success", "data": [METRIC], "isPartial": True}
        return fake.json_response(told) if request.path.endswith(NAMES) else None

    server = Fake(httpserver, "/select/0/prometheus", refuse=names_only)
    reader = source(server, "/select/0/prometheus")
    assert [reader.read(TIMES_S).incomplete for _ in range(3)] == [True, True, True]  # the list is asked for once


# -- where raw samples are gone ---------------------------------------------------------------------------------------


def test_averages_stand_for_raw_samples_that_are_gone_and_are_marked(httpserver: HTTPServer) -> None:
    server = fake.thanos(httpserver, raw=False)
    grid = source(server).read(TIMES_S)
    np.testing.assert_array_equal(grid.values[Signal.GPU_TEMPERATURE][0, [4, 9]], [49.5, 50.5])
    assert grid.incomplete
    assert "5-minute averages" in grid.warnings[0]
    assert METRIC in grid.warnings[0]


def test_no_averages_are_asked_of_what_may_yet_come_in_raw(httpserver: HTTPServer) -> None:
    server = fake.thanos(httpserver, raw=False)
    now_s = float(np.floor(time.time() / 60) * 60)
    api_grid = source(server).read(now_s + TIMES_S - 700)
    assert not api_grid.values
    assert not any(asked.get("max_source_resolution") == "5m" for asked in server.sent(QUERY))


# -- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead_s", "word"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_server_whose_clock_is_off_is_told_of_once(httpserver: HTTPServer, ahead_s: int, word: str) -> None:
    server = Fake(httpserver, build=fake.PROMETHEUS_2)
    reader = PrometheusSource(settings(server.url), now=lambda: time.time() - ahead_s)
    first, second = (reader.read(TIMES_S) for _ in range(2))
    assert len(first.warnings) == 1
    assert word in first.warnings[0]
    assert not first.incomplete
    assert second.warnings == ()


def test_a_server_whose_clock_agrees_is_no_matter(httpserver: HTTPServer) -> None:
    assert source(Fake(httpserver, build=fake.PROMETHEUS_2)).read(TIMES_S).warnings == ()
