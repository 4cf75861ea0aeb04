"""The small history that the trouble drills share."""

import shutil
from pathlib import Path

import pytest

from healthsvc.simulator import parse_scenario
from tests import servers
from tests.integration.drill import SMALL
from tests.integration.surroundings import simulate


@pytest.fixture(scope="session")
def small_history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recording/ and prometheus/data/; read-only by agreement."""
    if reason := servers.missing("promtool"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("small")
    simulate(parse_scenario(SMALL, "small"), folder)
    return folder


@pytest.fixture
def recording(small_history: Path) -> Path:
    """The small history as a recording."""
    return small_history / "recording"


@pytest.fixture
def stored(small_history: Path, tmp_path: Path) -> Path:
    """A Prometheus folder of this test's own that holds the small history."""
    shutil.copytree(small_history / "prometheus", tmp_path / "prometheus")
    return tmp_path / "prometheus"
