"""Local linear trend by a Kalman filter with a Huber-clipped update, vectorised over GPUs.

level_t = level_{t-1} + slope_{t-1} + eta, slope_t = slope_{t-1} + zeta, observation_t = level_t + epsilon
(Harvey 1989, section 2.3.2). A missing day only predicts. The loop runs over days, never over GPUs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import Floats


@dataclass(frozen=True)
class Trend:
    """Filtered state after the last day, each [gpu]; NaN without a single observation. days: observed days."""

    level: NDArray[np.float64]
    slope: NDArray[np.float64]
    level_var: NDArray[np.float64]
    slope_var: NDArray[np.float64]
    days: NDArray[np.int64]


@dataclass(frozen=True)
class TrendSpec:
    """Standard deviations: of the level's and slope's daily steps, of the slope before any data; clip in sigmas."""

    level_step: float
    slope_step: float
    slope_prior: float
    huber: float = 2.5


def filter_trend(observations: Floats, noise: NDArray[np.float64], spec: TrendSpec) -> Trend:
    """observations: [gpu, day], NaN = missing; noise: observation standard deviation [gpu].

    An innovation beyond `huber` standard deviations is pulled in to it, so one bad day cannot turn a trend.
    """
    gpus, days = observations.shape
    level = np.full(gpus, np.nan)
    slope = np.zeros(gpus)
    p_ll, p_ls, p_ss = noise**2, np.zeros(gpus), np.full(gpus, spec.slope_prior**2)
    seen_days = np.zeros(gpus, np.int64)
    for day in range(days):
        y = observations[:, day].astype(np.float64)
        seen = ~np.isnan(y)
        started = ~np.isnan(level)
        # predict
        level = level + slope
        p_ll, p_ls, p_ss = (
            np.where(started, p_ll + 2 * p_ls + p_ss + spec.level_step**2, p_ll),
            np.where(started, p_ls + p_ss, p_ls),
            np.where(started, p_ss + spec.slope_step**2, p_ss),
        )
        # update
        variance = p_ll + noise**2
        innovation = y - level
        bound = spec.huber * np.sqrt(variance)
        innovation = np.clip(innovation, -bound, bound)
        gain_level, gain_slope = p_ll / variance, p_ls / variance
        use = seen & started
        level = np.where(use, level + gain_level * innovation, np.where(seen & ~started, y, level))
        slope = np.where(use, slope + gain_slope * innovation, slope)
        p_ll, p_ls, p_ss = (
            np.where(use, p_ll - gain_level * p_ll, p_ll),
            np.where(use, p_ls - gain_level * p_ls, p_ls),
            np.where(use, p_ss - gain_slope * p_ls, p_ss),
        )
        seen_days += seen
    return Trend(level, np.where(seen_days > 0, slope, np.nan), p_ll, p_ss, seen_days)
