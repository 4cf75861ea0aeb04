"""The command line: answers at once, prints for people or for machines, and says what is wrong in one line."""

import csv
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from healthsvc import __version__
from healthsvc.cli import app
from healthsvc.cli.backtesting import blocks_to_test, hours, share
from healthsvc.cli.serving import demo_of
from healthsvc.config import load_settings
from tests.engine.recordings import SCENARIO, write_tiny

SECRET = "hunter2"  # noqa: S105
DEVICES, AT = 8, "2026-01-14T12:00:00Z"
OPTIONS = {
    "serve": ("--recorded", "--replay-from", "--replay-speed", "--alertmanager-url", "--port"),
    "train": ("--prometheus-url", "--recorded", "--state-dir", "--at", "--format"),
    "score": ("--prometheus-url", "--recorded", "--state-dir", "--at", "--limit", "--format"),
    "doctor": ("--prometheus-url", "--recorded", "--at", "--hours", "--format"),
    "import": ("--out", "--step", "--timezone", "--hostname", "--columns", "--format"),
    "backtest": ("--incidents", "--recorded", "--test-from", "--horizon-days", "--jobs", "--fresh", "--format"),
    "simulate": ("--out", "--scenario", "--seed", "--gpus", "--days", "--start", "--openmetrics"),
    "check-config": ("--config", "--format"),
    "version": (),
}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny recording and, after the first score, its state."""
    folder = tmp_path_factory.mktemp("workplace")
    write_tiny(folder / "recording")
    (folder / "tiny.toml").write_text(SCENARIO)
    return folder


@dataclass(frozen=True)
class Answer:
    """What a command printed and how it ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command points the logs at its own stderr."""
    yield
    structlog.reset_defaults()


def run(folder: Path, *arguments: str, **variables: str) -> Answer:
    """The command in `folder`, on a terminal of 100 columns."""
    ours = {name: None for name in os.environ if name.startswith("HEALTHSVC_")}
    shown: dict[str, str | None] = {"COLUMNS": "100", "TERM": "dumb", "HEALTHSVC_CYCLE_STEP_S": "300"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        found = CliRunner().invoke(app, arguments, env={**ours, **shown, **variables}, prog_name="healthsvc")
    finally:
        os.chdir(before)
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return Answer(found.exit_code, found.stdout, found.stderr)


def scored(folder: Path, *arguments: str) -> Answer:
    return run(folder, "score", "--recorded", "recording", "--state-dir", "state", *arguments)


def one_line(answer: Answer) -> str:
    """The error of a command that could not run."""
    assert answer.returncode == 2, answer.stderr
    assert answer.stdout == ""
    lines = [line for line in answer.stderr.splitlines() if line]
    assert len(lines) == 1, answer.stderr
    assert "Traceback" not in answer.stderr
    return lines[0]


# -- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", OPTIONS)
def test_help_answers_at_once_and_names_the_options(command: str, tmp_path: Path) -> None:
    """Measured in processor time: what else the machine does is none of its business."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = subprocess.run(
        [sys.executable, "-m", "healthsvc", command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100", "TERM": "dumb", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5
    for option in (*OPTIONS[command], "--help"):
        assert option in answer.stdout


def test_help_without_a_command_lists_them_all(tmp_path: Path) -> None:
    answer = run(tmp_path, "--help")
    assert answer.returncode == 0
    for command in OPTIONS:
        assert command in answer.stdout


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert run(tmp_path, "version").stdout.strip() == __version__


# -- simulate ---------------------------------------------------------------------------------------------------------


def test_a_simulated_recording_is_a_folder_that_can_be_scored(workplace: Path) -> None:
    arguments = ("--scenario", "tiny.toml", "--seed", "1")
    answer = run(workplace, "simulate", "--out", "again", *arguments)
    assert answer.returncode == 0, answer.stderr
    assert "healthsvc serve --recorded again" in answer.stdout
    names = {path.name for path in (workplace / "again").iterdir()}
    assert names >= {"recording.json", "gpus.csv", "topology.csv", "incidents.csv", "telemetry", "environment"}
    gpus = (workplace / "again" / "gpus.csv").read_text()
    assert gpus == (workplace / "recording" / "gpus.csv").read_text()
    assert "not empty" in one_line(run(workplace, "simulate", "--out", "again", *arguments))


def test_a_scenario_that_cannot_be_simulated_is_told_with_its_key(workplace: Path) -> None:
    (workplace / "wrong.toml").write_text(SCENARIO.replace("gpus_per_node = 4", "gpus_per_nod = 4"))
    told = one_line(run(workplace, "simulate", "--out", "wrong", "--scenario", "wrong.toml"))
    assert "fleet.gpus_per_nod = 4: no such key; remove it" in told
    assert not (workplace / "wrong").exists()
    assert "no/such.toml" in one_line(run(workplace, "simulate", "--out", "x", "--scenario", "no/such.toml"))


# -- score and train --------------------------------------------------------------------------------------------------


def test_a_score_for_machines_holds_everything_and_findings_are_the_exit_code(workplace: Path) -> None:
    answer = scored(workplace, "--at", AT, "--format", "json")
    assert answer.returncode == 1, answer.stderr  # rows were remapped and one GPU is gone: there is something to see
    rows = json.loads(answer.stdout)
    assert len(rows) == DEVICES
    assert list(rows[0]) == [
        "gpu",
        "hostname",
        "index",
        "band",
        "risk_24h",
        "risk_7d",
        "risk_30d",
        "coverage",
        "reason",
        "action",
    ]
    lost = next(row for row in rows if (row["hostname"], row["index"]) == ("node-001", "2"))
    assert lost["band"] == "critical"
    assert lost["reason"].startswith("Lost: no sample for ")
    for row in rows:
        assert row["risk_24h"] <= row["risk_7d"] <= row["risk_30d"]
        assert (row["band"] == "healthy") == (row["reason"] == "")
    assert rows[-1]["band"] == "healthy"


def test_a_score_as_csv_has_the_same_rows(workplace: Path) -> None:
    wanted = json.loads(scored(workplace, "--at", AT, "--format", "json", "--limit", "3").stdout)
    answer = scored(workplace, "--at", AT, "--format", "csv", "--limit", "3")
    found = list(csv.DictReader(io.StringIO(answer.stdout)))
    assert [row["gpu"] for row in found] == [row["gpu"] for row in wanted]
    assert found[0].keys() == wanted[0].keys()
    assert float(found[0]["risk_7d"]) == wanted[0]["risk_7d"]


def test_a_score_for_people_fits_a_hundred_columns(workplace: Path) -> None:
    answer = scored(workplace, "--at", AT)
    lines = answer.stdout.splitlines()
    assert answer.returncode == 1
    assert max(map(len, lines)) <= 100
    assert lines[0].strip() == f"Fleet at {AT}"
    heading = next(line for line in lines if "band" in line)
    for name in ("gpu", "risk 7d", "coverage", "reason", "action"):
        assert name in heading
    (lost,) = (line for line in lines if "node-001/2" in line)  # on one line, not folded
    assert "critical" in lost
    assert " %" in lost
    assert "GPU-" not in answer.stdout


def test_a_calm_fleet_ends_with_zero(workplace: Path) -> None:
    answer = scored(workplace, "--at", "2026-01-06T00:30:00Z", "--format", "json")
    rows = json.loads(answer.stdout)
    assert (answer.returncode, {row["band"] for row in rows}) == (0, {"healthy"}), answer.stderr


def test_training_says_what_was_learned(workplace: Path) -> None:
    answer = run(
        workplace, "train", "--recorded", "recording", "--state-dir", "trained", "--at", AT, "--format", "json"
    )
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)
    assert {row["forecaster"] for row in rows} == {"thermal_trend", "ecc_growth", "device_loss", "throttling_cascade"}
    assert {row["gpus"] for row in rows} == {DEVICES}
    assert {row["as_of"] for row in rows} == {AT}


def test_the_source_that_is_asked_for_outranks_one_in_the_environment(workplace: Path) -> None:
    arguments = ("score", "--recorded", "recording", "--state-dir", "state", "--at", AT, "--format", "json")
    answer = run(workplace, *arguments, HEALTHSVC_PROMETHEUS_URL="http://localhost:1")
    assert answer.returncode == 1, answer.stderr
    assert len(json.loads(answer.stdout)) == DEVICES


# -- serve ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, Path("elsewhere")])
def test_the_demo_keeps_its_state_apart_unless_a_folder_was_given(
    given: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "var" / "demo" / "recording").mkdir(parents=True)
    (tmp_path / "var" / "demo" / "recording" / "recording.json").write_text("{}")  # simulated before
    settings, from_s = demo_of(load_settings(store={"directory": given or "var/healthsvc"}), given)
    assert settings.store.directory == (given or Path("var/demo/state"))
    assert settings.recorded.directory == Path("var/demo/recording")
    assert datetime.fromtimestamp(from_s, UTC).hour == 0


# -- backtest ---------------------------------------------------------------------------------------------------------

TESTED = ("backtest", "--recorded", "recording", "--test-from", "2026-01-13T18:00:00Z", "--end", "2026-01-14T12:00:00Z")


@pytest.fixture(scope="module")
def backtested(workplace: Path) -> dict[str, Answer]:
    """The same back-test in every style; the second and third find what the first has rehearsed."""
    labels = ("--incidents", "recording/incidents.csv", "--state-dir", "tested", "--jobs", "1")
    return {style: run(workplace, *TESTED, *labels, "--format", style) for style in ("json", "table", "csv")}


def test_a_back_test_for_machines_holds_every_alert_and_every_threshold(backtested: dict[str, Answer]) -> None:
    answer = backtested["json"]
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert told["title"].startswith("Back-test 2026-01-13T18:00:00Z to 2026-01-14T12:00:00Z: 1 test block(s), not")
    assert [fold["test"] for fold in told["folds"]] == [["2026-01-13T18:00:00Z", "2026-01-14T12:00:00Z"]]
    ours, *baselines = told["evaluations"]
    assert (ours["name"], len(baselines) >= 3) == ("healthsvc", True)
    assert {"throttling", "device_loss"} <= {alert["class"] for alert in ours["alerts"]}
    assert ours["known_until"] > ours["window"][1]  # the recording says how far its truth goes


def test_a_back_test_for_people_has_a_row_a_class_and_one_a_baseline(backtested: dict[str, Answer]) -> None:
    answer = backtested["table"]
    assert answer.returncode == 0, answer.stderr
    lines = [line.rstrip() for line in answer.stdout.splitlines()]
    assert max(map(len, lines)) <= 130
    assert lines[0].strip().startswith("Back-test 2026-01-13T18:00:00Z")
    for row in ("healthsvc ", "all GPU", "b5 random, as many alerts", "throttling"):
        assert any(row in line for line in lines), row
    assert "caught: events foreseen with at least 15 min to act" in answer.stdout


def test_a_back_test_as_csv_has_a_row_for_every_class_grade_and_judge(backtested: dict[str, Answer]) -> None:
    answer = backtested["csv"]
    rows = list(csv.DictReader(io.StringIO(answer.stdout)))
    judges = {evaluation["name"] for evaluation in json.loads(backtested["json"].stdout)["evaluations"]}
    metrics = [m for e in json.loads(backtested["json"].stdout)["evaluations"] for m in e["metrics"]]
    assert len(rows) == len(metrics)
    assert {"class", "grade", "precision_ratio", "recall_n", "false_alerts_upper_per_1000_gpu_months"} <= rows[0].keys()
    assert len(judges) >= 4


@pytest.mark.parametrize(("days", "train", "blocks"), [(20, 60, 1), (180, 30, 3), (180, 60, 2)])
def test_a_history_long_enough_is_tested_at_rolling_origins(days: int, train: int, blocks: int) -> None:
    folds = blocks_to_test(0.0, days * 86_400.0, 7.0, train, None)
    assert len(folds) == blocks
    assert {fold.label for fold in folds} == {"not cross-validated" if blocks == 1 else "rolling origin"}
    assert folds[-1].test[1] == days * 86_400.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(float("nan"), "-"), (900.0, "0.2 h"), (35_000.0, "9.7 h"), (360_000.0, "100 h")]
)
def test_a_lead_is_said_in_hours(seconds: float, text: str) -> None:
    assert hours(seconds) == text


def test_a_share_says_of_how_many_and_is_nothing_of_none() -> None:
    assert share(0.333, 3) == "33% of 3"
    assert share(float("nan"), 0) == "-"


# -- what cannot run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("score",), "prometheus.url is not set: give --prometheus-url"),
        (("score", "--recorded", "no/such"), "no such folder"),
        (("score", "--recorded", "recording", "--at", "yesterday"), "--at = 'yesterday': not a time; write it like"),
        (("score", "--config", "no.toml"), "--config no.toml: no such file"),
        (("serve", "--recorded", "recording"), "--recorded needs --replay-from"),
        (
            ("serve", "--prometheus-url", "http://localhost:1", "--replay-speed", "5"),
            "--replay-speed 5: nothing is replayed; give --replay-from, or drop it",
        ),
        (("backtest", "--recorded", "recording", "--incidents", "no.csv"), "no.csv: No such file or directory; give"),
        (
            ("backtest", "--recorded", "recording"),
            "2026-01-05T00:00:00Z to 2026-01-14T23:55:00Z: a history of 10 d is too short",
        ),
        (
            ("backtest", "--recorded", "recording", "--test-from", "2026-02-01"),
            "--test-from = 2026-02-01T00:00:00Z: not within the history",
        ),
        (("train", "--prometheus-url", "prometheus:9090"), "prometheus.url = 'prometheus:9090': URL scheme"),
        (("check-config", "--config", "broken.toml"), "broken.toml: Expected ']'"),
    ],
)
def test_what_cannot_run_is_told_in_one_line(workplace: Path, arguments: tuple[str, ...], told: str) -> None:
    (workplace / "broken.toml").write_text("[cycle")
    assert told in one_line(run(workplace, *arguments))


@pytest.mark.parametrize("arguments", [("scoer",), ("score", "--fromat", "json"), ("score", "--format", "xml")])
def test_a_misspelt_command_or_option_is_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    answer = run(tmp_path, *arguments)
    assert answer.returncode == 2
    assert arguments[-1] in answer.stderr or arguments[1] in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_folder_that_cannot_be_written_is_told_in_one_line(workplace: Path) -> None:
    (workplace / "in-the-way").write_text("a file")
    told = one_line(run(workplace, "score", "--recorded", "recording", "--state-dir", "in-the-way/state", "--at", AT))
    assert "in-the-way" in told


# -- check-config -----------------------------------------------------------------------------------------------------


def test_the_settings_are_listed_with_value_variable_and_meaning(tmp_path: Path) -> None:
    (tmp_path / "healthsvc.toml").write_text("[server]\nport = 8000\n")
    answer = run(tmp_path, "check-config", "--format", "json", HEALTHSVC_CYCLE_STEP_S="120")
    rows = {row["setting"]: row for row in json.loads(answer.stdout)}
    assert answer.returncode == 0
    assert rows["server.port"]["value"] == "8000"
    assert rows["cycle.step_s"]["value"] == "120.0"
    assert rows["prometheus.url"]["variable"] == "HEALTHSVC_PROMETHEUS_URL"
    assert all(row["meaning"] for row in rows.values())


@pytest.mark.parametrize("style", ["table", "json", "csv"])
def test_no_way_of_listing_the_settings_shows_a_secret(tmp_path: Path, style: str) -> None:
    (tmp_path / "healthsvc.toml").write_text(
        f"[prometheus]\nbasic_user = 'me'\nbasic_password = '{SECRET}'\n"
        f"[prometheus.headers]\nAuthorization = 'Bearer {SECRET}'\n[prometheus.parameters]\napikey = '{SECRET}'\n"
    )
    answer = run(tmp_path, "check-config", "--format", style)
    assert answer.returncode == 0
    assert SECRET not in answer.stdout + answer.stderr
    assert "Authorization" in answer.stdout.replace("\n", "")


def test_a_wrong_setting_is_no_finding_but_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "healthsvc.toml").write_text("[server]\nprot = 8000\n")
    told = one_line(run(tmp_path, "check-config"))
    assert told == "server.prot = 8000: no such setting; `healthsvc check-config` lists all of them"
