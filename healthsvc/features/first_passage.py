"""When does a drifting level first reach a limit? Inverse Gaussian first passage, averaged over an uncertain drift.

P(hit <= t) = Phi((v t - d) / (s sqrt t)) + exp(2 v d / s^2) Phi((-v t - d) / (s sqrt t)) for distance d > 0, drift v
and diffusion s (Folks and Chhikara 1978, eq. 1); with v <= 0 the total mass is exp(2 v d / s^2) < 1: it may never hit.
The drift's posterior is normal and is integrated by Gauss-Hermite quadrature: a dozen evaluations, no random draws.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from healthsvc.fleet import Floats

NODES = 11
_points, _weights = np.polynomial.hermite_e.hermegauss(NODES)
_weights = _weights / _weights.sum()


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
    d = np.maximum(distance, 1e-9)[:, None]
    s = np.maximum(diffusion, 1e-9)[:, None]
    root = s * np.sqrt(time_days)[None, :]
    total = np.zeros((len(distance), len(time_days)))
    for point, weight in zip(_points, _weights, strict=True):
        v = (drift_a_day + point * drift_sd)[:, None]
        direct = ndtr((v * time_days - d) / root)
        # The exponent may overflow where the normal tail underflows: add them as logarithms.
        reflected = np.exp(np.minimum(2 * v * d / s**2 + log_ndtr((-v * time_days - d) / root), 0.0))
        total += weight * np.minimum(direct + reflected, 1.0)
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
        slope = np.where(p1 > p0, (q - p0) / np.where(p1 > p0, p1 - p0, 1.0), 1.0)
        found[:, column] = np.where(reached.any(axis=1), t0 + slope * (time_days[index] - t0), np.nan)
    return found
