"""From level and drift to the chance of meeting a limit, and when: a mixture of drifting and standing still."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.first_passage import Course, hit_quantiles, passage_probability
from healthsvc.features.medians import nan_quantile
from healthsvc.features.trend import TrendPath
from healthsvc.fleet import DAY_S, QUANTILES

Numbers = NDArray[np.float64]
TIMES_DAYS = np.concatenate([[0.25, 0.5], np.arange(1.0, 31.0), np.arange(32.0, 182.0, 4.0)])  # up to 180 d
STANDING_SLOPE_SD = 1e-4  # a day: what a healthy path may still do over a month
STANDING_STEP = 5e-4  # of log R, per square root of a day
NO_DRIFT_P = 1e-5  # below which a drift adds less to a probability than anybody reads
NORMAL_Q90 = 1.2816
SETTLED_DAYS = 5  # after its onset, until a drift's slope means something
AHEAD_DAYS = (7, 14, 21)
LEAST_ERRORS = 60


@dataclass(frozen=True)
class Outlook:
    """Two ways to a limit, each [gpu]: a drift that goes on, and standing still at the usual peak of load and inlet.

    A drift takes long, so it meets ordinary days, which allow `usual_room` more than the usual peak, and scatter. What
    stands still is judged at that peak, without a change of season, or a warm week would be a forecast of failure.
    drift_p: probability of the drift.
    """

    drifting: Course
    standing: Course
    drift_p: Numbers
    usual_room: Numbers

    def take(self, rows: NDArray[np.intp]) -> "Outlook":
        """Of some GPUs only."""
        return Outlook(self.drifting.take(rows), self.standing.take(rows), self.drift_p[rows], self.usual_room[rows])

    def probability(self, time_days: Numbers, limit: Numbers) -> Numbers:
        """P(limit met within time) [gpu, time]; limit: log R* at the usual peak [gpu]; NaN where an input is NaN.

        The drift is left out where it is so unlikely that it could not matter.
        """
        chance = (1.0 - self.drift_p[:, None]) * passage_probability(time_days, self.standing, limit)
        rows = np.flatnonzero(~(self.drift_p < NO_DRIFT_P))  # NaN is not unlikely
        drifts = passage_probability(time_days, self.drifting.take(rows), (limit + self.usual_room)[rows])
        chance[rows] += self.drift_p[rows, None] * drifts
        return chance

    def time_to_limit_s(self, limit: Numbers) -> NDArray[np.float32]:
        """Quantiles of the time until the limit [gpu, quantile]; NaN: not within 180 days.

        The whole curve only for GPUs that reach the lowest quantile.
        """
        found = np.full((len(limit), len(QUANTILES)), np.nan, np.float32)
        by_the_end = self.probability(TIMES_DAYS[-1:], limit)[:, 0]
        rows = np.flatnonzero(by_the_end >= QUANTILES[0])
        found[rows] = hit_quantiles(self.take(rows).probability(TIMES_DAYS, limit[rows]), TIMES_DAYS, QUANTILES) * DAY_S
        return found


def standing_still(level: Numbers, level_var: Numbers, noise: Numbers, persistence: Numbers) -> Course:
    """The course of a path that does not drift."""
    zero = np.zeros_like(level)
    return Course(level, zero, level_var, zero, zero + STANDING_SLOPE_SD**2, zero + STANDING_STEP, noise, persistence)


def past_scales(
    path: TrendPath, observed: Numbers, onset: Numbers, noise: Numbers, diffusion: float
) -> dict[int, Numbers]:
    """By what the deviation of each of this filter's own forecasts should have been multiplied for its 80 % interval to
    just hold what came, by days ahead; all arrays flat.

    path [day, gpu]: of the margin of log R to the limit, as it was believed each day; observed [gpu, day]: what the
    margin then was; of GPUs that drift from `onset` [gpu] on. Forecasts count from the fifth day after it. diffusion:
    per square root of a day. Only what grows with the distance is multiplied, not the noise of the single day observed.
    These are split-conformal scores (Lei et al. 2018) of nested intervals: their 0.8 quantile is the scale to use.
    """
    scales = {}
    days = observed.shape[1]
    for ahead in AHEAD_DAYS:
        if ahead >= days:
            scales[ahead] = np.zeros(0)
            continue
        origin = slice(0, days - ahead)
        mean = (path.level[origin] + ahead * path.slope[origin]).T
        variance = (path.level_var[origin] + 2 * ahead * path.cross_var[origin] + ahead**2 * path.slope_var[origin]).T
        beyond = np.maximum(((observed[:, ahead:] - mean) / NORMAL_Q90) ** 2 - noise[:, None] ** 2, 0.0)
        scale = np.sqrt(beyond / (variance + ahead * diffusion**2))
        counts = np.arange(days - ahead)[None, :] >= onset[:, None] + SETTLED_DAYS
        scales[ahead] = scale[counts & ~np.isnan(scale)]
    return scales


def conformal_scale(scales: dict[int, Numbers], shipped: float) -> float:
    """By what the predicted deviations must be multiplied so that 80 % intervals hold 80 %; `shipped` below 60 scales.

    The widest of the three distances: none may be too narrow.
    """
    told = [float(nan_quantile(each, 0.8)) for each in scales.values() if len(each) >= LEAST_ERRORS]
    return max(told) if told else shipped
