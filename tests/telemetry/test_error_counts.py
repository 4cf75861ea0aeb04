"""Memory errors are counted exactly: what happens to the counters besides errors adds nothing.

Hidden truth: errors at known moments. What the exporter shows of them: an aggregate that survives reloads and is at
times cleared, a volatile count that restarts with the driver, and another board in the same socket with counts of its
own. The sum of the increments is the errors that could be seen, no more and no less.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.fleet import GpuId, Signal
from healthsvc.telemetry.framing.grid import CounterCarry, frame
from healthsvc.telemetry.source import RawGrid

COLUMNS = 24
ERRORS = st.lists(st.integers(0, 50_000), min_size=COLUMNS, max_size=COLUMNS)
MOMENTS = st.sets(st.integers(1, COLUMNS - 1), max_size=3)


def read(raw: np.ndarray, signal: Signal, device: str = "GPU-0", chunk: int = COLUMNS) -> np.ndarray:
    """Increments of one GPU, read in chunks as a live service does."""
    carry, parts = CounterCarry(), []
    for start in range(0, COLUMNS, chunk):
        times = 60.0 * np.arange(start, min(start + chunk, COLUMNS), dtype=np.float64)
        grid = RawGrid((GpuId(device),), times, {signal: raw[None, start : start + chunk]})
        window, carry = frame(grid, carry)
        parts.append(window.get(signal)[0])
    return np.concatenate(parts)


@settings(deadline=None)
@given(ERRORS, MOMENTS, st.integers(1, COLUMNS))
def test_a_reload_loses_and_invents_no_volatile_error(errors: list[int], reloads: set[int], chunk: int) -> None:
    """The driver restarts between two samples, and counts from zero what comes after."""
    shown, total = [], 0
    for column, new in enumerate(errors):
        total = new if column in reloads else total + new
        shown.append(float(total))
    told = read(np.array(shown), Signal.SBE_VOLATILE, chunk=chunk)
    seen = np.array(errors[1:], float)
    # A restart that reaches the old count within one sample cannot be told from none; then the difference is counted.
    for column in reloads:
        if shown[column] >= shown[column - 1]:
            seen[column - 1] = shown[column] - shown[column - 1]
    np.testing.assert_array_equal(told[1:], seen.astype(np.float32))


@settings(deadline=None)
@given(ERRORS, MOMENTS, st.integers(1, COLUMNS))
def test_an_aggregate_that_is_cleared_adds_nothing_of_its_past(
    errors: list[int], cleared: set[int], chunk: int
) -> None:
    shown, total = [], 54_731_746_511
    for column, new in enumerate(errors):
        total = 0 if column in cleared else total + new
        shown.append(float(total))
    told = read(np.array(shown), Signal.SBE_AGGREGATE, chunk=chunk)
    seen = [0.0 if column in cleared else float(new) for column, new in enumerate(errors)][1:]
    np.testing.assert_array_equal(told[1:], np.array(seen, np.float32))


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(2, COLUMNS - 2))
def test_a_board_that_comes_with_a_past_adds_none_of_it(old: int, new: int, swap: int) -> None:
    """Another UUID in the socket: its first sample is where its count begins, whatever stood there before."""
    carry, told = CounterCarry(), []
    for column in range(COLUMNS):
        device, count = ("GPU-old", old) if column < swap else ("GPU-new", new + (column - swap))
        grid = RawGrid((GpuId(device),), np.array([60.0 * column]), {Signal.SBE_AGGREGATE: np.array([[float(count)]])})
        window, carry = frame(grid, carry)
        told.append(float(window.get(Signal.SBE_AGGREGATE)[0, 0]))
    assert told[:swap] == [0.0] * swap
    assert told[swap] == 0.0
    assert told[swap + 1 :] == [1.0] * (COLUMNS - swap - 1)
