"""From raw samples on a grid to a FleetWindow: counters become increments, in float64, before anything is float32."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import COUNTERS, FleetWindow, GpuId, Signal
from healthsvc.telemetry.source import RawGrid

ROUNDING = 1.0  # base units; no restart takes a counter down by less, but one unit's decimals differ from another's


@dataclass(frozen=True)
class CounterCarry:
    """The last raw value of every counter, so that increments survive the seam between two windows.

    last[signal] is float64[row], NaN = no value yet; row: device_id -> row. Whoever was seen once keeps its row.
    """

    row: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    last: Mapping[Signal, NDArray[np.float64]] = field(default_factory=lambda: MappingProxyType({}))

    def joined_by(self, gpus: Sequence[GpuId]) -> tuple["CounterCarry", NDArray[np.intp]]:
        """The carry with a row for each of `gpus`, and those rows."""
        rows = np.fromiter(map(self.row.get, [gpu.device_id for gpu in gpus], repeat(-1)), np.intp, len(gpus))
        new = np.flatnonzero(rows < 0)
        if not len(new):
            return self, rows
        rows[new] = len(self.row) + np.arange(len(new))
        row = {**self.row, **{gpus[int(i)].device_id: int(rows[i]) for i in new}}
        unknown = np.full(len(new), np.nan)
        return CounterCarry(row, {signal: np.append(last, unknown) for signal, last in self.last.items()}), rows


def step_of(times_s: NDArray[np.float64], given_s: float | None, alone_s: float) -> float:
    """Width of a column: as given, else the spacing of the grid; `alone_s` for a column alone, which has none."""
    return given_s or (float(times_s[1] - times_s[0]) if len(times_s) > 1 else alone_s)


def uniform_times(start_s: float, end_s: float, step_s: float) -> NDArray[np.float64]:
    """Multiples of the step in (start, end]: windows that join have no column twice."""
    first = np.floor(start_s / step_s) + 1
    last = np.floor(end_s / step_s)
    return np.arange(first, last + 1) * step_s


def _predecessors(
    raw: NDArray[np.float64], before: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The newest earlier sample of each cell's GPU [gpu, time] (NaN: none), and each GPU's last sample [gpu]."""
    if not raw.shape[1]:
        return raw, before
    column = np.where(np.isnan(raw), -1, np.arange(raw.shape[1]))
    newest = np.maximum.accumulate(column, axis=1)
    filled = np.where(newest >= 0, np.take_along_axis(raw, np.maximum(newest, 0), axis=1), before[:, None])
    return np.concatenate([before[:, None], filled[:, :-1]], axis=1), filled[:, -1]


def increments(
    raw: NDArray[np.float64], before: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Counter increments [gpu, time] and the last raw value [gpu]; `before` is the value carried in (NaN: none).

    A sample is compared with the newest earlier sample of its GPU, so a gap's increments land on its end. A drop is a
    reset: the count since the restart is the new value itself (what was lost before the restart stays unknown). A
    drop of less than one unit is none: joules and millijoules of one counter differ in their decimals. The first
    sample ever has nothing to compare with: 0. NaN stays NaN.
    """
    previous, last = _predecessors(raw, before)
    step = raw - previous
    step = np.where(step <= -ROUNDING, raw, np.maximum(step, 0.0))
    return np.where(~np.isnan(raw) & np.isnan(previous), 0.0, step), last


def restarts(raw: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where a counter has dropped since its GPU's sample before, 0 where it has not [gpu, time]. NaN stays NaN."""
    previous, _ = _predecessors(raw, before)
    return np.where(np.isnan(raw), np.nan, raw <= previous - ROUNDING)


def frame(raw: RawGrid, carry: CounterCarry | None = None) -> tuple[FleetWindow, CounterCarry]:
    """A FleetWindow, and the carry for the window that follows it."""
    carry, rows = (carry or CounterCarry()).joined_by(raw.gpus)
    values: dict[Signal, NDArray[np.float32]] = {}
    kept: dict[Signal, NDArray[np.float64]] = dict(carry.last)
    for signal, samples in raw.values.items():
        if signal not in COUNTERS:
            values[signal] = samples.astype(np.float32)
            continue
        known = carry.last.get(signal, np.full(len(carry.row), np.nan))
        before = known[rows]
        step, last = increments(samples, before)
        values[signal] = step.astype(np.float32)
        if signal is Signal.ENERGY:  # it starts anew with the driver
            values[Signal.DRIVER_RELOADS] = restarts(samples, before).astype(np.float32)
        kept[signal] = known.copy()
        kept[signal][rows] = last  # still `before` where nothing newer came
    return FleetWindow(raw.gpus, raw.times_s, values), CounterCarry(carry.row, MappingProxyType(kept))
