"""Fixtures for all tests: empty real servers, one of each a session."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import servers
from tests.golden_files import golden, pytest_addoption

__all__ = ["golden", "pytest_addoption"]

# A run that decides whether a change lands must not depend on luck; at a desk every run looks for new cases.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def prometheus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A real, empty Prometheus. For one that holds series, use `servers.prometheus(folder, series)`."""
    if reason := servers.missing("prometheus", "promtool"):
        pytest.skip(reason)
    with servers.prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        yield server


@pytest.fixture(scope="session")
def victoria_metrics_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A real, empty VictoriaMetrics."""
    if reason := servers.missing("victoria-metrics"):
        pytest.skip(reason)
    with servers.victoria_metrics(tmp_path_factory.mktemp("victoria_metrics")) as server:
        yield server


@pytest.fixture
def alertmanager_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A real Alertmanager without alerts, fresh for each test."""
    if reason := servers.missing("prometheus-alertmanager"):
        pytest.skip(reason)
    with servers.alertmanager(tmp_path_factory.mktemp("alertmanager")) as server:
        yield server
