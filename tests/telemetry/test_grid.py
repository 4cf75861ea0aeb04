"""Counters to increments: what must hold for any samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from healthsvc.fleet import GpuId, Signal
from healthsvc.telemetry.framing.grid import CounterCarry, frame, increments, uniform_times
from healthsvc.telemetry.source import RawGrid

RAW = arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 12)),
    elements=st.one_of(st.just(np.nan), st.integers(0, 10**12).map(float)),
)


def raw_grid(values: np.ndarray, first_column: int = 0, signal: Signal = Signal.ENERGY) -> RawGrid:
    gpus = tuple(GpuId(f"GPU-{k}") for k in range(len(values)))
    return RawGrid(gpus, (np.arange(float(values.shape[1])) + first_column) * 60.0, {signal: values})


def carried(carry: CounterCarry, signal: Signal = Signal.ENERGY) -> dict[str, float]:
    """device_id -> last raw value, of those that have one."""
    last = carry.last[signal]
    return {device_id: float(last[row]) for device_id, row in carry.row.items() if not np.isnan(last[row])}


@given(RAW)
def test_increments_are_never_negative_and_gaps_stay(raw: np.ndarray) -> None:
    step, _ = increments(raw, np.full(len(raw), np.nan))
    np.testing.assert_array_equal(np.isnan(step), np.isnan(raw))
    assert (step[~np.isnan(step)] >= 0).all()


@given(RAW, st.data())
def test_splitting_a_window_anywhere_changes_no_increment(raw: np.ndarray, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, raw.shape[1]))
    whole, last = frame(raw_grid(raw))
    first, carry = frame(raw_grid(raw[:, :cut]))
    if cut == raw.shape[1]:
        assert carried(carry) == carried(last)
        return
    second, carry = frame(raw_grid(raw[:, cut:], cut), carry)
    for signal in (Signal.ENERGY, Signal.DRIVER_RELOADS):
        joined = np.concatenate([first.get(signal), second.get(signal)], axis=1)
        np.testing.assert_array_equal(joined, whole.get(signal))
    assert carried(carry) == carried(last)


@given(RAW)
def test_a_counter_that_only_rises_loses_nothing(raw: np.ndarray) -> None:
    rising = np.where(np.isnan(raw), np.nan, np.cumsum(np.where(np.isnan(raw), 0, raw), axis=1))
    step, last = increments(rising, np.zeros(len(raw)))
    np.testing.assert_array_equal(np.nansum(step, axis=1), last)


def test_a_reset_counts_from_zero_and_is_a_driver_reload() -> None:
    window, _ = frame(raw_grid(np.array([[100.0, 110.0, np.nan, 4.0, 5.0]])))
    np.testing.assert_array_equal(window.get(Signal.ENERGY), [[0, 10, np.nan, 4, 1]])
    np.testing.assert_array_equal(window.get(Signal.DRIVER_RELOADS), [[0, 0, np.nan, 1, 0]])


def test_a_large_counter_keeps_its_smallest_step() -> None:
    window, _ = frame(raw_grid(np.array([[2.0**40, 2.0**40 + 1]]), signal=Signal.SBE_AGGREGATE))
    assert window.get(Signal.SBE_AGGREGATE)[0, 1] == 1


def test_a_gpu_that_was_away_resumes_from_its_own_carry() -> None:
    _, carry = frame(raw_grid(np.array([[5.0], [7.0]])), CounterCarry())
    alone = RawGrid((GpuId("GPU-1"),), np.array([60.0]), {Signal.ENERGY: np.array([[9.0]])})
    window, carry = frame(alone, carry)
    assert window.get(Signal.ENERGY)[0, 0] == 2
    assert carried(carry) == {"GPU-0": 5.0, "GPU-1": 9.0}


@pytest.mark.parametrize("middle_s", [60.0, 90.0, 119.0])
def test_joining_windows_share_no_column(middle_s: float) -> None:
    joined = np.concatenate([uniform_times(0, middle_s, 30), uniform_times(middle_s, 300, 30)])
    np.testing.assert_array_equal(joined, uniform_times(0, 300, 30))


def test_decimals_that_differ_by_less_than_a_unit_are_no_restart() -> None:
    # An upgrade from millijoules to whole joules.
    window, _ = frame(raw_grid(np.array([[1e6 + 0.9, 1e6, 1e6 + 5]])))
    np.testing.assert_array_equal(window.get(Signal.ENERGY), [[0, 0, 5]])
    np.testing.assert_array_equal(window.get(Signal.DRIVER_RELOADS), [[0, 0, 0]])
    window, _ = frame(raw_grid(np.array([[1e6, 1e6 - 1]])))
    np.testing.assert_array_equal(window.get(Signal.DRIVER_RELOADS), [[0, 1]])
