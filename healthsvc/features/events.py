"""Episodes in a window of telemetry. What is returned has begun after `since_s`; what lies before is lead-in."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.medians import group_count
from healthsvc.features.throttling import ONSET_BIN_S as ONSET_BIN_S  # for its readers
from healthsvc.features.throttling import ONSET_DOSE as ONSET_DOSE
from healthsvc.features.throttling import Episodes, ThrottleKind, throttle_episodes
from healthsvc.features.windows import preferred
from healthsvc.fleet import LIVENESS, EventKind, EventLog, FleetWindow, Floats, Signal

LEAD_IN_S = 2400.0  # a throttle onset needs 30 min without one before it, in 5 min bins
ONSETS = {
    EventKind.THERMAL_THROTTLE: ThrottleKind.THERMAL,
    EventKind.HARDWARE_THROTTLE: ThrottleKind.HARDWARE_THERMAL,
    EventKind.POWER_BRAKE: ThrottleKind.POWER_BRAKE,
}
LOST_COLUMNS = 3  # missed samples before a GPU counts as gone; one or two are a slow scrape
LEAST_LOST_S = 180.0


def detect_events(window: FleetWindow, node: NDArray[np.int32], since_s: float) -> EventLog:
    """All episodes that begin in (since_s, end of window], sorted by start.

    Blind to what the exporter hides: a repeat of the same XID leaves the gauge unchanged and is not seen; two XIDs
    between two samples show only the later one.
    """
    parts = [
        _xids(window),
        _counted(window, preferred(window, Signal.DBE_AGGREGATE, Signal.DBE_VOLATILE), EventKind.DOUBLE_BIT_ERROR),
        _counted(window, window.get(Signal.UNCORRECTABLE_REMAPS), EventKind.UNCORRECTABLE_REMAP),
        _counted(window, window.get(Signal.CORRECTABLE_REMAPS), EventKind.CORRECTABLE_REMAP),
        _counted(window, window.get(Signal.RETIRED_PAGES_DBE), EventKind.RETIRED_PAGES),
        _counted(window, window.get(Signal.DRIVER_RELOADS), EventKind.DRIVER_RELOAD),
        _raised(window, Signal.REMAP_FAILURE, EventKind.REMAP_FAILURE),
        _raised(window, Signal.REMAP_PENDING, EventKind.REMAP_PENDING),
        *(_onsets(throttle_episodes(window, reason), kind) for kind, reason in ONSETS.items()),
        _absences(window, node),
    ]
    log = EventLog()
    for part in parts:
        log = log.merged(part)
    return begun_in(log, since_s)


def begun_in(log: EventLog, since_s: float, until_s: float = np.inf) -> EventLog:
    """The episodes that began in (since_s, until_s]: spans that join share none and lose none.

    An onset of throttling stands at the beginning of its bin, before the first sample of it: the bin begins there.
    """
    at_s = log.start_s + np.where(np.isin(log.kind, list(ONSETS)), 1.0, 0.0)
    return log.where((at_s > since_s) & (at_s <= until_s))


def _points(
    window: FleetWindow, at: NDArray[np.bool_], kind: EventKind, values: NDArray[Any], duration_s: float = 0.0
) -> EventLog:
    """An event wherever `at` [gpu, time] holds."""
    row, column = np.nonzero(at)
    start = window.times_s[column]
    return EventLog(
        row.astype(np.int32),
        start,
        start + duration_s,
        np.full(len(row), kind, np.int16),
        values[row, column].astype(np.float64),
    )


def _previous(values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Newest earlier sample [gpu, time], NaN if none; and whether there is one."""
    seen = ~np.isnan(values)
    column = np.maximum.accumulate(np.where(seen, np.arange(values.shape[1]), -1), axis=1)
    before = np.concatenate([np.full((len(values), 1), -1), column[:, :-1]], axis=1)
    taken = np.take_along_axis(values, np.maximum(before, 0), axis=1)
    found: Floats = np.where(before >= 0, taken, np.nan)
    return found, before >= 0


def _xids(window: FleetWindow) -> EventLog:
    """A changed XID gauge, or the first code of a GPU that had been silent about XIDs while it was alive.

    Some exporters show 0 until the first XID, others show no series at all: both beginnings are events. A code that
    is there from the first column on may be months old (the gauge sticks until the driver restarts) and is none.
    """
    codes = window.get(Signal.XID)
    rows = np.flatnonzero((codes > 0).any(axis=1))  # few GPUs show a code at all
    if not len(rows):
        return EventLog()
    code = codes[rows]
    before, had = _previous(code)
    alive = np.maximum.accumulate(window.alive(LIVENESS)[rows], axis=1)
    was_alive = np.concatenate([np.zeros((len(rows), 1), bool), alive[:, :-1]], axis=1)
    fresh = np.zeros(codes.shape, bool)
    fresh[rows] = (code > 0) & np.where(had, code != before, was_alive)
    return _points(window, fresh, EventKind.XID, codes)


def _counted(window: FleetWindow, increments: Floats, kind: EventKind) -> EventLog:
    return _points(window, increments > 0, kind, increments)


def _raised(window: FleetWindow, signal: Signal, kind: EventKind) -> EventLog:
    """A flag that is up and was not up at the sample before (or has no sample before: known from here on)."""
    flags = window.get(signal)
    up = flags >= 1
    rows = np.flatnonzero(up.any(axis=1))
    before, _ = _previous(flags[rows])
    up[rows] &= ~(before >= 1)
    return _points(window, up, kind, flags)


def _onsets(episodes: Episodes, kind: EventKind) -> EventLog:
    """Where throttling begins, as long as its first five minutes; value: their dose. Flapping is one event."""
    log = EventLog(
        episodes.row,
        episodes.start_s,
        episodes.start_s + ONSET_BIN_S,
        np.full(len(episodes), kind, np.int16),
        episodes.first_dose_ratio,
    )
    return log.where(np.argsort(log.start_s, kind="stable"))


def absent_columns(window: FleetWindow) -> int:
    """How many missed columns make an absence."""
    return max(LOST_COLUMNS, int(np.ceil(LEAST_LOST_S / window.step_s)))


def _absences(window: FleetWindow, node: NDArray[np.int32]) -> EventLog:
    """LOST: gone for three samples while a sibling on its node answers. GAP: gone together with the whole node."""
    alive = window.alive(LIVENESS)
    needed = absent_columns(window)
    if alive.shape[1] <= needed:
        return EventLog()
    missed = [~alive[:, i : alive.shape[1] - needed + 1 + i] for i in range(needed)]
    run = np.logical_and.reduce(missed)  # [gpu, time - needed + 1]
    rows = np.flatnonzero(run.any(axis=1))  # few; their nodes are all that has to be looked at
    if not len(rows):
        return EventLog()
    gone = np.zeros((len(rows), alive.shape[1]), bool)
    gone[:, needed - 1 :] = run[rows]
    was_gone = np.concatenate([np.zeros((len(rows), 1), bool), gone[:, :-1]], axis=1)
    starts = gone & ~was_gone & np.maximum.accumulate(alive[rows], axis=1)
    near = np.flatnonzero(np.isin(node, node[rows]))
    siblings = group_count(alive[near], node[near])[np.searchsorted(near, rows)] - alive[rows]
    lost, gap = np.zeros(alive.shape, bool), np.zeros(alive.shape, bool)
    lost[rows] = starts & (siblings > 0)
    gap[rows] = starts & (siblings == 0) & (node[rows] >= 0)[:, None]
    ones = np.broadcast_to(1.0, alive.shape)
    return _points(window, lost, EventKind.LOST, ones).merged(_points(window, gap, EventKind.GAP, ones))
