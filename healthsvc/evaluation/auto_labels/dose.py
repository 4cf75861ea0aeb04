"""Thermal throttling by clock hour, gathered window by window; and when it is the domain's rather than the GPU's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.facts import DOMAIN_LAYERS, HARDWARE_DOSE, THROTTLE_DOSE
from healthsvc.features.medians import group_count
from healthsvc.features.windows import thermal_throttle_seconds
from healthsvc.fleet import LEAST_MEMBERS, FleetWindow, GpuId, Signal, Topology, first_rows

HOUR_S = 3600.0


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


@dataclass(frozen=True)
class HourlyDose:
    """Seconds throttled per GPU and clock hour: [gpu, hour], kept as the cells that are not zero.

    row, hour (since 1970), thermal_s (software and hardware), hardware_s and onset_s are one a cell. until_s: what has
    been taken in; windows come in order and may overlap. A share is of the whole hour, so a lower bound where samples
    are missing; an hour without samples looks like a calm one.
    """

    gpus: tuple[GpuId, ...] = ()
    row: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    hour: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    thermal_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    hardware_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    onset_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
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
        return _summed(
            gpus,
            np.concatenate([self.row, rows[at]]),
            np.concatenate([self.hour, (np.ceil(end_s / HOUR_S) - 1).astype(np.int64)]),
            np.concatenate([self.thermal_s, thermal[at, column].astype(np.float64)]),
            np.concatenate([self.hardware_s, np.where(np.isnan(slow), 0.0, slow)]),
            np.concatenate([self.onset_s, end_s - window.step_s]),
            window.now_s,
        )

    def matrix(self, gpus: Sequence[GpuId], until_s: float = np.inf) -> Heat:
        """The hours that end by `until_s` in which any of `gpus` has the thermal dose, as matrices of those GPUs."""
        number = first_rows(gpus)
        new_row = np.array([number.get(gpu.device_id, -1) for gpu in self.gpus], np.intp)
        row = new_row[self.row] if len(self.row) else np.zeros(0, np.intp)
        kept = (row >= 0) & ((self.hour + 1) * HOUR_S <= until_s)
        hours = np.unique(self.hour[kept & (self.thermal_s >= THROTTLE_DOSE * HOUR_S)])
        kept &= np.isin(self.hour, hours)
        cell = (row[kept], np.searchsorted(hours, self.hour[kept]))
        shape = (len(gpus), len(hours))
        dose, severe, onset_s = np.zeros(shape), np.zeros(shape, bool), np.full(shape, np.inf)
        dose[cell] = self.thermal_s[kept] / HOUR_S
        severe[cell] = self.hardware_s[kept] > HARDWARE_DOSE * HOUR_S
        onset_s[cell] = self.onset_s[kept]
        return Heat(tuple(gpus), hours, dose, severe, onset_s)


def shared_heat(hot: NDArray[np.bool_], topology: Topology) -> NDArray[np.bool_]:
    """bool[gpu, column]: hot together with at least two others of one of its domains: the domain's event, not its own.

    hot: bool[gpu, column], a column being an hour or a day.
    """
    shared = np.zeros_like(hot)
    for layer in DOMAIN_LAYERS:
        shared |= group_count(hot, topology.group(layer, len(hot))) >= LEAST_MEMBERS
    return shared & hot


def _joined(known: tuple[GpuId, ...], gpus: tuple[GpuId, ...]) -> tuple[tuple[GpuId, ...], NDArray[np.int32]]:
    """`known` followed by the newcomers among `gpus`, and the row of each of `gpus` in it."""
    if known == gpus:
        return known, np.arange(len(gpus), dtype=np.int32)
    number = first_rows(known)
    joined = known + tuple(gpu for gpu in gpus if gpu.device_id not in number)
    number = first_rows(joined)
    return joined, np.array([number[gpu.device_id] for gpu in gpus], np.int32)


def _summed(
    gpus: tuple[GpuId, ...],
    row: NDArray[np.int32],
    hour: NDArray[np.int64],
    thermal_s: NDArray[np.float64],
    hardware_s: NDArray[np.float64],
    onset_s: NDArray[np.float64],
    until_s: float,
) -> HourlyDose:
    """One cell a GPU and hour: seconds add, the earliest onset stays."""
    order = np.lexsort((hour, row))
    row, hour = row[order], hour[order]
    first = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(hour, prepend=-1) != 0))
    if not len(first):
        return HourlyDose(gpus, until_s=until_s)
    return HourlyDose(
        gpus,
        row[first],
        hour[first],
        np.add.reduceat(thermal_s[order], first),
        np.add.reduceat(hardware_s[order], first),
        np.minimum.reduceat(onset_s[order], first),
        until_s,
    )
