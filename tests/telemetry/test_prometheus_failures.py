"""A server that is down, busy, behind a login or broken gets a clear word, and no more requests than it can bear."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.config import HttpClientSettings, PrometheusSettings
from healthsvc.fleet import Signal
from healthsvc.telemetry.prometheus import PrometheusSource
from healthsvc.telemetry.server.http_session import Exchanger, build_session
from healthsvc.telemetry.source import SourceError
from tests.servers import free_port
from tests.telemetry.answers import (
    GPU,
    NAMES,
    QUERY,
    TIMES_S,
    answer,
    is_read,
    json_response,
    queries,
    reading,
    samples,
    source,
)


def test_a_server_that_is_down_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SourceError, match=r"no connection.*correct prometheus\.url") as failure:
        PrometheusSource(PrometheusSettings.model_validate({"url": url, "attempts": 1})).read(TIMES_S)
    assert url in failure.value.where


def test_a_source_without_url_names_the_setting() -> None:
    with pytest.raises(SourceError, match=r"prometheus\.url.*HEALTHSVC_PROMETHEUS_URL"):
        PrometheusSource(PrometheusSettings())


@pytest.mark.parametrize(
    ("status", "cure", "permanent"),
    [
        (400, "prometheus.selector", True),
        (401, "prometheus.bearer_token_file", True),
        (403, "basic_user", True),
        (404, "base path", True),
        (422, "prometheus.selector", True),
        (429, "prometheus.concurrency", False),
        (500, "Wait until", False),
        (503, "Wait until", False),
    ],
)
@pytest.mark.parametrize("path", [NAMES, QUERY])
def test_a_refusal_names_the_cure(httpserver: HTTPServer, path: str, status: int, cure: str, permanent: bool) -> None:
    refused = {"status": "error", "errorType": "execution", "error": "not today"}
    httpserver.expect_request(path).respond_with_json(refused, status=status)
    httpserver.expect_request(NAMES).respond_with_json({"status": "success", "data": ["DCGM_FI_DEV_GPU_TEMP"]})
    with pytest.raises(SourceError, match="not today") as failure:
        source(httpserver, attempts=1).discover(0, 600)
    assert f"HTTP {status}" in failure.value.what
    assert cure in failure.value.cure
    assert failure.value.permanent is permanent


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_cannot_succeed_is_not_tried_again(server: HTTPServer, status: int) -> None:
    server.expect_request(QUERY).respond_with_data("no", status=status)
    with pytest.raises(SourceError):
        source(server, attempts=5).discover(0, 600)
    assert queries(server) == 1


def test_a_busy_server_is_asked_again_when_it_said(server: HTTPServer) -> None:
    server.expect_oneshot_request(QUERY).respond_with_data("slow down", status=429, headers={"Retry-After": "1"})
    server.expect_request(QUERY).respond_with_handler(lambda request: json_response(samples(request)))
    began = time.monotonic()
    assert [gpu.device_id for gpu in source(server).discover(0, 600)] == ["GPU-1"]
    assert time.monotonic() - began >= 1
    assert queries(server) == 2


def test_a_server_that_asks_for_an_hour_is_left_alone(server: HTTPServer) -> None:
    server.expect_request(QUERY).respond_with_data("later", status=503, headers={"Retry-After": "3600"})
    with pytest.raises(SourceError, match="HTTP 503"):
        source(server, attempts=5).discover(0, 600)
    assert queries(server) == 1


def test_a_slow_server_is_not_waited_for(server: HTTPServer) -> None:
    def slow(request: Request) -> Response:
        time.sleep(1.5)
        return json_response(samples(request))

    server.expect_request(QUERY).respond_with_handler(slow)
    with pytest.raises(SourceError, match=r"no answer in time.*prometheus\.timeout_s"):
        source(server, timeout_s=0.5, attempts=1).discover(0, 600)


def test_a_trickle_is_not_waited_for(httpserver: HTTPServer) -> None:
    def drops() -> Iterator[bytes]:
        for _ in range(40):
            time.sleep(0.1)
            yield b" "

    httpserver.expect_request("/").respond_with_handler(lambda _: Response(drops()))
    with pytest.raises(requests.Timeout):
        Exchanger(build_session(HttpClientSettings()), 0.5, 1, 1000)("GET", httpserver.url_for("/"))


def test_a_flood_is_cut_off(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/").respond_with_data(b"x" * 100_000)
    with pytest.raises(requests.RequestException, match="larger than 1000 bytes"):
        Exchanger(build_session(HttpClientSettings()), 5, 1, 1000)("GET", httpserver.url_for("/"))


def test_warnings_and_partial_answers_are_kept(server: HTTPServer) -> None:
    def partial(request: Request) -> Response:
        return json_response({**samples(request), "warnings": ["store gone"], "infos": ["a hint"], "isPartial": True})

    server.expect_request(QUERY).respond_with_handler(partial)
    grid = source(server).read(TIMES_S)
    assert grid.warnings == ("store gone", "the server says that its answer is partial")
    assert grid.incomplete
    assert grid.samples == 10


def test_a_partial_discovery_is_told_with_the_next_grid_and_once(server: HTTPServer) -> None:
    def partial(request: Request) -> Response:
        warnings = [] if is_read(request) else ["store gone"]
        return json_response({**samples(request), "warnings": warnings})

    server.expect_request(QUERY).respond_with_handler(partial)
    assert source(server).read(TIMES_S).warnings == ("store gone",)
    apart = source(server)
    gpus = apart.discover(0, 600)
    assert [apart.read(TIMES_S, gpus).warnings for _ in range(2)] == [("store gone",), ()]


def test_a_partial_answer_to_which_labels_are_newest_is_told(server: HTTPServer) -> None:
    def renamed(request: Request) -> Response:
        query = request.form["query"]
        if "timestamp(" in query:
            told = [reading({**GPU, "Hostname": name}, at) for name, at in (("n1", "60"), ("n2", "9"))]
            return json_response(answer("vector", told, warnings=["half the stores"]))
        if "group by" in query:
            told = [reading({**GPU, "Hostname": name}, "1") for name in ("n1", "n2")]
            return json_response(answer("vector", told))
        return json_response(samples(request))

    server.expect_request(QUERY).respond_with_handler(renamed)
    grid = source(server).read(TIMES_S)
    assert [gpu.hostname for gpu in grid.gpus] == ["n1"]
    assert grid.warnings == ("half the stores",)


def test_a_partial_answer_to_the_span_is_told(server: HTTPServer) -> None:
    def edges(request: Request) -> Response:
        if "group by" in request.form["query"] or "_over_time" not in request.form["query"]:
            return json_response(answer("vector", [{"metric": GPU, "value": [600, "600"]}]))
        return json_response(answer("vector", [{"metric": {}, "value": [600, "300"]}], warnings=["no old blocks"]))

    server.expect_request(QUERY).respond_with_handler(edges)
    reader = source(server)
    assert reader.span() == (300, 300)
    server.clear()
    server.expect_request(NAMES).respond_with_json({"status": "success", "data": ["DCGM_FI_DEV_GPU_TEMP"]})
    server.expect_request(QUERY).respond_with_handler(lambda request: json_response(samples(request)))
    assert reader.read(TIMES_S).warnings == ("no old blocks",)


def test_too_many_samples_halves_the_question(server: HTTPServer) -> None:
    def narrow(request: Request) -> Response:
        window = int(request.form["query"].rpartition("[")[2].removesuffix("s]")) if is_read(request) else 0
        if window <= 180:
            return json_response(samples(request))
        error = "query processing would load too many samples into memory in query execution"
        refused = json_response({"status": "error", "errorType": "execution", "error": error})
        refused.status_code = 422
        return refused

    server.expect_request(QUERY).respond_with_handler(narrow)
    (grid,) = source(server).read(TIMES_S).values.values()
    np.testing.assert_array_equal(grid, np.full((1, 10), 50.0))


def test_queries_are_posted_as_a_form_and_uncompressed(server: HTTPServer) -> None:
    server.expect_request(QUERY, method="POST").respond_with_handler(lambda request: json_response(samples(request)))
    source(server).read(TIMES_S)
    sent = [request for request, _ in server.log if request.path == QUERY]
    assert {request.query_string for request in sent} == {b""}
    assert {request.headers["Accept-Encoding"] for request in sent} == {"identity"}
    assert sent[-1].form["query"] == "DCGM_FI_DEV_GPU_TEMP[600s]"
    assert len(sent) == 2


def test_a_rotated_token_is_used_at_once(server: HTTPServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    server.expect_request(QUERY).respond_with_handler(lambda request: json_response(samples(request)))
    reader = source(server, bearer_token_file=str(token), headers={"X-Scope-OrgID": "team-a"})
    for word in ("first\n", "second\n"):
        token.write_text(word)
        reader.discover(0, 600)
        sent = server.log[-1][0].headers
        assert (sent["Authorization"], sent["X-Scope-OrgID"]) == (f"Bearer {word.strip()}", "team-a")
    assert server.log[0][0].headers["Authorization"] == "Bearer first"


def test_a_missing_token_file_is_named(server: HTTPServer, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"bearer_token_file = .*/absent") as failure:
        source(server, bearer_token_file=str(tmp_path / "absent")).discover(0, 600)
    assert failure.value.permanent


@pytest.mark.parametrize("by_file", [True, False])
def test_basic_authentication_reaches_the_server(httpserver: HTTPServer, tmp_path: Path, by_file: bool) -> None:
    (tmp_path / "password").write_text("sésame\n")
    given = {"basic_password_file": str(tmp_path / "password")} if by_file else {"basic_password": "sésame"}
    httpserver.expect_request("/").respond_with_data("ok")
    session = build_session(HttpClientSettings.model_validate({"basic_user": "ops", **given}))
    Exchanger(session, 5, 1, 1000)("GET", httpserver.url_for("/"))
    authorization = httpserver.log[0][0].authorization
    assert authorization is not None
    assert (authorization.username, authorization.password) == ("ops", "sésame")


def test_a_request_without_timeout_gets_one(httpserver: HTTPServer) -> None:
    def slow(_: Request) -> Response:
        time.sleep(1)
        return Response("late")

    httpserver.expect_request("/").respond_with_handler(slow)
    with pytest.raises(requests.Timeout):
        build_session(HttpClientSettings(timeout_s=0.2)).get(httpserver.url_for("/"))


@pytest.mark.parametrize(("whole", "told"), [(True, 79.0), (False, 0.0)])
def test_a_count_that_a_partial_answer_may_have_hidden_is_not_taken_for_new(
    httpserver: HTTPServer, whole: bool, told: float
) -> None:
    names = ["DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_XID_ERRORS_TOTAL"]
    httpserver.expect_request(NAMES).respond_with_json({"status": "success", "data": names})
    reads = {"so far": 1}

    def respond(request: Request) -> Response:
        if "XID" not in request.form["query"] or not is_read(request):
            return json_response(samples(request))
        counted = [{"metric": {**GPU, "xid": "79"}, "values": [[60 * reads["so far"], "1"]]}]
        hidden = reads["so far"] == 1
        return json_response(answer("matrix", [] if hidden else counted, isPartial=hidden and not whole))

    httpserver.expect_request(QUERY).respond_with_handler(respond)
    from_server = source(httpserver)
    assert from_server.read(TIMES_S[:1]).incomplete is not whole
    reads["so far"] = 2
    assert from_server.read(TIMES_S[1:2]).values[Signal.XID].tolist() == [[told]]
