"""incidents.csv: every kind has its class, grade and precursor, and the labels reach 30 days past the telemetry."""

import csv
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from healthsvc.simulator import write_recording
from tests.simulator.runs import START_S, STEADY, scenario

FLEET = {"gpus": 64, "nodes_per_rack": 2, "racks_per_loop": 2, "racks_per_feed": 2}  # 8 nodes, 2 loops, 2 feeds
Rows = list[dict[str, str]]
Record = Callable[..., Rows]


def day(text: str) -> float:
    """Days after the start of the run."""
    return (datetime.fromisoformat(text).timestamp() - START_S) / 86_400.0


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The incidents of a run at 300 s, with `gpu` = the row of the GPU where the scope is one."""

    def write(*faults: dict[str, Any], days: float = 6, **changes: Any) -> Rows:
        wanted = scenario(*faults, days=days, step_s=300, **{"fleet": FLEET, "workload": STEADY, **changes})
        folder = write_recording(wanted, tmp_path_factory.mktemp("labels") / "one", 1, START_S)
        with (folder / "gpus.csv").open(encoding="utf-8", newline="") as file:
            rows = {gpu["device_id"]: str(i) for i, gpu in enumerate(csv.DictReader(file))}
        with (folder / "incidents.csv").open(encoding="utf-8", newline="") as file:
            return [{**row, "gpu": rows.get(row["scope"], "")} for row in csv.DictReader(file)]

    return write


@pytest.fixture(scope="module")
def labels(record: Record) -> Rows:
    return record(
        {"kind": "off_bus", "target": 0, "start_day": 3.0, "precursor_hours": 24.0},
        {"kind": "off_bus", "target": 1, "start_day": 3.0, "end_day": 3.5},
        {"kind": "off_bus", "target": 2, "start_day": 1.0, "end_day": 1.5, "again_after_days": 3.0},
        {"kind": "gsp_hang", "target": 3, "start_day": 3.0, "end_day": 3.5},
        {"kind": "recurrent_dbe", "target": 4, "start_day": 1.0, "base_per_year": 2.0},
        {"kind": "sbe_burst", "target": 5, "start_day": 1.0, "hours": 2.0},
        {"kind": "node_fan_fault", "target": "node-002", "start_day": 2.0, "end_day": 4.0, "ramp_hours": 12.0},
        {"kind": "maintenance", "target": "node-003", "start_day": 2.0, "end_day": 2.5},
        {"kind": "decommission", "target": "node-004", "start_day": 4.0},
        {"kind": "app_xids", "target": "node-005", "start_day": 1.0, "hours": 3.0},
        {"kind": "power_cap_change", "target": "node-006", "start_day": 1.0, "end_day": 2.0},
        {"kind": "power_brake", "target": "feed-2", "start_day": 5.0, "end_day": 5.25},
        {"kind": "heat_wave", "target": "fleet", "start_day": 4.5, "end_day": 5.0, "rise_celsius": 3.0},
    )


def of(labels: Rows, kind: str) -> Rows:
    return [label for label in labels if label["scenario"] == kind]


def test_nothing_is_labelled_without_the_fault_that_caused_it(labels: Rows) -> None:
    assert all(label["scenario"] for label in labels)


def test_a_loss_has_a_precursor_only_if_it_was_given_one(labels: Rows) -> None:
    (foretold,) = [x for x in of(labels, "off_bus") if x["gpu"] == "0"]
    (sudden,) = [x for x in of(labels, "off_bus") if x["gpu"] == "1"]
    assert (foretold["class"], foretold["grade"], foretold["precursor"]) == ("device_loss", "T2", "true")
    assert day(foretold["start"]) == 3.0
    assert (sudden["grade"], sudden["precursor"], day(sudden["end"])) == ("T2", "false", 3.5)


def test_a_second_loss_within_a_fortnight_of_the_reboot_is_terminal_and_foreseeable(labels: Rows) -> None:
    first, second = (x for x in of(labels, "off_bus") if x["gpu"] == "2")
    assert (first["grade"], first["precursor"], day(first["end"])) == ("T2", "false", 1.5)
    assert (second["grade"], second["precursor"], day(second["start"]), second["end"]) == ("T1", "true", 4.5, "")


def test_a_hang_is_a_device_loss_until_the_reboot_though_the_gpu_was_never_silent(labels: Rows) -> None:
    (hang,) = of(labels, "gsp_hang")
    assert (hang["class"], hang["grade"], hang["precursor"], hang["note"]) == ("device_loss", "T2", "false", "XID 119")
    assert (hang["gpu"], day(hang["start"]), day(hang["end"])) == ("3", 3.0, 3.5)


def test_the_first_of_recurrent_errors_is_sudden_and_the_others_are_foreseeable(labels: Rows) -> None:
    first, *others = of(labels, "recurrent_dbe")
    assert (first["class"], first["grade"], first["precursor"]) == ("memory", "T2", "false")
    assert others
    assert {(x["class"], x["grade"], x["precursor"]) for x in others} == {("memory", "T2", "true")}


def test_no_gpu_has_two_grades_of_a_class_at_the_same_moment(labels: Rows, record: Record) -> None:
    wear = {"kind": "hbm_wear", "target": 3, "start_day": 1.0, "days_to_failure": 4.0, "remaps": 3}
    rows = labels + record(wear)
    assert "T1" in {row["grade"] for row in of(rows, "hbm_wear")}
    moments = [(row["scope"], row["class"], row["start"]) for row in rows if row["class"] != "none"]
    assert len(moments) == len(set(moments))


def test_a_fan_fault_is_an_incident_of_its_node(labels: Rows) -> None:
    (node,) = [x for x in of(labels, "node_fan_fault") if x["class"] == "throttling"]
    assert (node["scope"], node["grade"], node["precursor"]) == ("node:node-002", "T2", "true")
    assert 2.0 < day(node["start"]) < 2.6
    assert day(node["end"]) == 4.0


def test_a_power_brake_is_an_incident_of_its_feed_and_of_no_gpu(labels: Rows) -> None:
    (brake,) = of(labels, "power_brake")
    assert (brake["scope"], brake["class"], brake["grade"]) == ("power_feed:feed-2", "throttling", "T2")
    assert (day(brake["start"]), day(brake["end"]), brake["precursor"]) == (5.0, 5.25, "false")


def test_maintenance_is_the_operators_and_not_eight_losses(labels: Rows) -> None:
    (work,) = of(labels, "maintenance")
    assert (work["scope"], work["class"], work["grade"]) == ("node:node-003", "maintenance", "")
    assert (work["source"], day(work["start"]), day(work["end"])) == ("operator", 2.0, 2.5)


@pytest.mark.parametrize(
    ("kind", "scope", "start", "end"),
    [
        ("sbe_burst", "GPU-", 1.0, 1.0 + 2 / 24),
        ("app_xids", "node:node-005", 1.0, 1.125),
        ("decommission", "node:node-004", 4.0, None),
        ("power_cap_change", "node:node-006", 1.0, 2.0),
        ("heat_wave", "fleet:all", 4.5, 5.0),
    ],
)
def test_a_decoy_is_labelled_as_nothing(labels: Rows, kind: str, scope: str, start: float, end: float | None) -> None:
    (decoy,) = of(labels, kind)
    assert decoy["scope"].startswith(scope)
    assert (decoy["class"], decoy["grade"], decoy["precursor"]) == ("none", "", "")
    assert day(decoy["start"]) == start
    assert (day(decoy["end"]) if decoy["end"] else None) == (pytest.approx(end, abs=1e-4) if end else None)


def test_a_drift_that_has_not_throttled_yet_is_labelled_at_the_hour_in_which_it_will(record: Record) -> None:
    # 0.060 K/W, 0.97 x 700 W, supply up to 32.6: 1.5 % of power must go at 1.355 times the resistance, ln / ln 1.02.
    physics = {"resistance_kelvin_per_watt": 0.06, "spread_ratio": 0.0, "daily_noise_ratio": 0.0}
    work = {"duty_ratio": 1.0, "job_hours": 240.0, "level_min_ratio": 0.97, "level_max_ratio": 0.97, "noise_ratio": 0.0}
    drift = {"kind": "tim_drift", "target": 3, "start_day": 0.0, "growth_percent_per_day": 2.0}
    projected = record(drift, thermal=physics, workload=work)[0]
    lived = record(drift, thermal=physics, workload=work, days=20)[0]
    assert (projected["class"], projected["grade"], projected["note"]) == ("thermal", "T2", "projected")
    assert projected["precursor"] == "true"
    assert lived["note"] != "projected"
    assert day(projected["start"]) == pytest.approx(15.3, abs=1.0)
    assert day(projected["start"]) == pytest.approx(day(lived["start"]), abs=1.0)


def test_a_drift_repaired_before_it_throttles_or_too_slow_for_30_days_is_no_incident(record: Record) -> None:
    repaired = {"kind": "tim_drift", "target": 3, "start_day": 0.0, "growth_percent_per_day": 2.0, "end_day": 9.0}
    slow = {"kind": "tim_drift", "target": 12, "start_day": 0.0, "growth_percent_per_day": 0.2}
    assert record(repaired, slow) == []


def test_what_comes_as_drawn_after_the_end_is_what_a_longer_run_shows(record: Record) -> None:
    faults = (
        {"kind": "hbm_wear", "target": 3, "start_day": 2.0, "days_to_failure": 12.0, "remaps": 5},
        {"kind": "recurrent_dbe", "target": 12, "start_day": 1.0, "base_per_year": 0.3},
        {"kind": "off_bus", "target": 20, "start_day": 9.0, "end_day": 9.5, "again_after_days": 2.0},
        {"kind": "gsp_hang", "target": 23, "start_day": 8.0, "end_day": 8.5},
        {"kind": "maintenance", "target": "node-004", "start_day": 9.0, "end_day": 9.5},
    )
    smaller = {**FLEET, "gpus": 32}
    short, long = record(*faults, days=4, fleet=smaller), record(*faults, days=14, fleet=smaller)
    told = ("scope", "start", "end", "class", "grade", "precursor", "scenario")
    assert [[x[c] for c in told] for x in short if day(x["start"]) < 14] == [
        [x[c] for c in told] for x in long if day(x["start"]) < 14
    ]
    late = [x for x in short if x["class"] not in ("none", "maintenance") and day(x["start"]) >= 4]
    assert {x["note"] for x in late} == {"projected"}
    assert {x["scenario"] for x in late} == {"hbm_wear", "recurrent_dbe", "off_bus", "gsp_hang"}


def test_a_flow_loss_after_the_end_is_an_incident_of_its_loop(record: Record) -> None:
    loss = {"kind": "loop_flow_loss", "target": "loop-2", "start_day": 10.0, "end_day": 10.5, "ramp_minutes": 60}
    (label,) = record(loss)
    assert (label["scope"], label["class"], label["note"]) == ("cooling_loop:loop-2", "throttling", "projected")
    assert 10.01 < day(label["start"]) < 10.06
    assert (day(label["end"]), label["precursor"]) == (10.5, "true")


def test_the_recording_lists_the_faults_and_how_far_the_labels_reach(tmp_path: Path) -> None:
    crowd = [{"kind": "off_bus", "count": 2, "start_day": [0, 30]}]
    write_recording(scenario(population=crowd, step_s=300), tmp_path / "one", 1, START_S)
    about = json.loads((tmp_path / "one" / "recording.json").read_text("utf-8"))
    assert [fault["kind"] for fault in about["faults"]] == ["off_bus", "off_bus"]
    assert all({"target", "start_day", "end_day", "severity"} <= fault.keys() for fault in about["faults"])
    assert about["healthy_ratio"] == 1 - 2 / 16
    assert about["labels_end"] == "2026-02-05T23:55:00Z"
