"""Throttling by kind: how many seconds of each step, and the episodes that they make. A power cap is not a fault.

Clock event bits (NVML nvmlClocksEventReasons, DCGM field 112): 5 software thermal, 6 hardware thermal, 7 power brake.
Bit 2, the software power cap, is normal at full load; bit 3, hardware slowdown, comes with 6 and 7 and also with mere
changes of the performance state: neither is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.heat_wall import at_heat_wall
from healthsvc.fleet import HOUR_S, OPEN, FleetWindow, Floats, Signal

ONSET_BIN_S = 300.0
ONSET_DOSE = 0.01  # share of the bin
CLEAR_BINS = 6  # half an hour without throttling ends an episode
Rows = NDArray[np.intp] | slice
ALL = slice(None)


class ThrottleKind(Enum):
    """Why clocks are held down. THERMAL: by heat, in software or hardware."""

    SOFTWARE_THERMAL = "software_thermal"
    HARDWARE_THERMAL = "hardware_thermal"
    THERMAL = "thermal"
    POWER_BRAKE = "power_brake"


class Source(NamedTuple):
    """Seconds throttled [row, time] of some rows, and the signals without which it knows nothing."""

    signals: tuple[Signal, ...]
    read: Callable[[FleetWindow, Rows], Floats]


@dataclass(frozen=True)
class Episodes:
    """Spans of throttling, in order of row and start. All arrays are [episode].

    row int32; start_s, end_s float64: of five-minute bins, end_s infinite while it lasts; dose_s_per_hour: seconds
    throttled in an hour of it, until now if it lasts; first_dose_ratio: share of its first bin.
    """

    row: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    dose_s_per_hour: NDArray[np.float64]
    first_dose_ratio: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)


def throttle_episodes(window: FleetWindow, kind: ThrottleKind) -> Episodes:
    """Episodes of this kind that the window holds.

    One begins with a five-minute bin of which more than 1 % is throttled after 30 clear minutes, and ends before 30
    clear minutes: flapping, however fast, is one. Blind to what lies before the window: one that is there in its first
    half hour may have begun earlier. Time without samples counts as clear.
    """
    throttled_s = throttled_seconds(window, kind)
    rows = np.flatnonzero((throttled_s > 0).any(axis=1))  # few GPUs throttle
    bin_of = np.ceil(window.times_s / ONSET_BIN_S).astype(np.int64)
    bins, first_column = np.unique(bin_of, return_index=True)
    seconds = np.where(np.isnan(throttled_s[rows]), 0.0, throttled_s[rows]).astype(np.float64)
    gone_s = np.add.reduceat(seconds, first_column, axis=1)  # [row, bin]
    active = gone_s / ONSET_BIN_S > ONSET_DOSE
    begins = active & (_of_bins_before(active, CLEAR_BINS) == 0)
    row, first = np.nonzero(begins)
    at, column = np.nonzero(active)  # in order of row and time, as the beginnings are: each belongs to the last of them
    number = np.cumsum(begins)[at * len(bins) + column] - 1
    last = column[np.searchsorted(number, np.arange(len(row)), side="right") - 1]
    start_s = np.asarray((bins[first] - 1) * ONSET_BIN_S, np.float64)
    end_s = np.asarray(bins[last] * ONSET_BIN_S, np.float64)
    total_s = np.cumsum(np.concatenate([np.zeros((len(rows), 1)), gone_s], axis=1), axis=1)
    dose_s = total_s[row, last + 1] - total_s[row, first]
    lasts = window.now_s - end_s < CLEAR_BINS * ONSET_BIN_S
    hours = (np.where(lasts, window.now_s, end_s) - start_s) / HOUR_S
    return Episodes(
        rows[row].astype(np.int32),
        start_s,
        np.where(lasts, OPEN, end_s),
        np.minimum(dose_s / hours, HOUR_S),
        np.minimum(gone_s[row, first] / ONSET_BIN_S, 1.0),
    )


def _of_bins_before(active: NDArray[np.bool_], bins: int) -> NDArray[np.int64]:
    """How many of so many bins before each are active [row, bin]."""
    counts = np.cumsum(np.concatenate([np.zeros((len(active), 1), bool), active], axis=1), axis=1, dtype=np.int64)
    position = np.arange(active.shape[1])
    found: NDArray[np.int64] = counts[:, position] - counts[:, np.maximum(position - bins, 0)]
    return found


def throttled_seconds(window: FleetWindow, kind: ThrottleKind) -> Floats:
    """Seconds of each step throttled for this reason [gpu, time], from the best source that each GPU has; NaN without.

    The nanosecond counters; else, of heat, the combined violation counter, which cannot tell hardware from software
    and counts as software; else sampled clock event bits, blind to what lies between two samples; else, of heat, the
    signs of a heat wall in temperature, clock, power and load (see heat_wall).
    """
    return _best(window, _SOURCES[kind])


def thermal_throttle_seconds(window: FleetWindow, newest: int | None = None) -> Floats:
    """Seconds throttled by heat in each step [gpu, time]: software plus hardware counters, else the older combined
    one, else the sampled clock event bits 5 and 6 (blind to what lies between samples). A power cap is not heat.

    Only what is measured: this is the dose of verdicts and labels, for which the signs of a heat wall are too little.
    newest: only so many columns at the end. Which of the three a GPU has is told by the whole window either way.
    """
    return _best(window, _MEASURED_HEAT, newest)


def _best(window: FleetWindow, sources: Sequence[Source], newest: int | None = None) -> Floats:
    """Of each GPU the first source that has any sample in the window; at most the whole step."""
    columns = slice(None if newest is None else -newest, None)
    chosen = np.minimum(sources[0].read(window.columns(columns), ALL), window.step_s)
    rows = np.flatnonzero(np.all(np.isnan(chosen), axis=1))  # few, so the rest is worked out for these alone
    for source in sources:
        if not len(rows) or window.values.keys().isdisjoint(source.signals):
            continue
        whole = source.read(window, rows if len(rows) < len(chosen) else ALL)
        has = ~np.all(np.isnan(whole), axis=1)
        chosen[rows[has]] = np.minimum(whole[has, columns], window.step_s)
        rows = rows[~has]
    return chosen


def _counter(signal: Signal) -> Source:
    return Source((signal,), lambda window, rows: window.get(signal)[rows])


def _split(window: FleetWindow, rows: Rows) -> Floats:
    software = window.get(Signal.SOFTWARE_THERMAL_THROTTLE)[rows]
    hardware = window.get(Signal.HARDWARE_THERMAL_THROTTLE)[rows]
    summed: Floats = np.where(np.isnan(software), hardware, software + np.where(np.isnan(hardware), 0, hardware))
    return summed


def _less_hardware(window: FleetWindow, rows: Rows) -> Floats:
    """What the combined counter says beyond the hardware's, where that is there."""
    hardware = window.get(Signal.HARDWARE_THERMAL_THROTTLE)[rows]
    rest = window.get(Signal.THERMAL_THROTTLE)[rows] - np.where(np.isnan(hardware), 0, hardware)
    left: Floats = np.maximum(rest, 0)
    return left


def _sampled(*positions: int) -> Source:
    """Whole steps in which a sample shows one of these clock event bits."""
    mask = sum(1 << position for position in positions)

    def read(window: FleetWindow, rows: Rows) -> Floats:
        bits = window.get(Signal.CLOCK_EVENT_REASONS)[rows]
        known = ~np.isnan(bits)
        raised = (np.where(known, bits, 0).astype(np.int64) & mask) > 0
        sampled: Floats = np.where(known, raised * window.step_s, np.nan).astype(np.float32)
        return sampled

    return Source((Signal.CLOCK_EVENT_REASONS,), read)


_MEASURED_HEAT: tuple[Source, ...] = (
    Source((Signal.SOFTWARE_THERMAL_THROTTLE, Signal.HARDWARE_THERMAL_THROTTLE), _split),
    _counter(Signal.THERMAL_THROTTLE),
    _sampled(5, 6),
)
_HEAT_WALL = Source((Signal.GPU_TEMPERATURE,), at_heat_wall)
_SOURCES: dict[ThrottleKind, tuple[Source, ...]] = {
    ThrottleKind.SOFTWARE_THERMAL: (
        _counter(Signal.SOFTWARE_THERMAL_THROTTLE),
        Source((Signal.THERMAL_THROTTLE,), _less_hardware),
        _sampled(5),
        _HEAT_WALL,
    ),
    ThrottleKind.HARDWARE_THERMAL: (_counter(Signal.HARDWARE_THERMAL_THROTTLE), _sampled(6)),
    ThrottleKind.THERMAL: (*_MEASURED_HEAT, _HEAT_WALL),
    ThrottleKind.POWER_BRAKE: (_counter(Signal.POWER_BRAKE_THROTTLE), _sampled(7)),
}
