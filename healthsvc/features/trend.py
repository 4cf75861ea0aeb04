"""Local linear trend by a Kalman filter with a Huber-clipped update, vectorised over GPUs.

level_t = level_{t-1} + slope_{t-1} + eta, slope_t = slope_{t-1} + zeta, observation_t = level_t + epsilon
(Harvey 1989, section 2.3.2). A missing day only predicts. The loop runs over days, never over GPUs. Blind to noise
that is correlated from day to day: give it white noise of the same long-run variance.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import Floats

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Trend:
    """Filtered state after the last day, each [gpu]; NaN without a single observation. days: observed days.

    log_likelihood: of the innovations, the first observation apart, which only begins the state.
    """

    level: Numbers
    slope: Numbers
    level_var: Numbers
    cross_var: Numbers
    slope_var: Numbers
    days: NDArray[np.int64]
    log_likelihood: Numbers


@dataclass(frozen=True)
class TrendPath:
    """Filtered states of every day, each [day, gpu], time first; `now` is the state after the last one."""

    now: Trend
    level: Numbers
    slope: Numbers
    level_var: Numbers
    cross_var: Numbers
    slope_var: Numbers

    def take(self, rows: NDArray[np.intp]) -> "TrendPath":
        """The same days of some GPUs only."""
        now = Trend(*(getattr(self.now, each.name)[rows] for each in fields(Trend)))
        return TrendPath(now, *(getattr(self, each.name)[:, rows] for each in fields(TrendPath) if each.name != "now"))


@dataclass(frozen=True)
class TrendSpec:
    """Standard deviations: of the level's and slope's daily steps, of the slope before any data; clip in sigmas.

    slope_opened: deviation that is added to a slope on the day from which it is believed to have changed.
    """

    level_step: float
    slope_step: float
    slope_prior: float
    huber: float = 2.5
    slope_opened: float = 0.0


def filter_trend(
    observations: Floats, noise: Numbers, spec: TrendSpec, opened: NDArray[np.intp] | None = None
) -> Trend:
    """The state after the last day; arguments as of `trend_path`."""
    return trend_path(observations, noise, spec, opened).now


def trend_path(
    observations: Floats, noise: Numbers, spec: TrendSpec, opened: NDArray[np.intp] | None = None
) -> TrendPath:
    """observations: [gpu, day], NaN = missing; noise: observation standard deviation [gpu]; opened: column before
    which each GPU's slope becomes uncertain again [gpu], -1 = never.

    An innovation beyond `huber` standard deviations is pulled in to it, so one bad day cannot turn a trend.
    """
    gpus, days = observations.shape
    values = np.ascontiguousarray(observations.T, np.float64)
    level, slope = np.full(gpus, np.nan), np.zeros(gpus)
    p_ll, p_ls, p_ss = noise**2, np.zeros(gpus), np.full(gpus, spec.slope_prior**2)
    path = [np.empty((days, gpus)) for _ in range(5)]
    logs = np.zeros(gpus)
    for day in range(days):
        y = values[day]
        seen, started = ~np.isnan(y), ~np.isnan(level)
        if opened is not None and spec.slope_opened:
            p_ss = np.where(opened == day, p_ss + spec.slope_opened**2, p_ss)
        # predict
        level = level + slope
        p_ll, p_ls, p_ss = (
            np.where(started, p_ll + 2 * p_ls + p_ss + spec.level_step**2, p_ll),
            np.where(started, p_ls + p_ss, p_ls),
            np.where(started, p_ss + spec.slope_step**2, p_ss),
        )
        # update
        variance = p_ll + noise**2
        bound = spec.huber * np.sqrt(variance)
        innovation = np.clip(y - level, -bound, bound)
        use = seen & started
        gain_level, gain_slope = np.where(use, p_ll / variance, 0.0), np.where(use, p_ls / variance, 0.0)
        innovation = np.where(use, innovation, 0.0)
        logs -= np.where(use, 0.5 * (np.log(2 * np.pi * variance) + innovation**2 / variance), 0.0)
        level = np.where(seen & ~started, y, level + gain_level * innovation)
        slope = slope + gain_slope * innovation
        p_ll, p_ls, p_ss = p_ll - gain_level * p_ll, p_ls - gain_level * p_ls, p_ss - gain_slope * p_ls
        for kept, state in zip(path, (level, slope, p_ll, p_ls, p_ss), strict=True):
            kept[day] = state
    count: NDArray[np.int64] = np.asarray(np.sum(~np.isnan(values), axis=0), np.int64)
    now = Trend(level, np.where(count > 0, slope, np.nan), p_ll, p_ls, p_ss, count, logs)
    return TrendPath(now, *path)


def smooth_levels(path: TrendPath, spec: TrendSpec) -> Floats:
    """Levels in the light of all days [gpu, day], NaN before the first observation (Rauch, Tung, Striebel 1965).

    The service looks ahead and smooths nothing: this is there so that the tests can hold the model, filter and
    smoother, against that of statsmodels. Not for a path whose slope was opened: it takes the same steps for every day.
    """
    level, slope = path.level[-1].copy(), path.slope[-1].copy()
    smoothed = np.empty_like(path.level)
    smoothed[-1] = level
    for day in range(len(path.level) - 2, -1, -1):
        ll, ls, ss = path.level_var[day], path.cross_var[day], path.slope_var[day]
        ahead_ll, ahead_ls, ahead_ss = ll + 2 * ls + ss + spec.level_step**2, ls + ss, ss + spec.slope_step**2
        determinant = ahead_ll * ahead_ss - ahead_ls**2
        # gain = P F' (F P F' + Q)^-1 with F = [[1, 1], [0, 1]]
        a, b, c, d = ll + ls, ls, ls + ss, ss
        gain = [
            (a * ahead_ss - b * ahead_ls) / determinant,
            (b * ahead_ll - a * ahead_ls) / determinant,
            (c * ahead_ss - d * ahead_ls) / determinant,
            (d * ahead_ll - c * ahead_ls) / determinant,
        ]
        level_off = level - (path.level[day] + path.slope[day])
        slope_off = slope - path.slope[day]
        level = path.level[day] + gain[0] * level_off + gain[1] * slope_off
        slope = path.slope[day] + gain[2] * level_off + gain[3] * slope_off
        smoothed[day] = level
    return smoothed.T


def likeliest_steps(
    observations: Floats,
    noise: Numbers,
    spec: TrendSpec,
    level_steps: tuple[float, ...],
    slope_steps: tuple[float, ...],
) -> TrendSpec:
    """`spec` with the steps of level and slope under which the GPUs together are most likely, out of a grid.

    Without observations the spec stays as it is. The grid is coarse on purpose: a fleet tells the order of magnitude.
    """
    if not np.sum(np.sum(~np.isnan(observations), axis=1) > 1):
        return spec
    grid = [replace(spec, level_step=a, slope_step=b) for a in level_steps for b in slope_steps]
    total = [float(np.sum(filter_trend(observations, noise, each).log_likelihood)) for each in grid]
    return grid[int(np.argmax(total))]
