"""What a GPU's resistance has in common with its node: fans, flow and jobs, at the load and inlet that matter."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.drift import day_scatter
from healthsvc.features.medians import nan_median
from healthsvc.features.trend import TrendPath, TrendSpec, trend_path

Numbers = NDArray[np.float64]
LEAST_NOISE = 0.006  # of a node's daily log R
NODE_TREND = TrendSpec(level_step=0.002, slope_step=0.0002, slope_prior=0.001)
NODE_DAMPING = 0.7  # fans that speed up for a hot GPU come to an end of it
LEVEL_DAYS, TURNED_DAYS = 5, 2  # of which the level is the median
MEDIAN_VAR = 1.57  # variance of a median over that of a mean


@dataclass(frozen=True)
class NodePart:
    """shared: what a node has in common [gpu, day]; path: its trend over the days like the usual peak. level and its
    variance, slope a day as of now [gpu]: 0 without peers.
    """

    shared: Numbers
    path: TrendPath
    level: Numbers
    level_var: Numbers
    slope: Numbers


def learn_node(shared: Numbers, at_peak: NDArray[np.bool_], days: int, die: NodePart | None) -> NodePart:
    """shared [gpu, day] from days like the usual peak of the last `days` (at_peak bool[gpu, day]).

    Of another sensor than the die's only the distance to the die is taken, over all of those days: jobs use the memory
    unevenly hard, and the few days since the load has changed would not tell its level.
    """
    noise = _noise(np.where(at_peak, shared, np.nan))
    path = trend_path(np.where(at_peak, shared, np.nan), noise, NODE_TREND)
    slope = NODE_DAMPING * np.nan_to_num(path.now.slope)
    if die is None:
        level, count = _level(shared, at_peak, days)
        var = np.where(count > 0, MEDIAN_VAR * noise**2 / np.maximum(count, 1), 0.0)
        return NodePart(shared, path, np.where(count > 0, level, 0.0), var, np.where(count > 0, slope, 0.0))
    apart = (shared - die.shared)[:, -days:]
    count = np.sum(~np.isnan(apart), axis=1)
    level = np.where(count > 0, die.level + nan_median(apart), 0.0)
    var = np.where(count > 0, die.level_var + MEDIAN_VAR * _noise(apart) ** 2 / np.maximum(count, 1), 0.0)
    return NodePart(shared, path, level, var, np.where(count > 0, die.slope, 0.0))


def _level(shared: Numbers, at_peak: NDArray[np.bool_], days: int) -> tuple[Numbers, NDArray[np.int64]]:
    """Median of the last days like the usual peak [gpu], and how many there were.

    Of the very last days where none was like it: then load or weather has just turned.
    """
    recent, like = shared[:, -days:], at_peak[:, -days:] & ~np.isnan(shared[:, -days:])
    turned = ~np.any(like, axis=1, keepdims=True)
    usable = np.where(turned, ~np.isnan(recent), like)
    later = np.cumsum(usable[:, ::-1], axis=1)[:, ::-1]  # this day and those after it
    chosen = usable & (later <= np.where(turned, TURNED_DAYS, LEVEL_DAYS))
    count: NDArray[np.int64] = np.asarray(np.sum(chosen, axis=1), np.int64)
    return np.asarray(nan_median(np.where(chosen, recent, np.nan)), np.float64), count


def _noise(shared: Numbers) -> Numbers:
    """Deviation of a day [gpu], pooled over the fleet."""
    fleet = nan_median(day_scatter(shared)) if len(shared) else np.nan
    return np.full(len(shared), np.fmax(LEAST_NOISE, fleet))
