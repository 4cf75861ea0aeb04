"""Fixtures of this room."""

import pytest
from pytest_httpserver import HTTPServer

from tests.telemetry.answers import NAMES


@pytest.fixture
def server(httpserver: HTTPServer) -> HTTPServer:
    """Knows one metric; what a query gets is up to the test."""
    httpserver.expect_request(NAMES).respond_with_json({"status": "success", "data": ["DCGM_FI_DEV_GPU_TEMP"]})
    return httpserver
