"""The tiny recordings, written once a session."""

from pathlib import Path

import pytest

from healthsvc.features.daily import definitions
from healthsvc.store import Ledger
from healthsvc.telemetry.recorded import RecordedSource
from tests.engine.recordings import miss_scrapes, write_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RecordedSource:
    """Ten days of eight GPUs."""
    return RecordedSource(write_tiny(tmp_path_factory.mktemp("tiny") / "recording"))


@pytest.fixture(scope="session")
def patchy(tmp_path_factory: pytest.TempPathFactory) -> RecordedSource:
    """The same fleet, every seventh sample missed."""
    folder = write_tiny(tmp_path_factory.mktemp("patchy") / "recording")
    miss_scrapes(folder, 0.15)
    return RecordedSource(folder)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """An empty ledger."""
    return Ledger(tmp_path / "state", definitions())
