"""The contract of a baseline, and the few operations of an alerting rule: look back, hold for, sum over, changed."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.facts import newest_s
from healthsvc.fleet import CLASSES, EventKind, FleetHistory, FleetWindow, Floats, Signal

Flags = NDArray[np.bool_]
LOOK_BACK_S = 300.0  # how long a rule still sees the last sample (Prometheus, --query.lookback-delta)


class Baseline(Protocol):
    """A rule that alarms today. A frozen dataclass of its numbers; everything else is in the history.

    A server evaluates its rules every minute and a back-test perhaps every hour: `alarms` tells whether the rule held
    at any column since the evaluation before (its `every_s`), so that a coarse back-test does not make it deaf. A GPU
    without samples raises no alarm: these rules do not know "unknown".
    """

    @property
    def name(self) -> str:
        """b0 to b4 and a plain title: the row of the table."""
        ...

    def alarms(self, history: FleetHistory) -> Flags:
        """bool[gpu, class], classes as in CLASSES."""
        ...


def alarms_of(gpu_count: int, **by_class: Flags) -> Flags:
    """bool[gpu, class] from bool[gpu] of the classes that the rule knows; the others are silent."""
    silent = np.zeros(gpu_count, bool)
    return np.stack([by_class.get(name, silent) for name in CLASSES], axis=1)


def columns_in(window: FleetWindow, seconds: float) -> int:
    """Columns that cover so many seconds, at least one."""
    return max(1, int(np.ceil(seconds / window.step_s)))


def lately(flags: Flags, window: FleetWindow, every_s: float) -> Flags:
    """bool[gpu]: whether it held at any column of the last `every_s` seconds."""
    return np.asarray(flags[:, -columns_in(window, every_s) :].any(axis=1))


def carried(window: FleetWindow, signal: Signal) -> Floats:
    """The newest sample within the look-back at each column [gpu, time]; NaN where there is none."""
    values = window.get(signal)
    column = np.arange(values.shape[1])
    newest = np.maximum.accumulate(np.where(np.isnan(values), -1, column), axis=1)
    fresh = (newest >= 0) & ((column - newest) * window.step_s < LOOK_BACK_S)
    found: Floats = np.where(fresh, np.take_along_axis(values, np.maximum(newest, 0), axis=1), np.nan)
    return found


def held(flags: Flags, window: FleetWindow, hold_s: float) -> Flags:
    """Where a flag has been up for `hold_s` without a break [gpu, time]: what `for:` does in an alerting rule."""
    column = np.arange(flags.shape[1])
    last_down = np.maximum.accumulate(np.where(flags, -1, column), axis=1)
    return np.asarray((column - last_down - 1) * window.step_s >= hold_s)


def summed(values: Floats, columns: int) -> NDArray[np.float64]:
    """Sum over the last `columns` columns at each column [gpu, time]; a missing increment adds nothing."""
    total = np.cumsum(np.where(np.isnan(values), 0.0, values), axis=1, dtype=np.float64)
    before = np.zeros_like(total)
    before[:, columns:] = total[:, :-columns]
    return total - before


def any_xid(history: FleetHistory, codes: Iterable[int], within_s: float) -> Flags:
    """bool[gpu]: whether one of these XIDs came within the last `within_s` seconds."""
    log = history.events.known_at(history.now_s).of(EventKind.XID)
    log = log.where(np.isin(log.value, list(codes)) & (log.start_s > history.now_s - within_s))
    found = np.zeros(len(history.gpus), bool)
    found[log.row] = True
    return found


def volatile_double_bit_error(history: FleetHistory) -> Flags:
    """bool[gpu]: the volatile double-bit count is above 0, that is one came since the driver was last loaded.

    Blind to errors from before the history began: windows hold increments, not levels.
    """
    log = history.events.known_at(history.now_s)
    error_s = newest_s(log.of(EventKind.DOUBLE_BIT_ERROR), len(history.gpus))
    return np.isfinite(error_s) & (error_s >= newest_s(log.of(EventKind.DRIVER_RELOAD), len(history.gpus)))
