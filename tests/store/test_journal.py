"""The journal survives restarts, replaces sets whole, and refuses what it cannot know."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from healthsvc.fleet import Incident
from healthsvc.store import Journal, StoreError, sqlite_url

LOOP = Incident("i1", "cooling_loop", "loop3", "active", "CoolingIncident", "flow", 10.0, ("GPU-a", "GPU-b"), "GPU-b")


def alert(key: str, **changed: Any) -> dict[str, Any]:
    whole = {
        "key": key,
        "labels": {"alertname": "GpuFailurePredicted", "UUID": key},
        "annotations": {"summary": "gleich kaputt: 85 °C"},
        "state": "firing",
        "raised_s": 100.5,
        "last_true_s": 160.0,
        "cleared_s": None,
        "started_wall_s": 1_700_000_000.123,
        "payload": {"held": [1, 2], "end_s": math.inf},
    }
    return {**whole, **changed}


@pytest.fixture
def url(tmp_path: Path) -> Any:
    return sqlite_url(tmp_path / "state with # and ?")


def test_alerts_survive_a_restart(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts([alert("b"), alert("a", state="pending", raised_s=None)])
    with Journal(url) as journal:
        assert journal.load_alerts() == [alert("a", state="pending", raised_s=None), alert("b")]


def test_saving_alerts_replaces_the_whole_set(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts([alert("a"), alert("b")])
        journal.save_alerts([alert("c")])
        assert [row["key"] for row in journal.load_alerts()] == ["c"]
        journal.save_alerts([])
        assert journal.load_alerts() == []


def test_a_save_that_fails_leaves_the_old_set(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts([alert("a")])
        with pytest.raises(StoreError):
            journal.save_alerts([alert("b"), alert("b")])
        assert [row["key"] for row in journal.load_alerts()] == ["a"]


def test_columns_that_have_a_natural_empty_value_may_be_left_out(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts([alert("a"), {"key": "b", "labels": {}, "state": "pending"}])
        assert journal.load_alerts()[1]["payload"] == {}
        assert journal.load_alerts()[1]["cleared_s"] is None


def test_numpy_numbers_and_nan_come_back_as_plain_ones(url: Any) -> None:
    with Journal(url) as journal:
        journal.set_meta("x", {"p": np.float32(0.5), "rows": np.arange(3), "no_sample": math.nan})
        read = journal.get_meta("x")
        assert (read["p"], read["rows"]) == (0.5, [0, 1, 2])
        assert math.isnan(read["no_sample"])


def test_incidents_are_added_or_replaced_by_id(url: Any) -> None:
    other = replace(LOOP, id="i0", layer="rack", domain="r1", first_mover="", onset_s=20.0)
    cleared = replace(LOOP, state="cleared", cleared_s=99.0)
    with Journal(url) as journal:
        journal.save_incidents([LOOP, other])
        journal.save_incidents([cleared])
        journal.save_incidents([])
    with Journal(url) as journal:
        assert journal.load_incidents() == (cleared, other)


def test_meta_keeps_the_last_value_and_knows_what_it_never_had(url: Any) -> None:
    with Journal(url) as journal:
        assert journal.get_meta("backfill", "never") == "never"
        for day in (1, 2):
            journal.set_meta("backfill", {"day": day})
        assert journal.get_meta("backfill") == {"day": 2}
        journal.set_meta("backfill", None)
        assert journal.get_meta("backfill", "never") is None


def test_a_journal_of_newer_software_is_refused_and_left_alone(url: Any) -> None:
    with Journal(url):
        pass
    with sqlite3.connect(url.database) as connection:
        connection.execute("UPDATE schema_version SET version = 2")
    connection.close()
    with pytest.raises(StoreError, match=r"schema 2 .* knows 1\. Upgrade healthsvc"):
        Journal(url)
    assert [p.name for p in Path(url.database).parent.glob("*.corrupt-*")] == []


@pytest.mark.parametrize("damage", ["head", "middle"])
def test_a_damaged_journal_is_set_aside_and_a_fresh_one_begun(url: Any, damage: str) -> None:
    with Journal(url) as journal:
        journal.save_alerts([alert(f"{i:04d}") for i in range(500)])
    path = Path(url.database)
    data = bytearray(path.read_bytes())
    if damage == "head":
        data[:4096] = b"\xff" * 4096
    else:
        data[8192:-4096] = b"\xff" * (len(data) - 12288)
    path.write_bytes(data)
    with capture_logs() as logs, Journal(url) as journal:
        assert journal.load_alerts() == []
        journal.save_alerts([alert("a")])
    assert (path.parent / "journal.sqlite.corrupt-1").exists()
    assert logs[0]["log_level"] == "warning"
    assert "fresh journal" in logs[0]["cure"]
    with Journal(url) as journal:
        assert len(journal.load_alerts()) == 1


def test_a_reader_is_not_kept_waiting_by_a_writer(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts([alert("a")])
        writer = sqlite3.connect(url.database, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM alerts")
        assert len(journal.load_alerts()) == 1
        writer.rollback()
        writer.close()


def test_a_journal_that_cannot_be_opened_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").mkdir()
    with pytest.raises(StoreError, match="unable to open"):
        Journal(sqlite_url(tmp_path))
    assert (tmp_path / "journal.sqlite").is_dir()
