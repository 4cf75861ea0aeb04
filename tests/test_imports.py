"""Logs and dumps become recordings: every dialect, every kind of dirt, and the numbers that were written down."""

import gzip
import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from healthsvc.cli import app
from healthsvc.fleet import Signal
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.grid import uniform_times
from healthsvc.telemetry.imports import Imported, ImportFileError, ImportSpec, gather, import_files
from healthsvc.telemetry.imports.columns import column_of, numbers
from healthsvc.telemetry.imports.reading import short_names
from healthsvc.telemetry.imports.times import check_zone, unix_seconds
from healthsvc.telemetry.recorded import RecordedSource
from tests import naive

FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "imports"
BENCHMARK = Path(__file__).parents[1].parent / "shared" / "data" / "gpu-power-benchmark"
NOON_S = datetime(2025, 3, 1, 12, tzinfo=UTC).timestamp()


def imported(tmp_path: Path, *files: str | Path, **spec: object) -> tuple[Imported, RecordedSource]:
    paths = [FIXTURES / file if isinstance(file, str) else file for file in files]
    found = import_files(paths, tmp_path / "recording", ImportSpec(**spec))  # type: ignore[arg-type]
    return found, RecordedSource(found.folder)


def values(
    source: RecordedSource, signal: Signal, start_s: float, columns: int, step_s: float = 60.0
) -> list[list[float]]:
    """Of every GPU in the recording's order, the columns (start, start + columns x step]."""
    grid = source.read(uniform_times(start_s, start_s + columns * step_s, step_s), source.gpus, step_s)
    found: list[list[float]] = np.round(grid.values[signal], 4).tolist()
    return found


nan = pytest.approx(float("nan"), nan_ok=True)


def test_a_log_with_units_uuids_and_apologies(tmp_path: Path) -> None:
    found, source = imported(tmp_path, "with_units.csv")
    assert [(gpu.device_id[-4:], gpu.index, gpu.product, gpu.slot) for gpu in source.gpus] == [
        ("0001", "0", "NVIDIA H100 80GB HBM3", "00000000:19:00.0"),
        ("0002", "1", "NVIDIA H100 80GB HBM3", "00000000:3B:00.0"),
    ]
    assert values(source, Signal.GPU_TEMPERATURE, NOON_S, 3) == [[59, 61, 62], [41, 41, nan]]
    assert values(source, Signal.POWER, NOON_S, 3)[0] == pytest.approx([631.95, 634.0, 640.25])
    assert values(source, Signal.POWER, NOON_S, 3)[1] == [pytest.approx(69.1), nan, nan]
    assert values(source, Signal.MEMORY_TEMPERATURE, NOON_S, 3) == [[54, 55, 55], [47, nan, nan]]
    assert values(source, Signal.SM_CLOCK, NOON_S, 3)[0] == pytest.approx([1.98e9, 1.965e9, 1.95e9])
    assert values(source, Signal.GPU_UTILIZATION, NOON_S, 3)[0] == [1.0, 1.0, 1.0]
    assert values(source, Signal.CLOCK_EVENT_REASONS, NOON_S, 3)[0] == [4, 36, 36]
    assert values(source, Signal.SOFTWARE_THERMAL_THROTTLE, NOON_S, 3)[0] == [1.5, 4.5, 9.0]
    assert values(source, Signal.SBE_VOLATILE, NOON_S, 3)[0] == [3, 3, 4]
    assert values(source, Signal.REMAP_PENDING, NOON_S, 3)[0] == [0, 1, 1]
    assert found.rejected == {
        ("memory_temperature_celsius", "no_sensor"): 1,
        ("power_watts", "blank"): 1,
        ("row", "malformed"): 1,
    }
    assert "memory.used" in found.unused
    assert found.files[0].rows == 5


def test_a_log_that_changes_its_columns_and_knows_only_the_index(tmp_path: Path) -> None:
    found, source = imported(tmp_path, "index_only.csv")
    assert [(gpu.device_id, gpu.index) for gpu in source.gpus] == [("index_only/0", "0"), ("index_only/1", "1")]
    hour = NOON_S + 3600
    assert values(source, Signal.GPU_TEMPERATURE, hour, 3) == [[30, 32, 34], [31, nan, nan]]
    assert values(source, Signal.POWER, hour, 2) == [[70.5, 72.5], [71.5, nan]]  # the average stands in for power.draw
    assert found.rejected["gpu_temperature_celsius", "out_of_range"] == 1  # 345 degrees


def test_a_log_without_header_and_units_needs_its_columns(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="--columns"):
        imported(tmp_path, "nounits_noheader.csv")
    fields = ("timestamp", "name", "temperature.gpu", "power.draw", "clocks.sm", "utilization.gpu")
    _, source = imported(tmp_path, "nounits_noheader.csv", columns=fields)
    two = NOON_S + 7200
    assert source.gpus[0].product == "Tesla T4"
    assert values(source, Signal.SM_CLOCK, two, 2)[0] == pytest.approx([1.59e9, 1.575e9])
    assert values(source, Signal.GPU_UTILIZATION, two, 2) == [[0.88, 0.89]]
    assert values(source, Signal.POWER, two, 2) == [[65.25, 66.25]]


def test_dmon_with_dates(tmp_path: Path) -> None:
    found, source = imported(tmp_path, "dmon.log", host="node-a")
    three = NOON_S + 3 * 3600
    assert [gpu.device_id for gpu in source.gpus] == ["node-a/0", "node-a/1"]
    assert {gpu.hostname for gpu in source.gpus} == {"node-a"}
    assert values(source, Signal.GPU_TEMPERATURE, three, 2) == [[41, 42], [63, 64]]
    assert values(source, Signal.SBE_AGGREGATE, three, 2)[1] == [2, 5]
    assert values(source, Signal.MEMORY_TEMPERATURE, three, 2)[0] == [47, 47]
    assert found.rejected == {("memory_temperature_celsius", "no_sensor"): 2}


def test_openmetrics_and_promtools_dump_with_what_is_measured_beside_gpus(tmp_path: Path) -> None:
    found, source = imported(tmp_path, "dump.om", "promtool_dump.txt")
    four = NOON_S + 4 * 3600
    assert values(source, Signal.GPU_TEMPERATURE, four - 60, 3) == [[48, 49, 50], [51, 52, nan]]
    assert values(source, Signal.SBE_VOLATILE, four - 60, 3)[0] == [7, 9, nan]
    grid = source.read(np.array([four]), source.gpus, 60.0)
    inlet = grid.environment[Signal.INLET]
    assert (inlet.layer, inlet.names, inlet.values.tolist()) == ("node", ("node-a",), [[23.5]])
    assert found.rejected == {("row", "malformed"): 1}


def test_logs_in_windows_utf_16_and_gzip_are_read(tmp_path: Path) -> None:
    text = (FIXTURES / "with_units.csv").read_text()
    (tmp_path / "windows.csv").write_bytes(text.replace("\n", "\r\n").encode("utf-16"))
    with gzip.open(tmp_path / "packed.csv.gz", "wt") as packed:
        packed.write(text)
    for name in ("windows.csv", "packed.csv.gz"):
        _, source = imported(tmp_path / name.split(".")[0], tmp_path / name)
        assert values(source, Signal.GPU_TEMPERATURE, NOON_S, 3)[0] == [59, 61, 62]


def test_local_times_are_those_of_the_zone(tmp_path: Path) -> None:
    found, _ = imported(tmp_path, "with_units.csv", zone="Asia/Tokyo")
    assert found.start_s == NOON_S - 9 * 3600 + 60
    with pytest.raises(ValueError, match="no such zone"):
        check_zone("Europe/Atlantis")


def test_several_files_of_one_gpu_join_and_overlap(tmp_path: Path) -> None:
    lines = (FIXTURES / "with_units.csv").read_text().splitlines()
    (tmp_path / "one.csv").write_text("\n".join(lines[:4]) + "\n")
    (tmp_path / "two.csv").write_text("\n".join([lines[0], *lines[3:]]) + "\n")
    found, source = imported(tmp_path, tmp_path / "one.csv", tmp_path / "two.csv")
    assert values(source, Signal.GPU_TEMPERATURE, NOON_S, 3)[0] == [59, 61, 62]
    assert found.rejected["sample", "duplicate_time"] == 9  # one row, nine signals


def test_a_recording_over_midnight_has_two_days(tmp_path: Path) -> None:
    rows = ["timestamp, uuid, temperature.gpu"]
    uuid = "GPU-00000001-0000-4000-8000-000000000001"
    rows += [
        f"2025/03/0{d} {t}, {uuid}, {v}" for d, t, v in ((1, "23:59:30", 40), (2, "00:00:00", 41), (2, "00:00:30", 42))
    ]
    (tmp_path / "night.csv").write_text("\n".join(rows) + "\n")
    found, source = imported(tmp_path, tmp_path / "night.csv", step_s=30.0)
    assert sorted(path.name for path in (found.folder / "telemetry").iterdir()) == [
        "2025-03-01.parquet",
        "2025-03-02.parquet",
    ]
    midnight = NOON_S + 12 * 3600
    assert values(source, Signal.GPU_TEMPERATURE, midnight - 60, 3, 30.0) == [[40, 41, 42]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "neither"),
        ("hello\nworld\n", "neither"),
        ("1688840907467245\n", "neither"),
        ("timestamp\n1688840907467245\n", "no column of a signal"),
        ("timestamp, temperature.gpu\nyesterday, 40\n", "no row with a time"),
        ("# gpu    pwr  gtemp\n# Idx      W      C\n    0     69     41\n", "dmon -o DT"),
        (
            "# gpu         pid   type     sm\n# Idx           #    C/G      %\n    0       1234     C     99\n",
            "processes",
        ),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1"} 40\n', "no row with a time"),
    ],
)
def test_what_holds_no_gpu_sample_says_why(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(ImportFileError, match=re.escape(complaint)):
        imported(tmp_path, tmp_path / "log")
    assert not (tmp_path / "recording").exists()


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (3 << 20))
    with pytest.raises(ImportFileError, match="is it a log"):
        imported(tmp_path, tmp_path / "log")


def test_too_many_samples_are_refused_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="longer --step"):
        imported(tmp_path, "with_units.csv", most_samples=3)


def test_samples_of_a_clock_that_is_ahead_are_rejected(tmp_path: Path) -> None:
    found, source = imported(tmp_path, "with_units.csv", now_s=NOON_S + 90)
    assert values(source, Signal.GPU_TEMPERATURE, NOON_S, 3)[0] == [59, 61, nan]
    assert found.rejected["gpu_temperature_celsius", "future"] == 1
    with pytest.raises(ImportFileError, match=r"every sample was rejected.*future"):
        imported(tmp_path / "all", "with_units.csv", now_s=NOON_S - 86_400)


@pytest.mark.parametrize("at", ["-5", "9" * 30, "1e18"])
def test_a_time_that_makes_no_sense_costs_its_sample_only(tmp_path: Path, at: str) -> None:
    line = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1"} 40 '
    (tmp_path / "dump.om").write_text(f"{line}1740844800\n{line}{at}\n")
    found, source = imported(tmp_path, tmp_path / "dump.om")
    assert source.span() == (1740844800.0, 1740844800.0)
    assert found.rejected == {("sample", "malformed"): 1}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        imported(tmp_path, "with_units.csv")
    assert (tmp_path / "recording" / "mine").read_text() == "mine"


def test_files_without_identity_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "gpu.csv", tmp_path / "b" / "gpu.csv", tmp_path / "other.csv.gz"]
    assert list(short_names(paths).values()) == ["a/gpu", "b/gpu", "other"]


def test_the_recording_says_what_it_was_made_of(tmp_path: Path) -> None:
    found, _ = imported(tmp_path, "with_units.csv")
    about = json.loads((found.folder / "recording.json").read_text())
    assert about["imported"] == ["with_units.csv"]
    assert (about["start"], about["end"]) == ("2025-03-01T12:01:00Z", "2025-03-01T12:03:00Z")


# -- cells and times --------------------------------------------------------------------------------------------------

CELLS = st.one_of(
    st.floats(0, 1e6, allow_nan=False).map(lambda value: f"{value:.2f}"),
    st.integers(0, 10**12).map(str),
    st.integers(0, 10**6).map(lambda value: f"{value} W"),
    st.integers(0, 10**6).map(lambda value: f"{value} mW"),
    st.integers(0, 2**40).map(lambda value: f"0x{value:016x}"),
    st.sampled_from(
        ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "", "Active", "Not Active", "Yes", "P0", "3 Bq"]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
)


@given(st.lists(CELLS, min_size=1, max_size=20))
def test_cells_agree_with_the_slow_twin(cells: list[str]) -> None:
    cells = [cell.strip() for cell in cells]
    found, reasons = numbers(pa.chunked_array([pa.array(cells)]), "W")
    slow = [naive.smi_cell(cell, "W") for cell in cells]
    wanted = [np.nan if value is None else value for value, _ in slow]
    np.testing.assert_allclose(found, wanted)
    assert reasons == Counter(reason for _, reason in slow if reason)


@pytest.mark.parametrize(
    ("header", "metric"),
    [
        ("power.draw [W]", "nvidia_smi_power_draw_watts"),
        ("clocks.sm [MHz]", "nvidia_smi_clocks_current_sm_clock_hz"),
        ("x_reasons_counters.hw_slowdown [us]", "nvidia_smi_x_reasons_counters_hw_slowdown_seconds"),
        ("ecc.errors.uncorrected.aggregate.total", "nvidia_smi_ecc_errors_uncorrected_aggregate_total"),
        ("encoder.stats.sessionCount", "nvidia_smi_encoder_stats_session_count"),
        ("enforced.power.limit [W]", "nvidia_smi_enforced_power_limit_watts"),
        ("power.limit", "nvidia_smi_power_limit_watts"),
        ("utilization.gpu", "nvidia_smi_utilization_gpu_ratio"),
        ("temperature.gpu", "nvidia_smi_temperature_gpu"),
    ],
)
def test_a_field_has_the_name_that_the_exporter_gives_it(header: str, metric: str) -> None:
    found = column_of(header)
    assert found is not None
    assert found.metric == metric


@pytest.mark.parametrize(
    ("text", "zone", "wanted"),
    [
        ("2023/07/08 19:28:27.236", "UTC", "2023-07-08T19:28:27.236+00:00"),
        ("2023/07/08 19:28:27.236", "Europe/Berlin", "2023-07-08T17:28:27.236+00:00"),
        ("2023-07-08T19:28:27Z", "Europe/Berlin", "2023-07-08T19:28:27+00:00"),
        ("2023-07-08 19:28:27+0530", "UTC", "2023-07-08T13:58:27+00:00"),
        ("2023-07-08 19:28:27-08:00", "UTC", "2023-07-09T03:28:27+00:00"),
        ("1688840907", "UTC", "2023-07-08T18:28:27+00:00"),
        ("1688840907467", "UTC", "2023-07-08T18:28:27.467+00:00"),
        ("1688840907467245", "UTC", "2023-07-08T18:28:27.467245+00:00"),
        ("Sat Jul  8 19:28:27 2023", "UTC", "2023-07-08T19:28:27+00:00"),
        ("2023/10/29 02:30:00", "Europe/Berlin", "2023-10-29T00:30:00+00:00"),  # twice that night: the earlier
    ],
)
def test_times_of_every_dialect(text: str, zone: str, wanted: str) -> None:
    found = unix_seconds(pa.chunked_array([[text, "rubbish", "2023/13/08 19:28:27"]]), zone)
    assert found[0] == pytest.approx(datetime.fromisoformat(wanted).timestamp(), abs=1e-5)
    assert np.isnan(found[1:]).all()


@given(st.data())
def test_gathering_keeps_the_last_sample_of_each_column(data: st.DataObject) -> None:
    """Whatever the order and the pieces in which samples come; labels never mix."""
    points = data.draw(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5_000), st.integers(0, 99)), min_size=1)
    )
    points = [*{(name, at): (name, at, value) for name, at, value in points}.values()]
    gatherer = gather.Gatherer(60.0, lambda metric, labels: None)
    pieces = data.draw(st.integers(1, 3))
    for piece in range(pieces):
        for name, at, value in points[piece::pieces]:
            gatherer.add(
                "m", Samples(({"UUID": name},), np.array([1]), np.array([float(at)]), np.array([float(value)]))
            )
    kept: dict[tuple[str, int], tuple[int, int]] = {}
    for _, metrics in gatherer.days():
        found = metrics["m"]
        name_of = np.repeat([labels["UUID"] for labels in found.labels], found.counts)
        for name, at, value in zip(name_of, found.times_s, found.values, strict=True):
            key = (str(name), -int(-at // 60))
            kept[key] = max(kept.get(key, (-1, 0)), (int(at), int(value)))
    wanted: dict[tuple[str, int], tuple[int, int]] = {}
    for name, at, value in points:
        key = (name, -(-at // 60))
        wanted[key] = max(wanted.get(key, (-1, 0)), (at, value))
    assert kept == wanted


# -- real logs --------------------------------------------------------------------------------------------------------

LOGS = {
    "5050/3090/gpudata.csv": (1690, 126.96, 54, 1800e6),
    "5050/A100/gpudata.csv": (965, 56.12, 37, 1410e6),
    "MLPerf/data.csv": (12792, 46.19, 32, None),
    "Transient_Response/3090_TR/gpudata.csv": (2308, 126.97, 54, 1800e6),
    "Transient_Response/4090_TR/gpudata.csv": (2311, 50.81, 40, 2520e6),
    "Transient_Response/A100_TR/gpudata.csv": (1245, 56.38, 37, 1410e6),
    "Transient_Response/A5000_TR/gpudata.csv": (2383, 77.82, 62, 1695e6),
    "Transient_Response/K40m_TR/gpudata.csv": (2110, 60.16, 34, 745e6),
    "pwr_update_freq/3090_gpudata.csv": (31031, 137.12, 61, 1800e6),
    "pwr_update_freq/A100_gpudata.csv": (16002, 78.66, 53, 1410e6),
    "pwr_update_freq/V100_gpudata.csv": (20542, 81.46, 57, 1530e6),
}  # rows, and the first row's watts, degrees and hertz


@pytest.mark.skipif(not BENCHMARK.is_dir(), reason=f"no {BENCHMARK}")
def test_the_logs_of_a_power_benchmark_import(tmp_path: Path) -> None:
    found, source = imported(tmp_path, *(BENCHMARK / name for name in LOGS), step_s=1.0)
    assert {report.path.relative_to(BENCHMARK).as_posix(): report.rows for report in found.files} == {
        name: rows for name, (rows, *_) in LOGS.items()
    }
    assert len(source.gpus) == len(LOGS)
    assert found.rejected == {("sm_clock_hertz", "blank"): 12792}
    assert found.signals == {
        "gpu_temperature_celsius": 11,
        "gpu_utilization_ratio": 10,
        "power_watts": 11,
        "sm_clock_hertz": 10,
    }


@pytest.mark.skipif(not BENCHMARK.is_dir(), reason=f"no {BENCHMARK}")
@pytest.mark.parametrize("name", LOGS)
def test_the_first_second_of_each_log_is_right(tmp_path: Path, name: str) -> None:
    _, watts, degrees, hertz = LOGS[name]
    lines = (BENCHMARK / name).read_text().splitlines()[:2]  # the header and the row that was looked at
    (tmp_path / "first.csv").write_text("\n".join(lines) + "\n")
    found, source = imported(tmp_path, tmp_path / "first.csv", step_s=1.0)
    grid = source.read(np.array([found.start_s]), source.gpus, 1.0)
    assert grid.values[Signal.POWER][0, 0] == pytest.approx(watts)
    assert grid.values[Signal.GPU_TEMPERATURE][0, 0] == degrees
    clock = grid.values.get(Signal.SM_CLOCK)
    assert (None if clock is None else clock[0, 0]) == (hertz and pytest.approx(hertz))


@pytest.mark.skipif(not BENCHMARK.is_dir(), reason=f"no {BENCHMARK}")
def test_files_of_the_benchmark_that_hold_no_gpu_say_so(tmp_path: Path) -> None:
    others = sorted(BENCHMARK.rglob("timestamps.csv")) + sorted(BENCHMARK.rglob("PMD_start_ts.txt"))
    found, _ = imported(tmp_path, BENCHMARK / "5050/3090/gpudata.csv", *others)
    assert [report.samples for report in found.files[1:]] == [0] * len(others)
    assert all(report.note for report in found.files[1:])


# -- dirt, and the command --------------------------------------------------------------------------------------------

LINES = [line for path in sorted(FIXTURES.iterdir()) for line in path.read_text().splitlines()]


@st.composite
def dirty_text(draw: st.DrawFn) -> str:
    """Lines of every fixture, shuffled, cut and spoilt."""
    lines = draw(st.lists(st.sampled_from(LINES), max_size=12))
    spoilt = []
    for line in lines:
        at = draw(st.integers(0, len(line)))
        what = draw(st.sampled_from(["", "", "", "\0", ", ", '"', "{", "}", "\x1f", "é", "9" * 400, "[", "nan", "\r"]))
        spoilt.append(line[:at] + what + line[at + draw(st.integers(0, 3)) :])
    return draw(st.sampled_from(["\n", "\r\n"])).join(spoilt)


@given(dirty_text())
@settings(max_examples=150, deadline=None)
def test_no_dirt_breaks_the_reading(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("dirt")
    (folder / "log").write_text(text)
    try:
        found = import_files([folder / "log"], folder / "recording", ImportSpec())
    except ImportFileError:
        return
    assert RecordedSource(found.folder).gpus


def imports(*arguments: str) -> tuple[int, str, str]:
    answer = CliRunner().invoke(app, ["import", *arguments], env={"COLUMNS": "100"})
    structlog.reset_defaults()
    return answer.exit_code, answer.stdout, answer.stderr


def test_the_command_says_what_was_read_and_what_was_rejected(tmp_path: Path) -> None:
    code, told, _ = imports(str(FIXTURES / "with_units.csv"), "--out", str(tmp_path / "recording"))
    assert code == 0
    for word in ("nvidia-smi", "power_watts", "no_sensor", "blank", "malformed", "memory.used", "healthsvc score"):
        assert word in told


def test_a_file_that_gave_nothing_is_a_finding_and_none_at_all_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "stamps.csv").write_text("timestamp\n1688840907467245\n")
    both = (str(FIXTURES / "with_units.csv"), str(tmp_path / "stamps.csv"))
    code, told, _ = imports(*both, "--out", str(tmp_path / "recording"), "--format", "json")
    assert code == 1
    assert [report["samples"] > 0 for report in json.loads(told)] == [True, False]
    code, told, why = imports(both[1], "--out", str(tmp_path / "other"))
    assert (code, told) == (2, "")
    assert "no column of a signal" in why
    code, _, why = imports(both[0], "--out", str(tmp_path / "other"), "--timezone", "Mars/Olympus")
    assert code == 2
    assert "--timezone" in why
