"""The doctor: what it finds in each kind of fleet, and what it says to enable."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import structlog
from numpy.typing import NDArray
from typer.testing import CliRunner

from healthsvc.cli import app
from healthsvc.cli.doctor import document, exact_rows, report
from healthsvc.engine.doctor import Checkup, check_up
from healthsvc.engine.shipped import load_priors
from healthsvc.engine.survey import Reader
from healthsvc.fleet import DAY_S, GpuId, Signal
from healthsvc.forecasters import shipped_domain_forecasters, shipped_forecasters
from healthsvc.telemetry.catalogue.rows import CLASSIC, DCGM_46, DCGM_49
from healthsvc.telemetry.imports import ImportSpec, import_files
from healthsvc.telemetry.server.census import ServerFacts
from healthsvc.telemetry.source import RawGrid
from tests.exposition_source import ExpositionSource

FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "doctor"
LOG = FIXTURES.parent / "imports" / "with_units.csv"
START_S = 1_790_000_000.0 // DAY_S * DAY_S
END_S = START_S + 12 * 3600.0
READERS: tuple[Reader, ...] = (*shipped_forecasters(load_priors()), *shipped_domain_forecasters(load_priors()))
FLEETS = ("default", "full", "mixed", "amd", "vgpu")


def source_of(name: str) -> ExpositionSource:
    return ExpositionSource.of(FIXTURES / f"{name}.prom", START_S, END_S)


def checked(name: str) -> Checkup:
    return check_up(source_of(name), READERS, END_S, 7200.0, 60.0)


@pytest.mark.parametrize("name", FLEETS)
def test_what_the_doctor_says_of_each_fleet(name: str, golden: Callable[[str, str], None]) -> None:
    text = report(checked(name), columns=100)
    assert max(len(line) for line in text.splitlines() if not line.startswith("    ")) <= 100
    golden(f"doctor/{name}.txt", text)


def test_the_document_for_machines(golden: Callable[[str, str], None]) -> None:
    golden("doctor/default.json", json.dumps(document(checked("default")), indent=2) + "\n")


def test_the_default_csv_starves_nobody_of_memory_forecasts_and_names_what_is_off() -> None:
    found = {facts.name: facts for facts in checked("default").survey.forecasters}
    assert found["ecc_growth"].readiness == "degraded"  # remapped rows are on by default
    assert found["throttling_cascade"].readiness == "starved"  # no throttle counter is
    lines = checked("default").enable[CLASSIC]
    assert "DCGM_FI_DEV_THERMAL_VIOLATION, counter, Throttling by heat (ns)" in lines
    assert not any("DCGM_FI_DEV_GPU_TEMP," in line for line in lines)


def test_the_full_csv_leaves_nothing_to_enable() -> None:
    found = checked("full")
    assert found.enable == {}
    assert {facts.readiness for facts in found.survey.forecasters} == {"ready"}
    assert found.findings == ()


def test_each_generation_gets_lines_in_its_own_names() -> None:
    found = checked("mixed")
    assert [(kind.model, kind.exporter, kind.driver, kind.gpus) for kind in found.kinds] == [
        ("NVIDIA H100 80GB HBM3", DCGM_46, "580.105.08", 2),
        ("NVIDIA H100 80GB HBM3", DCGM_49, "590.48.01", 2),
        ("NVIDIA H100 80GB HBM3", CLASSIC, "550.90.07", 2),
        ("Tesla T4", CLASSIC, "550.90.07", 1),
    ]
    assert set(found.enable) == {CLASSIC}  # the other two have all
    assert not any("UNCORRECTABLE_REMAPPED_ROWS" in line for line in found.enable[CLASSIC])  # only the T4 lacks them


def test_a_percentage_called_a_ratio_is_told() -> None:
    told = [finding.text for finding in checked("mixed").findings if "GPU_UTIL_RATIO" in finding.text]
    assert len(told) == 1
    assert "percent" in told[0]


def test_a_virtual_gpu_is_told_that_its_host_knows() -> None:
    found = checked("vgpu")
    thermal = next(facts for facts in found.survey.forecasters if facts.name == "thermal_trend")
    assert (thermal.starved, thermal.beyond_board) == (1, 1)
    assert any("host" in note for note in found.notes)
    assert not any("GPU_TEMP" in line for lines in found.enable.values() for line in lines)


def test_amd_partitions_are_one_gpu_and_dcgm_lines_are_not_offered() -> None:
    found = checked("amd")
    assert found.survey.gpus == 2
    assert not any("DCGM" in line for lines in found.enable.values() for line in lines)


def test_a_source_without_gpus_is_a_finding() -> None:
    found = check_up(ExpositionSource("up 1\n", START_S, END_S), READERS, END_S, 7200.0, 60.0)
    assert found.findings[0].urgent
    assert "no GPU" in found.findings[0].text


def test_a_clock_that_is_off_is_a_finding() -> None:
    source = source_of("full")
    source.server = ServerFacts("Thanos", "0.37", "its build", 300.0)
    (finding,) = check_up(source, READERS, END_S, 7200.0, 60.0).findings
    assert "+300 s" in finding.text


def test_telemetry_that_has_died_is_a_finding_however_well_it_looked() -> None:
    (finding,) = check_up(source_of("full"), READERS, END_S, 7200.0, 60.0, now_s=END_S + 2 * DAY_S).findings
    assert finding.urgent
    assert finding.text.startswith("the newest sample is 2 days old")
    assert check_up(source_of("full"), READERS, END_S, 7200.0, 60.0, now_s=END_S + 300.0).findings == ()


@dataclass
class Forgetful(ExpositionSource):
    """Knows of GPUs that it has no sample of any more."""

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        here = super().discover(start_s, end_s)
        gone = tuple(GpuId(f"GPU-gone-{i}", "node-9", str(i)) for i in range(5))
        return (*here, *gone) if end_s - start_s > DAY_S else here


def test_gpus_that_answered_lately_and_do_not_now_are_named() -> None:
    source = Forgetful.of(FIXTURES / "full.prom", START_S, END_S)
    (finding,) = check_up(source, READERS, END_S, 7200.0, 60.0).findings
    assert finding.urgent
    assert finding.text == (
        "5 of 7 GPUs of the last 7 days gave no sample in the last 10 min: node-9/0, node-9/1, node-9/2 and 2 more"
    )


@dataclass
class Doubtful(ExpositionSource):
    """Gives half of every second sample, and says that it is only a part."""

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        raw = super().read(times_s, gpus, step_s)
        raw.values[Signal.POWER][:, 1::5] = np.nan
        return replace(raw, incomplete=True, warnings=("store-1 unavailable",))


def test_an_answer_that_is_only_a_part_is_urgent_and_missing_samples_are_told() -> None:
    found = check_up(Doubtful.of(FIXTURES / "full.prom", START_S, END_S), READERS, END_S, 7200.0, 60.0).findings
    assert [(finding.urgent, finding.text) for finding in found] == [
        (True, "the source warns: store-1 unavailable"),
        (False, "power_watts: 20 % of the samples are missing"),
    ]


def test_a_metric_is_there_since_it_was_first_seen() -> None:
    source = source_of("full")
    source.since_s = {"DCGM_FI_DEV_GPU_TEMP": START_S - 3 * DAY_S}
    survey = check_up(source, READERS, END_S, 7200.0, 60.0).survey
    facts = survey.of(Signal.GPU_TEMPERATURE)
    assert facts is not None
    assert facts.since_s == START_S - 3 * DAY_S


def test_rows_for_machines_hold_numbers_only() -> None:
    survey = checked("default").survey
    row = next(row for row in exact_rows(survey.signals, survey.gpus) if row["signal"] == "power_watts")
    assert (row["reporting"], row["gpus"], row["missing_ratio"]) == (2, 2, 0.0)
    assert row["units"] == "watts"


# -- the command ------------------------------------------------------------------------------------------------------


def asked(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "100"})
    structlog.reset_defaults()
    return answer.exit_code, answer.stdout


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_files([LOG], tmp_path_factory.mktemp("doctor") / "recording", ImportSpec()).folder


def test_findings_are_the_exit_code_and_every_format_speaks_of_the_same(recording: Path) -> None:
    code, table = asked("--recorded", str(recording))
    assert code == 1
    assert "device_loss is degraded on 2 of 2 GPUs: no xid_code" in " ".join(table.split())
    code, text = asked("--recorded", str(recording), "--format", "json")
    assert (code, json.loads(text)["gpus"]) == (1, 2)
    code, text = asked("--recorded", str(recording), "--format", "csv")
    rows = {row["signal"]: row for row in csv.DictReader(io.StringIO(text))}
    assert (code, rows["power_watts"]["reporting"]) == (1, "2")


def test_a_source_that_cannot_be_asked_is_no_finding(tmp_path: Path) -> None:
    assert asked("--recorded", str(tmp_path / "none"))[0] == 2
