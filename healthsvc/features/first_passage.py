"""When does a drifting level first reach a limit? Inverse Gaussian first passage, averaged over what is uncertain.

P(hit <= t) = Phi((v t - d) / (s sqrt t)) + exp(2 v d / s^2) Phi((-v t - d) / (s sqrt t)) for distance d > 0, drift v
and diffusion s (Folks and Chhikara 1978, eq. 1); with v <= 0 the total mass is exp(2 v d / s^2) < 1: it may never hit.
Over a normal posterior of the drift, v ~ N(m, w^2), both terms stay normal (Whitmore 1986): with u^2 = s^2 t + w^2 t^2
    P(hit <= t) = Phi((m t - d) / u) + exp(2 m d / s^2 + 2 d^2 w^2 / s^4) Phi(-(m t + d + 2 d w^2 t / s^2) / u).
Over a normal posterior of the level it is averaged by quadrature, the drift's posterior given at each node.
Blind to a drift that changes on its way.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from healthsvc.fleet import Floats

# Evenly spaced, a quarter of a deviation apart: where nothing else is uncertain the chance is a step in the level, and
# the few nodes of a Gauss rule would miss it by several percent.
NODES = np.linspace(-5.0, 5.0, 41)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
BLOCK = 1 << 14  # numbers at a time: enough for NumPy, few enough to stay in the cache
FAR = 7.0  # deviations from the limit beyond which there is no chance to speak of

# Days scatter about their level, and the first one beyond the limit is early. By how much, in deviations of a day:
# simulated with slopes of 0.02 to 0.6 deviations a day the mean is about 0.54 log(reach / slope), reach 0.85 for white
# noise and 0.85 - 0.6 phi for AR(1) up to 0.6; the spread is 0.5 to 0.9.
EARLY_GAIN, EARLY_WHITE, EARLY_PERSISTENT, EARLY_SPREAD = 0.54, 0.85, 0.6, 0.7
# The pace is at least that at which diffusion carries the level through the noise, and 0.6 over the days waited for.
# Without either floor a steeper slope would be up to 7 % safer; with them 0.04 % at most (searched over the plausible).
WANDER, LEAST_PACE = 8.0, 0.6


@dataclass(frozen=True)
class Course:
    """Where a level stands and whither it drifts, each [gpu]: normal posterior of both, and what moves it further.

    level_var, slope_var and cross_var are of level and slope now; diffusion a deviation per square root of a day; noise
    the deviation of single days about the level, persistence its AR(1) coefficient.
    """

    level: NDArray[np.float64]
    slope: NDArray[np.float64]
    level_var: NDArray[np.float64]
    cross_var: NDArray[np.float64]
    slope_var: NDArray[np.float64]
    diffusion: NDArray[np.float64]
    noise: NDArray[np.float64]
    persistence: NDArray[np.float64]

    def take(self, rows: NDArray[np.intp]) -> "Course":
        """Of some GPUs only."""
        return Course(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def passage_probability(
    time_days: NDArray[np.float64], course: Course, limit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """P(a day at or beyond `limit` [gpu] within time) [gpu, time], times rising; NaN where any input is NaN.

    The limit is brought nearer by how early the first of many scattered days crosses it, more so the longer one waits
    and the slower the level moves; never so much that a steeper slope would be safer.
    """
    noise = np.maximum(course.noise, 1e-9)[:, None]
    reach = (EARLY_WHITE - EARLY_PERSISTENT * course.persistence)[:, None]
    wander = WANDER * (course.diffusion[:, None] / noise) ** 2
    least = np.maximum(wander, np.maximum(reach, LEAST_PACE) / time_days[None, :])
    pace = np.maximum(course.slope[:, None] / noise, least)
    early = EARLY_GAIN * np.log(reach / np.minimum(pace, reach))
    distance = limit[:, None] - course.level[:, None] - early * noise
    level_var = course.level_var + (EARLY_SPREAD * course.noise) ** 2
    level_sd = np.sqrt(level_var)
    pull = course.cross_var / np.maximum(level_var, 1e-18)
    slope_sd = np.sqrt(np.maximum(course.slope_var - pull * course.cross_var, 0.0))
    last = time_days[-1]
    reach_sd = np.sqrt(level_var + last * course.diffusion**2 + last**2 * course.slope_var)
    far = distance[:, -1] - np.maximum(course.slope, 0.0) * last > FAR * reach_sd
    rows = np.flatnonzero(~far)  # NaN is not far
    total = np.zeros((len(limit), len(time_days)))
    block = max(BLOCK // (len(NODES) * len(time_days)), 1)
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        off = NODES[:, None] * level_sd[some]
        each = hit_probability(
            time_days,
            (distance[some] - off[:, :, None]).reshape(-1, len(time_days)),
            (course.slope[some] + pull[some] * off).reshape(-1),
            np.tile(slope_sd[some], len(NODES)),
            np.tile(course.diffusion[some], len(NODES)),
        )
        total[some] = np.tensordot(WEIGHTS, each.reshape(len(NODES), len(some), -1), (0, 0))
    return np.maximum.accumulate(total, axis=1)


def hit_probability(
    time_days: NDArray[np.float64],
    distance: NDArray[np.float64],
    drift_a_day: NDArray[np.float64],
    drift_sd: NDArray[np.float64],
    diffusion: NDArray[np.float64],
) -> NDArray[np.float64]:
    """P(first passage within time) [gpu, time]; 1 where distance <= 0; NaN where any input is NaN.

    distance: [gpu], or [gpu, time] where it differs by the time asked for; drift_a_day, drift_sd, diffusion (per square
    root of a day): [gpu].
    """
    t = time_days[None, :]
    distance = distance[:, None] if distance.ndim == 1 else distance
    d, s = np.maximum(distance, 1e-9), np.maximum(diffusion, 1e-9)[:, None]
    m, ratio = drift_a_day[:, None], (drift_sd[:, None] / s) ** 2
    root = s * np.sqrt(t * (1 + ratio * t))
    near = (m * t - d) / root
    far = (m * t + d + 2 * d * ratio * t) / root
    # The exponent is (far^2 - near^2) / 2. Where it overflows, Phi(-far) = exp(-far^2 / 2) erfcx(far / sqrt 2) / 2
    # takes it back before it is evaluated.
    tail = np.exp(-(near**2) / 2) * erfcx(np.maximum(far, 0.0) / np.sqrt(2.0)) / 2
    bulk = np.exp(np.minimum(2 * d * (m + d * ratio) / s**2, 0.0)) * ndtr(-far)
    total = np.minimum(ndtr(near) + np.where(far > 0, tail, bulk), 1.0)
    return np.where(distance <= 0, 1.0, total)


def hit_quantiles(
    probability: NDArray[np.float64], time_days: NDArray[np.float64], quantiles: tuple[float, ...]
) -> Floats:
    """Times [gpu, quantile] at which a rising `probability` [gpu, time] reaches each quantile; NaN: not by the end."""
    found = np.full((len(probability), len(quantiles)), np.nan)
    for column, q in enumerate(quantiles):
        reached = probability >= q
        index = np.argmax(reached, axis=1)
        before = np.maximum(index - 1, 0)
        rows = np.arange(len(probability))
        p0, p1 = probability[rows, before], probability[rows, index]
        t0 = np.where(index > 0, time_days[before], 0.0)
        p0 = np.where(index > 0, p0, 0.0)
        crosses = reached.any(axis=1)
        share = np.where(crosses, q - p0, 0.0) / np.where(crosses & (p1 > p0), p1 - p0, 1.0)
        found[:, column] = np.where(crosses, t0 + share * (time_days[index] - t0), np.nan)
    return found
