"""What has happened and still holds, from the telemetry alone. Facts need no model and pass every gate."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.events import absent_columns
from healthsvc.features.medians import group_count, nan_sum
from healthsvc.features.windows import thermal_throttle_seconds
from healthsvc.fleet import (
    CLASSES,
    DAY_S,
    HARDWARE_DOSE,
    HOUR_S,
    LEAST_MEMBERS,
    LIVENESS,
    RECURS_WITHIN_S,
    THROTTLE_DOSE,
    EventKind,
    EventLog,
    Facts,
    FleetHistory,
    Signal,
    Topology,
    frozen_array,
)
from healthsvc.fleet.xids import XIDS_BY_CLASS

OPEN_FOR_S = 7 * DAY_S  # an open T2 whose reset nobody reported lapses after this long
TERMINAL_FOR_S = 60 * DAY_S  # a device that failed again and has worked for so long since was repaired
OFF_BUS = 79.0  # a GPU that vanished beside its live node has done the same as one that said XID 79
BACK_AFTER_S = DAY_S  # an XID so long after a loss shows that the GPU was back; a sooner one may belong to the loss
DOMAIN_LAYERS = ("node", "rack", "cooling_loop", "power_feed")
NOW_S = 600.0  # throttling now: in the last ten minutes, for more than the share below
NOW_DOSE = 0.05
CLASS_KINDS = {
    ("memory", "T2"): (EventKind.DOUBLE_BIT_ERROR, EventKind.UNCORRECTABLE_REMAP, EventKind.RETIRED_PAGES),
    ("memory", "T1"): (EventKind.REMAP_FAILURE,),
    ("memory", "P"): (EventKind.REMAP_PENDING,),
    ("device_loss", "T2"): (EventKind.LOST,),
}

Flags = NDArray[np.bool_]


def _hour_columns(history: FleetHistory) -> int:
    return max(1, round(HOUR_S / history.recent.step_s))


def hourly_dose(history: FleetHistory) -> NDArray[np.float64]:
    """Share of the last hour spent throttled by heat [gpu]; NaN if not observed."""
    return nan_sum(thermal_throttle_seconds(history.recent, _hour_columns(history))) / HOUR_S


def hardware_dose(history: FleetHistory, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Share of the last hour spent in hardware slowdown [row], of these GPUs; NaN if not observed."""
    seconds = history.recent.get(Signal.HARDWARE_THERMAL_THROTTLE)
    return nan_sum(seconds[rows, -_hour_columns(history) :]) / HOUR_S


def throttling_now(history: FleetHistory) -> tuple[Flags, Flags]:
    """(throttled by heat in the last ten minutes, observed at all) per GPU; read-only."""
    return history.once("throttling_now", _throttling_now)


def _throttling_now(history: FleetHistory) -> tuple[Flags, Flags]:
    columns = max(1, round(NOW_S / history.recent.step_s))
    total = nan_sum(thermal_throttle_seconds(history.recent, columns))
    seen = ~np.isnan(total)
    return frozen_array(seen & (np.where(seen, total, 0.0) > NOW_DOSE * NOW_S)), frozen_array(seen)


def domain_throttling(hot: Flags, topology: Topology) -> Flags:
    """Hot together with at least two others of one of its domains: the domain's event, not the GPU's own.

    hot, and what is returned: bool[gpu], or bool[gpu, column] where a column is an hour or a day.
    """
    shared = np.zeros_like(hot)
    for layer in DOMAIN_LAYERS:
        shared |= group_count(hot, topology.group(layer, len(hot))) >= LEAST_MEMBERS
    return shared & hot


def lost(history: FleetHistory) -> Flags:
    """bool[gpu]: no sample in the newest columns although a sibling on its node answers in them; read-only.

    A GPU that has never given a liveness sample is not lost but unknown: nobody has seen it alive.
    """
    return history.once("lost", _lost)


def _lost(history: FleetHistory) -> Flags:
    newest = history.recent.columns(slice(-absent_columns(history.recent), None))
    alive = np.asarray(newest.alive(LIVENESS).any(axis=1))
    ever = history.recent.alive(LIVENESS).any(axis=1) | (history.daily.exposure_h > 0).any(axis=1)
    return frozen_array(ever & ~alive & (group_count(alive, history.topology.group("node", len(alive))) > 0))


def class_events(events: EventLog, failure_class: str, grades: tuple[str, ...] = ("T1", "T2")) -> EventLog:
    """The events that are of this class at these grades (P: precursors): its XIDs; for memory also double-bit errors,
    rows remapped and pages retired for them, remaps that failed (T1) or wait for a reset (P); for device_loss losses.
    """
    codes = [code for code, grade in XIDS_BY_CLASS.get(failure_class, {}).items() if grade in grades]
    mask = (events.kind == EventKind.XID) & np.isin(events.value, codes)
    for (of_class, grade), kinds in CLASS_KINDS.items():
        if failure_class == of_class and grade in grades:
            mask |= np.isin(events.kind, kinds)
    return events.where(mask)


def remembered(events: EventLog) -> EventLog:
    """The failures and precursors of memory and devices, and the rows remapped for correctable errors, which explain
    precursors away: what a GPU's past is made of, long after the rest is gone."""
    codes = [code for name in ("memory", "device_loss") for code in XIDS_BY_CLASS[name]]
    kinds = [kind for (name, _), each in CLASS_KINDS.items() if name in ("memory", "device_loss") for kind in each]
    kinds.append(EventKind.CORRECTABLE_REMAP)
    return events.where(((events.kind == EventKind.XID) & np.isin(events.value, codes)) | np.isin(events.kind, kinds))


def newest_s(log: EventLog, gpu_count: int) -> NDArray[np.float64]:
    """Start of each GPU's newest event [gpu]; -inf without one."""
    newest = np.full(gpu_count, -np.inf)
    np.maximum.at(newest, log.row, log.start_s)
    return newest


def recurring(events: EventLog) -> Flags:
    """bool[failure], one for each of class_events(events, "device_loss"): the same had happened to this GPU, and the
    reboot that followed lies less than 14 days back. Terminal.

    The same: an equal XID, or vanishing once more (XID 79 included). A reboot: a driver reload, a node that was gone,
    or a loss from which the GPU came back, seen or not: a day later it must have.
    """
    failures = class_events(events, "device_loss")
    if not len(failures):
        return np.zeros(0, bool)
    what = np.where(failures.kind == EventKind.LOST, OFF_BUS, failures.value)
    order = np.lexsort((failures.start_s, what, failures.row))
    follows = (np.diff(failures.row[order]) == 0) & (np.diff(what[order]) == 0)
    at, before = order[1:][follows], order[:-1][follows]
    # One axis of time for all GPUs, each with a stretch of its own: what lies between two events of a GPU is its own.
    first_s, stretch_s = events.start_s.min(), np.ptp(events.start_s) + 2 * BACK_AFTER_S

    def on_axis(log: EventLog) -> NDArray[np.float64]:
        return np.asarray(log.start_s - first_s + log.row * stretch_s)

    failed = on_axis(failures)
    reboot = np.full(len(at), np.inf)
    for kinds, wait_s in (((EventKind.DRIVER_RELOAD, EventKind.GAP), 0.0), ((EventKind.LOST,), BACK_AFTER_S)):
        reset = np.append(np.sort(on_axis(events.of(*kinds))), np.inf)
        earliest = reset[np.searchsorted(reset, failed[before])]
        counts = (earliest < failed[at]) & (earliest + wait_s <= failed[at])
        reboot = np.minimum(reboot, np.where(counts, earliest, np.inf))
    again = np.zeros(len(failures), bool)
    again[at] = failed[at] - reboot < RECURS_WITHIN_S
    again[at] &= np.isfinite(reboot)
    return again


def facts(history: FleetHistory) -> Facts:
    """Open T2 events and T1 facts per class, and which GPUs are lost.

    A memory or device event is open until a driver reload or a return after an absence follows it, or for seven days
    where nobody reports resets. A thermal event is open while the last hour holds the dose. Memory that cannot repair
    itself stays terminal, a device that failed again for sixty days after that.
    """
    gpu_count, now_s = len(history.gpus), history.now_s
    events = history.events.known_at(now_s)
    open_events = np.zeros((gpu_count, len(CLASSES)), bool)
    terminal = np.zeros_like(open_events)
    gone = lost(history)
    absent = newest_s(events.of(EventKind.LOST, EventKind.GAP), gpu_count)
    returned = np.where(gone, -np.inf, absent)
    reset = np.maximum(newest_s(events.of(EventKind.DRIVER_RELOAD), gpu_count), returned)

    hot = np.asarray(hourly_dose(history) >= THROTTLE_DOSE)
    alone = hot & ~domain_throttling(hot, history.topology)
    open_events[:, 0] = alone
    rows = np.flatnonzero(alone)
    terminal[rows, 0] = hardware_dose(history, rows) > HARDWARE_DOSE

    for column, name in ((1, "memory"), (2, "device_loss")):
        last = newest_s(class_events(events, name), gpu_count)
        open_events[:, column] = (last > reset) & (now_s - last < OPEN_FOR_S)
        terminal[:, column] = np.isfinite(newest_s(class_events(events, name, ("T1",)), gpu_count))
    for signal in (Signal.REMAP_FAILURE, Signal.SRAM_THRESHOLD, Signal.UNREPAIRABLE):
        terminal[:, 1] |= history.recent.last(signal) >= 1
    open_events[:, 2] |= gone
    failures = class_events(events, "device_loss")
    terminal[failures.row[recurring(events) & (now_s - failures.start_s < TERMINAL_FOR_S)], 2] = True

    # An absence begins with the last of the columns that prove it: the GPU was last seen in the one before the first.
    proof_s = absent_columns(history.recent) * history.recent.step_s
    since = np.where(np.isfinite(absent), absent - proof_s, history.recent.times_s[0])
    return Facts(open_events | terminal, terminal, np.where(gone, since, np.nan))
