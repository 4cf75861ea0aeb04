"""What the recording writer writes is what the recorded source reads."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from healthsvc.fleet import DAY_S, GpuId, PlaceSeries, Signal
from healthsvc.telemetry.recorded import RecordedSource
from healthsvc.telemetry.recording import RecordingWriter
from healthsvc.telemetry.source import RawGrid

START_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
GPUS = (GpuId("GPU-a", "node-0", "0", "NVIDIA L4", "00000000:01:00.0"), GpuId("GPU-b", "node-1"))
CELLS = st.one_of(st.just(float("nan")), st.integers(0, 1000).map(float))


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_day_is_read_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("recording") / "one"
    columns = data.draw(st.integers(1, 6))
    times = START_S + 300.0 + 60.0 * np.arange(columns, dtype=np.float64)
    cells = st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=2, max_size=2)
    values = {signal: np.array(data.draw(cells)) for signal in (Signal.GPU_TEMPERATURE, Signal.ENERGY)}
    inlet = np.array([[20.0] * columns], np.float32)
    grid = RawGrid(GPUS, times, values, {Signal.INLET: PlaceSeries("node", ("node-0",), inlet)})
    known = np.any([~np.isnan(array) for array in values.values()], axis=0)
    if not known.any():
        with pytest.raises(ValueError, match="no sample"), RecordingWriter(folder, GPUS, 60.0, {}) as writer:
            assert writer.add_day(grid) == 0
        assert not folder.exists()
        return
    with RecordingWriter(folder, GPUS, 60.0, {"of": "a test"}) as writer:
        assert writer.add_day(grid) == int(known.sum())
    source = RecordedSource(folder)
    heard = times[known.any(axis=0)]
    assert source.span() == (heard[0], heard[-1])
    read = source.read(times, GPUS, 60.0)
    for signal, wanted in values.items():
        if not np.isnan(wanted).all():
            np.testing.assert_array_equal(read.values[signal], wanted, signal)
    np.testing.assert_array_equal(read.environment[Signal.INLET].values[:, known.any(axis=0)], 20.0)


def test_a_recording_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    grid = RawGrid(GPUS, np.array([START_S + DAY_S / 2]), {Signal.POWER: np.array([[1.0], [2.0]])})

    def break_off() -> None:
        with RecordingWriter(tmp_path / "one", GPUS, 60.0, {}) as writer:
            writer.add_day(grid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert [*tmp_path.iterdir()] == []
