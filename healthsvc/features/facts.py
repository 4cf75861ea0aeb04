"""What has happened and still holds, from the telemetry alone. Facts need no model and pass every gate."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.events import absent_columns
from healthsvc.features.medians import group_count, nan_sum
from healthsvc.features.windows import thermal_throttle_seconds
from healthsvc.fleet import (
    CLASSES,
    DAY_S,
    LEAST_MEMBERS,
    LIVENESS,
    EventKind,
    EventLog,
    Facts,
    FleetHistory,
    Signal,
)
from healthsvc.fleet.xids import XIDS_BY_CLASS

THROTTLE_DOSE = 0.30  # share of an hour: thermal T2
HARDWARE_DOSE = 0.05  # of hardware slowdown: thermal T1
OPEN_FOR_S = 7 * DAY_S  # an open T2 whose reset nobody reported lapses after this long
RECURS_WITHIN_S = 14 * DAY_S  # XID 79 again within two weeks of a reboot is terminal
DOMAIN_LAYERS = ("node", "rack", "cooling_loop", "power_feed")


def _hour_columns(history: FleetHistory) -> int:
    return max(1, round(3600.0 / history.recent.step_s))


def hourly_dose(history: FleetHistory) -> NDArray[np.float64]:
    """Share of the last hour spent throttled by heat [gpu]; NaN if not observed."""
    return nan_sum(thermal_throttle_seconds(history.recent, _hour_columns(history))) / 3600.0


def hardware_dose(history: FleetHistory, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Share of the last hour spent in hardware slowdown [row], of these GPUs; NaN if not observed."""
    seconds = history.recent.get(Signal.HARDWARE_THERMAL_THROTTLE)
    return nan_sum(seconds[rows, -_hour_columns(history) :]) / 3600.0


def domain_throttling(history: FleetHistory, dose: NDArray[np.float64]) -> NDArray[np.bool_]:
    """bool[gpu]: at least 3 members of one of the GPU's domains have the thermal dose in the same hour."""
    hot = np.asarray(dose >= THROTTLE_DOSE)
    shared = np.zeros(len(hot), bool)
    for layer in DOMAIN_LAYERS:
        shared |= group_count(hot, history.topology.group(layer, len(hot))) >= LEAST_MEMBERS
    return shared & hot


def lost(history: FleetHistory) -> NDArray[np.bool_]:
    """bool[gpu]: no sample in the newest columns although a sibling on its node answers in them.

    A GPU that has never given a liveness sample is not lost but unknown: nobody has seen it alive.
    """
    newest = history.recent.columns(slice(-absent_columns(history.recent), None))
    alive = np.asarray(newest.alive(LIVENESS).any(axis=1))
    ever = history.recent.alive(LIVENESS).any(axis=1) | (history.daily.exposure_h > 0).any(axis=1)
    return np.asarray(ever & ~alive & (group_count(alive, history.topology.group("node", len(alive))) > 0))


def class_events(events: EventLog, failure_class: str, grades: tuple[str, ...] = ("T1", "T2")) -> EventLog:
    """The events that are of this class at these grades: its XIDs, and for memory double-bit errors, failed remaps."""
    codes = [code for code, grade in XIDS_BY_CLASS.get(failure_class, {}).items() if grade in grades]
    mask = (events.kind == EventKind.XID) & np.isin(events.value, codes)
    if failure_class == "memory" and "T2" in grades:
        mask |= np.isin(events.kind, (EventKind.DOUBLE_BIT_ERROR, EventKind.UNCORRECTABLE_REMAP))
    if failure_class == "memory" and "T1" in grades:
        mask |= events.kind == EventKind.REMAP_FAILURE
    if failure_class == "device_loss" and "T2" in grades:
        mask |= events.kind == EventKind.LOST
    return events.where(mask)


def _newest(log: EventLog, gpu_count: int) -> NDArray[np.float64]:
    """Start of each GPU's newest event [gpu]; -inf without one."""
    newest = np.full(gpu_count, -np.inf)
    np.maximum.at(newest, log.row, log.start_s)
    return newest


def _off_bus_again(events: EventLog) -> NDArray[np.int32]:
    """Rows with an XID 79 within two weeks of a reset that followed an earlier XID 79."""
    resets = (EventKind.DRIVER_RELOAD, EventKind.LOST, EventKind.GAP)
    off_bus = (events.kind == EventKind.XID) & (events.value == 79)
    told = events.where(off_bus | np.isin(events.kind, resets))
    told = told.where(np.lexsort((told.start_s, told.row)))
    reset = told.kind != EventKind.XID
    first = np.full(int(told.row.max(initial=-1)) + 1, np.inf)
    np.minimum.at(first, told.row[~reset], told.start_s[~reset])
    before, after = slice(None, -1), slice(1, None)
    again = reset[before] & ~reset[after] & (told.row[before] == told.row[after])
    again &= told.start_s[after] - told.start_s[before] < RECURS_WITHIN_S
    again &= told.start_s[before] > first[told.row[before]]
    rows: NDArray[np.int32] = told.row[after][again]
    return rows


def facts(history: FleetHistory) -> Facts:
    """Open T2 events and T1 facts per class, and which GPUs are lost.

    A memory or device event is open until a driver reload or a return after an absence follows it, or for seven days
    where nobody reports resets. A thermal event is open while the last hour holds the dose.
    """
    gpu_count, now_s = len(history.gpus), history.now_s
    events = history.events.known_at(now_s)
    open_events = np.zeros((gpu_count, len(CLASSES)), bool)
    terminal = np.zeros_like(open_events)
    gone = lost(history)
    absent = _newest(events.of(EventKind.LOST, EventKind.GAP), gpu_count)
    returned = np.where(gone, -np.inf, absent)
    reset = np.maximum(_newest(events.of(EventKind.DRIVER_RELOAD), gpu_count), returned)

    dose = hourly_dose(history)
    alone = (dose >= THROTTLE_DOSE) & ~domain_throttling(history, dose)
    open_events[:, 0] = alone
    rows = np.flatnonzero(alone)
    terminal[rows, 0] = hardware_dose(history, rows) > HARDWARE_DOSE

    for column, name in ((1, "memory"), (2, "device_loss")):
        last = _newest(class_events(events, name), gpu_count)
        open_events[:, column] = (last > reset) & (now_s - last < OPEN_FOR_S)
        terminal[:, column] = np.isfinite(_newest(class_events(events, name, ("T1",)), gpu_count))
    terminal[:, 1] |= history.recent.last(Signal.REMAP_FAILURE) >= 1
    open_events[:, 2] |= gone

    terminal[_off_bus_again(events), 2] = True

    since = np.where(np.isfinite(absent), absent, history.recent.times_s[0])
    return Facts(open_events | terminal, terminal, np.where(gone, since, np.nan))
