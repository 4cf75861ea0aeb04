"""Answers that are not what they should be: another page, another shape, cut off or without end. Each has its word."""

from collections.abc import Iterator

import numpy as np
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.telemetry.source import SourceError
from tests.telemetry.answers import (
    GPU,
    NAMES,
    QUERY,
    TIMES_S,
    answer,
    is_read,
    json_response,
    queries,
    samples,
    source,
)


@pytest.mark.parametrize("path", [NAMES, QUERY])
def test_a_login_page_is_recognised(httpserver: HTTPServer, path: str) -> None:
    httpserver.expect_request(path).respond_with_data("<!doctype html><title>Sign in</title>", content_type="text/html")
    httpserver.expect_request(NAMES).respond_with_json({"status": "success", "data": ["DCGM_FI_DEV_GPU_TEMP"]})
    with pytest.raises(SourceError, match=r"HTML page.*prometheus\.url"):
        source(httpserver).discover(0, 600)


def test_a_redirect_is_not_followed_with_a_query(server: HTTPServer) -> None:
    server.expect_request(QUERY).respond_with_data("", status=302, headers={"Location": "https://login.example/"})
    with pytest.raises(SourceError, match=r"redirected to https://login\.example/"):
        source(server).discover(0, 600)


@pytest.mark.parametrize(
    "body",
    [
        '{"status":"success","data":{"resultType":"vector","result":[{"metr',
        "",
        "[]",
        '{"status":"success"}',
        '{"status":"success","data":{"resultType":"matrix","result":[]}}',
    ],
)
def test_a_malformed_answer_is_an_error(server: HTTPServer, body: str) -> None:
    server.expect_request(QUERY).respond_with_data(body, content_type="application/json")
    with pytest.raises(SourceError, match="malformed answer"):
        source(server).discover(0, 600)


def test_samples_that_are_no_numbers_are_an_error(server: HTTPServer) -> None:
    def nonsense(request: Request) -> Response:
        return json_response(
            answer("matrix", [{"metric": GPU, "values": [[60, "much"]]}]) if is_read(request) else samples(request)
        )

    server.expect_request(QUERY).respond_with_handler(nonsense)
    with pytest.raises(SourceError, match="no numbers"):
        source(server).read(TIMES_S)


def test_infinities_and_nan_are_no_samples(server: HTTPServer) -> None:
    def odd(request: Request) -> Response:
        values = [[60, "+Inf"], [120, "-Inf"], [180, "NaN"], [240, "4.5e1"]]
        return json_response(
            answer("matrix", [{"metric": GPU, "values": values}]) if is_read(request) else samples(request)
        )

    server.expect_request(QUERY).respond_with_handler(odd)
    (grid,) = source(server).read(TIMES_S).values.values()
    np.testing.assert_array_equal(grid[0, :4], [np.nan, np.nan, np.nan, 45])


def test_an_answer_that_breaks_off_is_told_and_tried_again(server: HTTPServer) -> None:
    """A proxy that cuts answers off announces more than it gives."""

    def cut(request: Request) -> Response:
        whole = json_response(samples(request))
        whole.headers["Content-Length"] = str(len(whole.data) + 100)
        return whole

    server.expect_request(QUERY).respond_with_handler(cut)
    with pytest.raises(SourceError, match=r"broke off after \d+ bytes.*proxy") as failure:
        source(server, attempts=2).discover(0, 600)
    assert not failure.value.permanent
    assert queries(server) == 2


def test_a_list_of_names_without_end_is_cut_off(httpserver: HTTPServer) -> None:
    """prometheus-api-client itself would read it to the last byte."""

    def endless() -> Iterator[bytes]:
        yield b'{"status":"success","data":["'
        for _ in range(100):
            yield b"x" * 2**20

    httpserver.expect_request(NAMES).respond_with_handler(
        lambda _: Response(endless(), content_type="application/json")
    )
    with pytest.raises(SourceError, match="larger than 67108864 bytes"):
        source(httpserver, attempts=1).discover(0, 600)


def test_names_behind_a_login_page_are_recognised(httpserver: HTTPServer) -> None:
    """The library follows the redirect, and the page at its end is no API."""
    httpserver.expect_request(NAMES).respond_with_data("", status=302, headers={"Location": "/login"})
    httpserver.expect_request("/login").respond_with_data("<html>Sign in</html>", content_type="text/html")
    with pytest.raises(SourceError, match=r"HTML page.*bearer_token_file") as failure:
        source(httpserver).discover(0, 600)
    assert failure.value.permanent


@pytest.mark.parametrize("values", ["null", "{}", '"x"', "[[]]", "[[1]]", '[[1,"2",3]]', '[[1,"2"],3]', '[["a","2"]]'])
def test_values_of_another_shape_are_an_error(server: HTTPServer, values: str) -> None:
    body = '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"UUID":"GPU-1"},"values":%s}]}}'

    def odd(request: Request) -> Response:
        return Response(body % values) if is_read(request) else json_response(samples(request))

    server.expect_request(QUERY).respond_with_handler(odd)
    with pytest.raises(SourceError, match="malformed answer"):
        source(server).read(TIMES_S)
