"""A recording read back: the same numbers, on any grid, and errors that say what to do."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from healthsvc.fleet import COUNTERS, GpuId, Signal
from healthsvc.simulator import FleetSimulator, parse_scenario, write_recording
from healthsvc.telemetry.framing.grid import frame, uniform_times
from healthsvc.telemetry.recorded import RecordedSource
from healthsvc.telemetry.source import Source, SourceError

START_S = 1_767_571_200.0
SCENARIO = parse_scenario(
    {
        "name": "small",
        "days": 2,
        "fleet": {"gpus": 16, "nodes_per_rack": 1, "racks_per_loop": 1},
        "fault": [{"kind": "off_bus", "target": 3, "start_day": 0.9}],
    },
    "test",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(SCENARIO, tmp_path_factory.mktemp("recorded") / "one", 1, START_S)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture
def source(folder: Path) -> RecordedSource:
    return RecordedSource(folder)


def test_what_was_written_is_what_is_read(source: RecordedSource) -> None:
    simulator = FleetSimulator(SCENARIO, np.random.default_rng(1), START_S)
    for chunk in simulator.chunks():
        grid = source.read(chunk.times_s, simulator.gpus)
        assert grid.gpus == simulator.gpus
        assert grid.values.keys() == chunk.values.keys()
        for signal, wanted in chunk.values.items():
            kind = np.float64 if signal in COUNTERS else np.float32
            np.testing.assert_array_equal(grid.values[signal], wanted.astype(kind).astype(np.float64), signal)
        for signal, series in chunk.environment.items():
            assert (grid.environment[signal].layer, grid.environment[signal].names) == (series.layer, series.names)
            np.testing.assert_array_equal(grid.environment[signal].values, series.values)


def test_it_is_a_source_and_knows_its_span_places_and_gpus(source: RecordedSource) -> None:
    as_source: Source = source
    assert as_source.span() == (START_S, START_S + 2 * 86_400 - 60)
    assert len(as_source.discover(*source.span())) == 16
    placement = as_source.placement()
    assert placement is not None
    assert placement.by_hostname["node-002"]["cooling_loop"] == "loop-2"


def test_a_gpu_lost_earlier_is_not_found_later(source: RecordedSource) -> None:
    lost = source.gpus[3]
    assert lost not in source.discover(START_S + 86_400, START_S + 2 * 86_400)
    later = uniform_times(START_S + 86_400, START_S + 90_000, 60.0)
    assert lost not in source.read(later).gpus
    assert np.isnan(source.read(later, [lost]).values[Signal.POWER]).all()


def test_gpus_are_read_in_the_order_asked_for_and_strangers_are_nan(source: RecordedSource) -> None:
    times_s = uniform_times(START_S, START_S + 3600, 60.0)
    whole, stranger = source.read(times_s), GpuId("GPU-unheard-of")
    some = source.read(times_s, [source.gpus[5], stranger, source.gpus[1]])
    power = some.values[Signal.POWER]
    np.testing.assert_array_equal(power[[0, 2]], whole.values[Signal.POWER][[5, 1]])
    assert np.isnan(power[1]).all()


def test_a_coarser_grid_takes_the_last_sample_of_each_interval(source: RecordedSource) -> None:
    fine = source.read(uniform_times(START_S, START_S + 172_000, 60.0), source.gpus)
    coarse = source.read(uniform_times(START_S, START_S + 172_000, 600.0), source.gpus)
    power = fine.values[Signal.POWER]
    for t, at_s in enumerate(coarse.times_s):
        inside = (fine.times_s > at_s - 600) & (fine.times_s <= at_s)
        for row in (0, 3):  # 3 falls silent within an interval
            seen = power[row, inside][~np.isnan(power[row, inside])]
            wanted = seen[-1] if len(seen) else np.nan
            np.testing.assert_equal(coarse.values[Signal.POWER][row, t], wanted)


def test_a_finer_grid_invents_nothing(source: RecordedSource) -> None:
    fine = source.read(uniform_times(START_S, START_S + 600, 30.0))
    assert np.isnan(fine.values[Signal.POWER][:, 0::2]).all()
    assert not np.isnan(fine.values[Signal.POWER][:, 1::2]).any()


def test_a_window_over_midnight_is_seamless(source: RecordedSource) -> None:
    midnight = START_S + 86_400
    window, _ = frame(source.read(uniform_times(midnight - 1800, midnight + 1800, 60.0)))
    energy, power = window.get(Signal.ENERGY), window.get(Signal.POWER)
    np.testing.assert_allclose(energy[:, 1:], power[:, 1:] * 60.0, rtol=1e-3)


def test_outside_the_recording_there_is_nothing(source: RecordedSource) -> None:
    grid = source.read(uniform_times(START_S + 9e6, START_S + 9.1e6, 600.0))
    assert (grid.gpus, dict(grid.values), grid.samples) == ((), {}, 0)
    assert source.discover(0.0, 1.0) == ()


def test_a_hole_in_the_days_is_a_hole_in_the_samples(copy: Path) -> None:
    (copy / "telemetry" / "2026-01-05.parquet").unlink()
    source = RecordedSource(copy)
    grid = source.read(uniform_times(START_S + 86_000, START_S + 87_000, 60.0), source.gpus)
    early = grid.times_s < START_S + 86_400
    assert np.isnan(grid.values[Signal.POWER][:, early]).all()
    assert not np.isnan(grid.values[Signal.POWER][0, ~early]).any()


@pytest.mark.parametrize("poorer", ["2026-01-05", "2026-01-06"])
def test_a_place_that_one_day_lacks_keeps_its_samples_of_the_other(copy: Path, poorer: str) -> None:
    path = copy / "environment" / f"{poorer}.parquet"
    table = pq.read_table(path)
    pq.write_table(table.filter(pc.not_equal(table["name"], "node-001")), path)
    midnight = START_S + 86_400
    times_s = uniform_times(midnight - 1800, midnight + 1800, 60.0)
    inlet = RecordedSource(copy).read(times_s).environment[Signal.INLET]
    lacking = (times_s < midnight) == (poorer == "2026-01-05")
    row = inlet.names.index("node-001")
    assert np.isnan(inlet.values[row, lacking]).all()
    assert not np.isnan(inlet.values[row, ~lacking]).any()
    assert not np.isnan(np.delete(inlet.values, row, axis=0)).any()


def test_reading_the_day_last_read_is_fast(source: RecordedSource) -> None:
    times_s = uniform_times(START_S + 36_000, START_S + 43_200, 60.0)
    source.read(times_s)
    took = []
    for _ in range(20):
        begun = time.perf_counter()
        source.read(times_s)
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.003  # replay asks 1,440 times a day


def test_a_missing_folder_names_itself_and_the_cure(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no such folder.*healthsvc simulate") as refused:
        RecordedSource(tmp_path / "none")
    assert refused.value.permanent


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("recording.json", None, "missing"),
        ("recording.json", "{", "cannot be read"),
        ("recording.json", json.dumps({"format": 99}), "format = 99.*reads 1"),
        ("recording.json", json.dumps({"format": 1, "step_s": 60}), "start_s = None"),
        ("gpus.csv", None, "missing"),
        ("gpus.csv", "hostname\nnode-001\n", "without device_id"),
    ],
)
def test_a_broken_folder_is_refused_with_its_file_and_a_cure(
    copy: Path, name: str, content: str | None, said: str
) -> None:
    (copy / name).unlink() if content is None else (copy / name).write_text(content, "utf-8")
    with pytest.raises(SourceError, match=f"{name}.*{said}.*healthsvc simulate"):
        RecordedSource(copy)


def test_a_corrupt_day_names_its_file(copy: Path) -> None:
    path = copy / "telemetry" / "2026-01-06.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    times_s = uniform_times(START_S + 86_400, START_S + 90_000, 60.0)
    with pytest.raises(SourceError, match=r"2026-01-06\.parquet.*cannot be read"):
        RecordedSource(copy).read(times_s)


def test_a_day_of_other_gpus_is_refused(copy: Path) -> None:
    path = copy / "telemetry" / "2026-01-06.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "gpu", table["gpu"].combine_chunks().fill_null(0).cast("int32")), path)
    gpus = (copy / "gpus.csv").read_text("utf-8").splitlines()
    (copy / "gpus.csv").write_text("\n".join(gpus[:5]) + "\n", "utf-8")
    with pytest.raises(SourceError, match=r"gpu = 15.*has 4 rows"):
        RecordedSource(copy).discover(START_S + 86_400, START_S + 90_000)
