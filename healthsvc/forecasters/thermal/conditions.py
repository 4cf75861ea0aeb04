"""Load, inlet and limits: what resistance a GPU may have under the conditions that it really meets."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.medians import nan_last, nan_mean, nan_median, nan_quantile
from healthsvc.fleet import DAY_S, EventKind, EventLog, Floats, GpuId
from healthsvc.fleet.boards import limit_in_force

Numbers = NDArray[np.float64]
SIMILAR_POWER, SIMILAR_CELSIUS = 0.1, 3.0  # of log power, of the inlet
COMPARABLE_POWER = 0.12
LEAST_ROOM_CELSIUS = 1.0  # between inlet and limit; closer than that nothing can be said of a resistance


def usual_peak(column: Floats, days: int) -> Numbers:
    """The 0.9 quantile over the last `days` of a daily peak [gpu, day]: what a busy, warm day brings [gpu]."""
    return nan_quantile(column[:, -days:], 0.9).astype(np.float64)


def limit_celsius(reported: Floats, gpus: tuple[GpuId, ...], column: int) -> Numbers:
    """The limit last reported [gpu, day], else the board's own (a column of `board_limits`), else NaN [gpu]."""
    return limit_in_force(nan_last(reported), gpus, column)


def critical_log(limit_celsius: Numbers, inlet_celsius: Numbers, power_watts: Numbers) -> Numbers:
    """log of R* = (T_limit - T_in) / P, the resistance at which the limit is met."""
    return np.asarray(np.log(np.maximum(limit_celsius - inlet_celsius, LEAST_ROOM_CELSIUS) / power_watts), np.float64)


def similar_days(power: Numbers, inlet: Numbers, met_power: Numbers, met_inlet: Numbers) -> NDArray[np.bool_]:
    """bool[gpu, day]: days whose peaks of load and inlet were near the usual peak; met_... [gpu].

    Fans and pumps answer to heat: what a path resists at 400 W says little about 640 W. So the level that a node has in
    common is taken from such days alone, be there only two of them since the load has changed.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.abs(np.log(power / met_power[:, None])) < SIMILAR_POWER
    flags: NDArray[np.bool_] = near & (np.abs(inlet - met_inlet[:, None]) < SIMILAR_CELSIUS)
    return flags


def comparable_days(power: Numbers, met_power: Numbers, blind: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[gpu, day]: days that a GPU's log R can be compared over; all of them where its inlet is measured.

    Where it is `blind` [gpu] to its inlet, a changed load looks like a changed resistance, and differs between GPUs:
    only days within an eighth of the load that is met now are compared.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.abs(np.log(power / met_power[:, None])) < COMPARABLE_POWER
    flags: NDArray[np.bool_] = near | ~blind[:, None]
    return flags


def usual_room(each: Numbers, critical: Numbers) -> tuple[Numbers, Numbers]:
    """How much more resistance an ordinary day allows than the usual peak does, and its deviation between days [gpu].

    each: log R* of the last days [gpu, day], NaN to leave one out; critical: that of the usual peak [gpu]. A warm day
    is seldom also the busiest, and the limit is met on a day on which both are high enough.
    """
    spread = np.sqrt(np.maximum(nan_mean(each**2) - nan_mean(each) ** 2, 0.0))
    return (
        np.nan_to_num(np.maximum(nan_median(each) - critical, 0.0)).astype(np.float64),
        np.nan_to_num(spread).astype(np.float64),
    )


def settled_since(events: EventLog, days: NDArray[np.int64], gpus: int) -> NDArray[np.int64]:
    """First column of the ledger that a GPU's path can be judged by [gpu]: the day after it last moved to another host,
    where another cold plate or heat sink cools it; else 0.
    """
    moves = events.of(EventKind.MOVE)
    since = np.zeros(gpus, np.int64)
    np.maximum.at(since, moves.row, np.searchsorted(days, np.floor(moves.start_s / DAY_S).astype(np.int64), "right"))
    return since
