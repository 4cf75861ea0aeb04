"""Thermal throttling by clock hour, gathered window by window."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.windows import thermal_throttle_seconds
from healthsvc.fleet import HARDWARE_DOSE, HOUR_S, THROTTLE_DOSE, FleetWindow, GpuId, Signal, first_rows


@dataclass(frozen=True)
class Heat:
    """The hours in which any GPU has the thermal dose: hours int64[hour] since 1970; matrices [gpu, hour].

    dose: share of the hour throttled by heat; severe: hardware slowdown above its share; onset_s: first throttled
    column's begin, inf if none.
    """

    gpus: tuple[GpuId, ...]
    hours: NDArray[np.int64]
    dose: NDArray[np.float64]
    severe: NDArray[np.bool_]
    onset_s: NDArray[np.float64]

    @property
    def hot(self) -> NDArray[np.bool_]:
        """bool[gpu, hour]: the thermal dose of a service event."""
        return np.asarray(self.dose >= THROTTLE_DOSE)


class Cells(NamedTuple):
    """Seconds throttled, one cell a GPU row and clock hour (since 1970): thermal is software and hardware together.
    onset_s: first throttled column's begin.
    """

    row: NDArray[np.int32]
    hour: NDArray[np.int64]
    thermal_s: NDArray[np.float64]
    hardware_s: NDArray[np.float64]
    onset_s: NDArray[np.float64]


NO_CELLS = Cells(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class HourlyDose:
    """Seconds throttled per GPU and clock hour: [gpu, hour], kept as the cells that are not zero.

    parts: of cells, each less than half as large as the one before; an hour may be spread over them. until_s: what has
    been taken in; windows come in order and may overlap. A share is of the whole hour, so a lower bound where samples
    are missing; an hour without samples looks like a calm one.
    """

    gpus: tuple[GpuId, ...] = ()
    parts: tuple[Cells, ...] = ()
    until_s: float = -np.inf

    def add(self, window: FleetWindow) -> "HourlyDose":
        """With the columns of `window` that are later than `until_s`; GPUs that are new get rows of their own."""
        fresh = window.times_s > self.until_s
        if not fresh.any():
            return self
        gpus, rows = _joined(self.gpus, window.gpus)
        # The choice among throttle counters needs the whole window; only then is it cut.
        thermal = thermal_throttle_seconds(window)[:, fresh]
        hardware = np.minimum(window.get(Signal.HARDWARE_THERMAL_THROTTLE)[:, fresh], window.step_s)
        at, column = np.nonzero(thermal > 0)
        end_s = window.times_s[fresh][column]  # a column is the interval that ends there
        slow = hardware[at, column].astype(np.float64)
        new = Cells(
            rows[at],
            (np.ceil(end_s / HOUR_S) - 1).astype(np.int64),
            thermal[at, column].astype(np.float64),
            np.where(np.isnan(slow), 0.0, slow),
            end_s - window.step_s,
        )
        parts = (*self.parts, new) if len(at) else self.parts
        # Only the small parts at the end are summed anew: all of them each time would grow with the square of a hot
        # spell, and none of them would keep a cell for every column.
        while len(parts) > 1 and len(parts[-2].row) <= 2 * len(parts[-1].row):
            parts = (*parts[:-2], _summed(parts[-2:]))
        return HourlyDose(gpus, parts, window.now_s)

    def cells(self) -> Cells:
        """All, one a GPU and hour, by row and hour."""
        return _summed(self.parts)

    def matrix(self, gpus: Sequence[GpuId], until_s: float = np.inf) -> Heat:
        """The hours that end by `until_s` in which any of `gpus` has the thermal dose, as matrices of those GPUs."""
        cells, number = self.cells(), first_rows(gpus)
        new_row = np.array([number.get(gpu.device_id, -1) for gpu in self.gpus], np.intp)
        row = new_row[cells.row] if len(cells.row) else np.zeros(0, np.intp)
        kept = (row >= 0) & ((cells.hour + 1) * HOUR_S <= until_s)
        hours = np.unique(cells.hour[kept & (cells.thermal_s >= THROTTLE_DOSE * HOUR_S)])
        kept &= np.isin(cells.hour, hours)
        cell = (row[kept], np.searchsorted(hours, cells.hour[kept]))
        shape = (len(gpus), len(hours))
        dose, severe, onset_s = np.zeros(shape), np.zeros(shape, bool), np.full(shape, np.inf)
        dose[cell] = cells.thermal_s[kept] / HOUR_S
        severe[cell] = cells.hardware_s[kept] > HARDWARE_DOSE * HOUR_S
        onset_s[cell] = cells.onset_s[kept]
        return Heat(tuple(gpus), hours, dose, severe, onset_s)


def _joined(known: tuple[GpuId, ...], gpus: tuple[GpuId, ...]) -> tuple[tuple[GpuId, ...], NDArray[np.int32]]:
    """`known` followed by the newcomers among `gpus`, and the row of each of `gpus` in it."""
    if known == gpus:
        return known, np.arange(len(gpus), dtype=np.int32)
    number = first_rows(known)
    joined = known + tuple(gpu for gpu in gpus if gpu.device_id not in number)
    number = first_rows(joined)
    return joined, np.array([number[gpu.device_id] for gpu in gpus], np.int32)


def _summed(parts: Sequence[Cells]) -> Cells:
    """One cell a GPU and hour: seconds add, the earliest onset stays."""
    if not parts:
        return NO_CELLS
    row, hour, thermal_s, hardware_s, onset_s = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((hour, row))
    row, hour = row[order], hour[order]
    first = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(hour, prepend=-1) != 0))
    return Cells(
        row[first],
        hour[first],
        np.add.reduceat(thermal_s[order], first),
        np.add.reduceat(hardware_s[order], first),
        np.minimum.reduceat(onset_s[order], first),
    )
