"""b2: a straight line through the temperature, drawn on to the limit, as `predict_linear` does."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.evaluation.baselines.base import Flags, alarms_of
from healthsvc.fleet import DAY_S, FleetHistory, Floats, Signal
from healthsvc.fleet.boards import MAX_OPERATING, limit_in_force

HORIZON_S = 7 * DAY_S


@dataclass(frozen=True)
class PredictLinear:
    """Least squares through the last two hours of GPU temperature: does the line exceed the limit within 7 days?

    The limit is the reported max-operating temperature, else the board's. Evaluated once, now.
    Source: Prometheus, predict_linear(v, t), a least-squares line evaluated at now + t.
    Blind to: load. A job that starts is a slope of degrees an hour, and a week of that is always a fire.
    """

    span_s: float = 7200.0
    horizon_s: float = HORIZON_S

    @property
    def name(self) -> str:
        return "b2 predict_linear, 2 h"

    def alarms(self, history: FleetHistory) -> Flags:
        """See the class."""
        window = history.recent
        chosen = window.times_s > history.now_s - self.span_s
        temperature = window.get(Signal.GPU_TEMPERATURE)[:, chosen]
        at_limit = extrapolated(window.times_s[chosen], temperature, history.now_s + self.horizon_s) > limit(history)
        return alarms_of(len(history.gpus), thermal=at_limit)


@dataclass(frozen=True)
class PredictLinearDaily:
    """The same line through the daily 95th percentile of GPU temperature of the last 14 finished days.

    Blind to: load that grows, summer, and a ledger with fewer than `least_days` days.
    """

    span_days: int = 14
    least_days: int = 7
    horizon_s: float = HORIZON_S

    @property
    def name(self) -> str:
        return "b2d predict_linear, 14 d"

    def alarms(self, history: FleetHistory) -> Flags:
        """See the class."""
        daily, today = history.daily, np.floor(history.now_s / DAY_S)
        chosen = (daily.days < today) & (daily.days >= today - self.span_days)
        noon_s = (daily.days[chosen] + 0.5) * DAY_S
        temperature = daily.get("gpu_temperature_q95_celsius")[:, chosen]
        reached = extrapolated(noon_s, temperature, history.now_s + self.horizon_s, self.least_days)
        return alarms_of(len(history.gpus), thermal=reached > limit(history))


def extrapolated(times_s: NDArray[np.float64], values: Floats, at_s: float, least: int = 2) -> NDArray[np.float64]:
    """The least-squares line of each row at `at_s` [gpu]; NaN below `least` samples. values: [gpu, time]."""
    seen = ~np.isnan(values)
    count = seen.sum(axis=1)
    known = np.where(seen, values, 0.0).astype(np.float64)
    x = np.where(seen, times_s - at_s, 0.0)
    total = np.maximum(count, 1)
    mean_x, mean_y = x.sum(axis=1) / total, known.sum(axis=1) / total
    from_mean = np.where(seen, x - mean_x[:, None], 0.0)
    spread = (from_mean**2).sum(axis=1)
    slope = (from_mean * known).sum(axis=1) / np.where(spread > 0, spread, 1.0)
    return np.where((count >= max(least, 2)) & (spread > 0), mean_y - slope * mean_x, np.nan)


def limit(history: FleetHistory) -> NDArray[np.float64]:
    """Temperature at which each GPU begins to throttle [gpu]: as reported, else its board's; NaN if not known."""
    return limit_in_force(history.recent.last(Signal.GPU_MAX_OPERATING_LIMIT), history.gpus, MAX_OPERATING)
