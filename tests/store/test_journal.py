"""The journal survives restarts, replaces sets whole, and refuses what it cannot know."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from healthsvc.fleet import DAY_S, Incident
from healthsvc.store import Journal, StoreError, sqlite_url

LOOP = Incident("i1", "cooling_loop", "loop3", "active", "CoolingIncident", "flow", 10.0, ("GPU-a", "GPU-b"), "GPU-b")


def case(name: str) -> dict[str, Any]:
    return {
        "labels": {"UUID": name},
        "annotations": {"summary": "gleich kaputt: 85 °C"},
        "end_s": math.inf,
        "held": [1],
    }


@pytest.fixture
def url(tmp_path: Path) -> Any:
    return sqlite_url(tmp_path / "state with # and ?")


def test_alerts_survive_a_restart_and_the_empty_key_comes_first(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts({"b": case("b"), "": {"last_s": 1.5}, "a": case("a")})
    with Journal(url) as journal:
        assert list(journal.load_alerts().items()) == [("", {"last_s": 1.5}), ("a", case("a")), ("b", case("b"))]


def test_saving_alerts_replaces_the_whole_set(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts({"a": case("a"), "b": case("b")})
        journal.save_alerts({"c": case("c")})
        assert journal.load_alerts().keys() == {"c"}
        journal.save_alerts({})
        assert journal.load_alerts() == {}


def test_a_save_that_fails_leaves_the_old_set(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts({"a": case("a")})
        with pytest.raises(StoreError):
            journal.save_alerts({"b": case("b"), None: case("c")})  # type: ignore[dict-item]
        assert journal.load_alerts().keys() == {"a"}


def test_numpy_numbers_and_nan_come_back_as_plain_ones(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts({"x": {"p": np.float32(0.5), "rows": np.arange(3), "no_sample": math.nan}})
        read = journal.load_alerts()["x"]
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


def test_only_what_was_never_cleared_is_standing(url: Any) -> None:
    cleared = replace(LOOP, id="i2", state="cleared", cleared_s=99.0)
    predicted = replace(LOOP, id="i3", state="predicted", onset_s=40.0, last_true_s=50.0)
    with Journal(url) as journal:
        journal.save_incidents([predicted, cleared, LOOP])
    with Journal(url) as journal:
        assert journal.standing() == (LOOP, predicted)
        assert journal.standing(not_after_s=49.0) == (LOOP,)


def test_an_incident_is_forgotten_ninety_days_after_it_was_cleared(url: Any) -> None:
    old = replace(LOOP, id="old", state="cleared", onset_s=1.0, cleared_s=5.0)
    late = replace(LOOP, id="late", onset_s=2.0, last_true_s=90 * DAY_S)
    with Journal(url) as journal:
        journal.save_incidents([old, LOOP, late])
        journal.save_incidents([replace(late, last_true_s=90 * DAY_S + 5.0)])
        assert {incident.id for incident in journal.load_incidents()} == {"old", "i1", "late"}
        journal.save_incidents([replace(late, last_true_s=90 * DAY_S + 6.0)])
        assert {incident.id for incident in journal.load_incidents()} == {"i1", "late"}


def test_a_journal_of_the_version_before_is_converted_and_keeps_its_incidents(url: Any) -> None:
    """The tables as version 2 made them."""
    Path(url.database).parent.mkdir(parents=True)
    with sqlite3.connect(url.database) as connection:
        connection.executescript(
            """
            CREATE TABLE schema_version (version INTEGER NOT NULL PRIMARY KEY);
            INSERT INTO schema_version VALUES (2);
            CREATE TABLE incidents (id TEXT NOT NULL PRIMARY KEY, layer TEXT NOT NULL, domain TEXT NOT NULL,
                state TEXT NOT NULL, alertname TEXT NOT NULL, cause TEXT NOT NULL, onset_s FLOAT NOT NULL,
                cleared_s FLOAT, members TEXT NOT NULL, first_mover TEXT NOT NULL, last_true_s FLOAT NOT NULL);
            INSERT INTO incidents VALUES ('i1', 'cooling_loop', 'loop3', 'active', 'CoolingIncident', 'flow', 10.0,
                NULL, '["GPU-a", "GPU-b"]', 'GPU-b', 0.0);
            """
        )
    connection.close()
    later = replace(LOOP, id="i2", onset_s=20.0, kind="flow", began_s=5.0, evidence="the flow moved first")
    with Journal(url) as journal:
        assert journal.load_incidents() == (LOOP,)
        journal.save_incidents([later])
    with Journal(url) as journal:
        assert journal.load_incidents() == (LOOP, later)


@pytest.mark.parametrize("version", [1, 4])
def test_a_journal_with_other_tables_is_refused_and_left_alone(url: Any, version: int) -> None:
    with Journal(url):
        pass
    with sqlite3.connect(url.database) as connection:
        connection.execute("UPDATE schema_version SET version = ?", (version,))
    connection.close()
    with pytest.raises(StoreError, match=rf"schema {version} .* knows 3\. Run the version that wrote it"):
        Journal(url)
    assert [p.name for p in Path(url.database).parent.glob("*.corrupt-*")] == []


@pytest.mark.parametrize("damage", ["head", "middle"])
def test_a_damaged_journal_is_set_aside_and_a_fresh_one_begun(url: Any, damage: str) -> None:
    with Journal(url) as journal:
        journal.save_alerts({f"{i:04d}": case("a") for i in range(500)})
    path = Path(url.database)
    data = bytearray(path.read_bytes())
    if damage == "head":
        data[:4096] = b"\xff" * 4096
    else:
        data[8192:-4096] = b"\xff" * (len(data) - 12288)
    path.write_bytes(data)
    with capture_logs() as logs, Journal(url) as journal:
        assert journal.load_alerts() == {}
        journal.save_alerts({"a": case("a")})
    assert (path.parent / "journal.sqlite.corrupt-1").exists()
    assert logs[0]["log_level"] == "warning"
    assert "fresh journal" in logs[0]["cure"]
    with Journal(url) as journal:
        assert len(journal.load_alerts()) == 1


def test_a_reader_is_not_kept_waiting_by_a_writer(url: Any) -> None:
    with Journal(url) as journal:
        journal.save_alerts({"a": case("a")})
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
