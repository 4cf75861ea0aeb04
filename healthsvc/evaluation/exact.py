"""Exact intervals for small counts: what a rate may really be, however few the cases."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """A share with its two-sided 95 % Clopper-Pearson interval and the count it rests on; NaN where n is 0."""

    value: float
    lower: float
    upper: float
    n: int


def rate(successes: int, n: int) -> Rate:
    """The share of n with its exact interval."""
    lower, upper = clopper_pearson(successes, n)
    return Rate(successes / n if n else math.nan, float(lower), float(upper), n)


def clopper_pearson(successes: ArrayLike, n: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two-sided exact 95 % interval of a binomial share, elementwise; (0, 1) where n is 0.

    Source: Clopper and Pearson, Biometrika 26 (1934), 404-413, as quantiles of the beta distribution.
    """
    k, total = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(n, np.float64))
    tail = (1 - CONFIDENCE) / 2
    lower = np.where(k > 0, special.betaincinv(np.maximum(k, 1), total - k + 1, tail), 0.0)
    upper = np.where(k < total, special.betaincinv(k + 1, np.maximum(total - k, 1), 1 - tail), 1.0)
    return lower, upper


def garwood(count: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two-sided exact 95 % interval of a Poisson mean, elementwise.

    Source: Garwood, Biometrika 28 (1936), 437-442, as quantiles of the gamma distribution.
    """
    k = np.asarray(count, np.float64)
    tail = (1 - CONFIDENCE) / 2
    lower = np.where(k > 0, special.gammaincinv(np.maximum(k, 1), tail), 0.0)
    return lower, np.asarray(special.gammainccinv(k + 1, tail))


def garwood_upper(count: ArrayLike, confidence: float = CONFIDENCE) -> NDArray[np.float64]:
    """One-sided upper bound of a Poisson mean: 3.0 when nothing was seen, hence "3 / exposure"."""
    return np.asarray(special.gammaincinv(np.asarray(count, np.float64) + 1, confidence))
