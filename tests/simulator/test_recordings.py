"""The folder that a run leaves behind: whole or absent, the same for the same seed, with true labels."""

import csv
import hashlib
import json
from pathlib import Path

import pytest

from healthsvc.simulator import Scenario, ScenarioError, write_recording
from healthsvc.simulator.writer import FORMAT_VERSION, GPU_COLUMNS
from healthsvc.telemetry import recorded
from tests.simulator.runs import START_S, STEADY, scenario

EVERYTHING = (
    {"kind": "tim_drift", "target": 3, "start_day": 0.1, "growth_percent_per_day": 18.0},
    {"kind": "hbm_wear", "target": 4, "start_day": 0.1, "days_to_failure": 2.5, "remaps": 3, "reset_after_hours": 2},
    {"kind": "sudden_dbe", "target": 12, "start_day": 2.0},
    {"kind": "off_bus", "target": 13, "start_day": 1.0, "end_day": 1.5},
    {"kind": "loop_flow_loss", "target": "loop-2", "start_day": 2.0, "end_day": 2.25, "ramp_minutes": 45},
    {"kind": "constant_hot", "target": 14, "start_day": 0.0},
    {"kind": "workload_step", "target": "node-002", "start_day": 1.0, "step_percent": 10.0},
)


@pytest.fixture(scope="module")
def eventful() -> Scenario:
    return scenario(*EVERYTHING, days=3, workload=STEADY)


@pytest.fixture(scope="module")
def folder(eventful: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(eventful, tmp_path_factory.mktemp("recordings") / "one", 1, START_S)


def digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def incidents(folder: Path, failure_class: str) -> list[dict[str, str]]:
    with (folder / "incidents.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["class"] == failure_class]


def device(folder: Path, row: int) -> str:
    with (folder / "gpus.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))[row]["device_id"]


def test_the_same_seed_writes_the_same_bytes(eventful: Scenario, folder: Path, tmp_path: Path) -> None:
    again = write_recording(eventful, tmp_path / "again", 1, START_S)
    other = write_recording(eventful, tmp_path / "other", 2, START_S)
    assert digests(again) == digests(folder)
    assert digests(other)["gpus.csv"] != digests(folder)["gpus.csv"]


def test_writer_and_reader_speak_of_the_same_format(folder: Path) -> None:
    assert recorded.FORMAT_VERSION == FORMAT_VERSION
    assert recorded.GPU_COLUMNS == GPU_COLUMNS
    about = json.loads((folder / "recording.json").read_text("utf-8"))
    assert (about["format"], about["seed"], about["step_s"]) == (FORMAT_VERSION, 1, 60)
    assert (about["start"], about["end"]) == ("2026-01-05T00:00:00Z", "2026-01-07T23:59:00Z")


def test_a_folder_with_something_in_it_is_left_alone(eventful: Scenario, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        write_recording(eventful, tmp_path, 1, START_S)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


def test_a_run_without_a_start_is_refused_with_the_cure(eventful: Scenario, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="add start = 2026"):
        write_recording(eventful, tmp_path / "one", 1)


def test_an_interrupted_run_leaves_nothing(eventful: Scenario, tmp_path: Path) -> None:
    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_recording(eventful, tmp_path / "one", 1, START_S, tmp_path / "text.om", stop)
    assert list(tmp_path.iterdir()) == []


def test_progress_ends_at_one(tmp_path: Path) -> None:
    heard: list[float] = []
    write_recording(scenario(days=2), tmp_path / "one", 1, START_S, progress=heard.append)
    assert heard == [0.5, 1.0]


def test_a_thermal_incident_begins_when_the_dose_is_reached_and_has_a_precursor(folder: Path) -> None:
    (label,) = incidents(folder, "thermal")
    assert label["scope"] == device(folder, 3)
    assert (label["grade"], label["scenario"], label["precursor"]) == ("T2", "tim_drift", "true")
    assert "2026-01-06T02:24:00Z" < label["start"] < "2026-01-07T12:00:00Z"
    assert label["end"] == ""


def test_memory_incidents_are_graded_and_end_with_the_reset(folder: Path) -> None:
    worn = [x for x in incidents(folder, "memory") if x["scope"] == device(folder, 4)]
    assert {x["grade"] for x in worn} == {"T1", "T2"}
    assert next(x for x in worn if x["grade"] == "T1")["start"] == "2026-01-07T14:24:00Z"
    assert all(x["precursor"] == "true" for x in worn if x["grade"] == "T1")
    (sudden,) = [x for x in incidents(folder, "memory") if x["scope"] == device(folder, 12)]
    assert (sudden["start"], sudden["end"], sudden["precursor"]) == ("2026-01-07T00:00:00Z", "", "false")


def test_a_lost_gpu_is_an_incident_from_its_last_word_to_its_return(folder: Path) -> None:
    (label,) = incidents(folder, "device_loss")
    assert (label["start"], label["end"]) == ("2026-01-06T00:00:00Z", "2026-01-06T12:00:00Z")
    assert (label["scope"], label["grade"], label["precursor"]) == (device(folder, 13), "T2", "false")


def test_a_throttling_loop_is_one_incident_of_the_loop_and_none_of_its_gpus(folder: Path) -> None:
    (label,) = incidents(folder, "throttling")
    assert (label["scope"], label["grade"], label["precursor"]) == ("cooling_loop:loop-2", "T2", "true")
    assert "2026-01-07T00:15:00Z" < label["start"] < "2026-01-07T01:00:00Z"
    assert label["end"] == "2026-01-07T06:00:00Z"


def test_decoys_are_labelled_as_nothing(folder: Path) -> None:
    hot, step = incidents(folder, "none")
    assert (hot["scope"], hot["scenario"], hot["grade"]) == (device(folder, 14), "constant_hot", "")
    assert (step["scope"], step["scenario"], step["start"]) == (
        "node:node-002",
        "workload_step",
        "2026-01-06T00:00:00Z",
    )
