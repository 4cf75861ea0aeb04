"""When does a drifting level first reach a limit? Inverse Gaussian first passage, averaged over an uncertain drift.

P(hit <= t) = Phi((v t - d) / (s sqrt t)) + exp(2 v d / s^2) Phi((-v t - d) / (s sqrt t)) for distance d > 0, drift v
and diffusion s (Folks and Chhikara 1978, eq. 1); with v <= 0 the total mass is exp(2 v d / s^2) < 1: it may never hit.
Over a normal posterior of the drift, v ~ N(m, w^2), both terms stay normal (Whitmore 1986): with u^2 = s^2 t + w^2 t^2
    P(hit <= t) = Phi((m t - d) / u) + exp(2 m d / s^2 + 2 d^2 w^2 / s^4) Phi(-(m t + d + 2 d w^2 t / s^2) / u).
Blind to: an uncertain level, and a drift that changes on its way.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from healthsvc.fleet import Floats


def hit_probability(
    time_days: NDArray[np.float64],
    distance: NDArray[np.float64],
    drift_a_day: NDArray[np.float64],
    drift_sd: NDArray[np.float64],
    diffusion: NDArray[np.float64],
) -> NDArray[np.float64]:
    """P(first passage within time) [gpu, time]; 1 where distance <= 0; NaN where any input is NaN.

    distance, drift_a_day, drift_sd, diffusion (per square root of a day): [gpu].
    """
    t = time_days[None, :]
    d, s = np.maximum(distance, 1e-9)[:, None], np.maximum(diffusion, 1e-9)[:, None]
    m, ratio = drift_a_day[:, None], (drift_sd[:, None] / s) ** 2
    root = s * np.sqrt(t * (1 + ratio * t))
    near = (m * t - d) / root
    far = (m * t + d + 2 * d * ratio * t) / root
    # The exponent is (far^2 - near^2) / 2. Where it overflows, Phi(-far) = exp(-far^2 / 2) erfcx(far / sqrt 2) / 2
    # takes it back before it is evaluated.
    tail = np.exp(-(near**2) / 2) * erfcx(np.maximum(far, 0.0) / np.sqrt(2.0)) / 2
    bulk = np.exp(np.minimum(2 * d * (m + d * ratio) / s**2, 0.0)) * ndtr(-far)
    total = np.minimum(ndtr(near) + np.where(far > 0, tail, bulk), 1.0)
    return np.where((distance <= 0)[:, None], 1.0, total)


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
