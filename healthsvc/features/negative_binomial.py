"""The negative binomial of largest likelihood, for a whole fleet in a few milliseconds.

Counts over exposure t with mean rate m: mean m t, variance m t + (m t)^2 / shape. In the words of statsmodels NB2 with
alpha = 1 / shape and the exposure as an offset.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import psi

Numbers = NDArray[np.float64]

WINSOR = 0.99  # counts above this quantile of the fleet speak no louder than it
SHAPE_BOUNDS = (1e-3, 1e3)  # beyond them the likelihood is flat: a few GPUs have everything, or all are alike
MEAN_LOOSE, SHAPE_LOOSE = 1.0, 0.5  # how far, in logs, a model's mean and shape may well lie from the site's
STEPS, CONVERGED, SETTLED = 60, 1e-9, 1e-8
CELLS = 4096


@dataclass(frozen=True)
class Toward:
    """Where a fit is drawn to: Normal(log mean, mean_loose) and Normal(log shape, shape_loose), multiplied in."""

    mean: float
    shape: float
    mean_loose: float = MEAN_LOOSE
    shape_loose: float = SHAPE_LOOSE


def fit_negative_binomial(
    counts: Numbers,
    exposure: Numbers,
    weights: Numbers,
    toward: Toward | None = None,
    bounds: tuple[float, float] = SHAPE_BOUNDS,
    start: tuple[float, float] | None = None,
    rounds: int = 60,
) -> tuple[float, float]:
    """(mean per exposure, shape) of the largest likelihood, or of likelihood times `toward`.

    counts, exposure, weights [cell]: what was seen, over how much, how often; no NaN, exposure > 0. The two parameters
    are orthogonal (Lawless 1987), so one is solved after the other until neither moves, or `rounds` times. Without
    `toward` some count has to be above 0: of none at all the likelihood has no maximum.
    """
    mean = float(np.sum(weights * counts) / np.sum(weights * exposure)) if start is None else start[0]
    shape = min(max(1.0 if start is None else start[1], bounds[0]), bounds[1])
    mean = mean if mean > 0 else toward.mean if toward else 0.0
    low, high = math.log(bounds[0]), math.log(bounds[1])
    for _ in range(rounds):
        before = (mean, shape)
        mean = _mean(counts, exposure, weights, shape, mean, toward)
        slope = _shape_slope(counts, mean * exposure, weights, toward)
        shape = math.exp(_root(slope, math.log(shape), low, high))
        if abs(mean / before[0] - 1.0) + abs(shape / before[1] - 1.0) < SETTLED:
            break
    return mean, shape


def _mean(y: Numbers, t: Numbers, w: Numbers, shape: float, mean: float, toward: Toward | None) -> float:
    """Newton on the logarithm of the mean, with the expected curvature."""
    log_mean = math.log(mean)
    for _ in range(STEPS):
        m = math.exp(log_mean) * t
        part = w * shape / (shape + m)
        slope, curve = float(part @ (y - m)), float(part @ m)
        if toward:
            slope -= (log_mean - math.log(toward.mean)) / toward.mean_loose**2
            curve += 1.0 / toward.mean_loose**2
        step = min(max(slope / curve, -1.0), 1.0)
        log_mean += step
        if abs(step) < CONVERGED:
            break
    return math.exp(log_mean)


def _shape_slope(y: Numbers, m: Numbers, w: Numbers, toward: Toward | None) -> Callable[[float], tuple[float, float]]:
    """First and second derivative of the log-likelihood by the logarithm of the shape."""

    def slope(log_shape: float) -> tuple[float, float]:
        a = math.exp(log_shape)
        off = (m - y) / (a + m)
        first = a * float(w @ (psi(a + y) - psi(a) + np.log(a / (a + m)) + off))
        bend = _trigamma(a + y) - _trigamma(np.array([a])) + 1.0 / a - (1.0 + off) / (a + m)
        second = first + a**2 * float(w @ bend)
        if not toward:
            return first, second
        pull = (log_shape - math.log(toward.shape)) / toward.shape_loose**2
        return first - pull, second - 1.0 / toward.shape_loose**2

    return slope


def _trigamma(x: Numbers) -> Numbers:
    """Second derivative of log gamma to eight digits, faster than scipy's zeta(2, x); it only steers Newton."""
    found = np.zeros(x.shape)
    for ahead in range(6):
        found += 1.0 / (x + ahead) ** 2
    z = 1.0 / (x + 6.0)
    return found + z * (1.0 + z * (0.5 + z * (1.0 / 6.0 + z**2 * (-1.0 / 30.0 + z**2 / 42.0))))


def _root(slope: Callable[[float], tuple[float, float]], start: float, low: float, high: float) -> float:
    """Where `slope` falls through 0 between the bounds: Newton, or halving where that would leave the bracket."""
    at = start
    for _ in range(STEPS):
        value, curve = slope(at)
        low, high = (at, high) if value > 0 else (low, at)
        step = -value / curve if curve < 0 else np.inf
        nearer = at + step if low < at + step < high else (low + high) / 2
        if abs(nearer - at) < CONVERGED:
            return nearer
        at = nearer
    return at


def winsorised(counts: Numbers) -> Numbers:
    """Counts [gpu], none above the fleet's 99 % quantile and one more."""
    return np.minimum(counts, np.quantile(counts, WINSOR) + 1.0)


def cells(counts: Numbers, exposure: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Count, exposure and weight of some thousand cells, whatever the order of the GPUs.

    Above CELLS distinct pairs, neighbours in order of exposure (in steps of 5 %), then count, share a cell at their
    mean; the mean of the fit then moves by less than a thousandth, its shape by less than a hundredth.
    """
    pairs, times = np.unique(exposure + 1j * counts, return_counts=True)
    if len(pairs) > CELLS:
        order = np.lexsort((pairs.imag, np.floor(np.log(pairs.real) / 0.05)))
        pairs, times = pairs[order], times[order]
        stratum = np.floor(np.log(pairs.real) / 0.05)
        part = np.floor(np.cumsum(times) * (CELLS / times.sum()))
        first = np.flatnonzero((np.diff(part, prepend=-1.0) > 0) | (np.diff(stratum, prepend=-np.inf) > 0))
        pairs = np.add.reduceat(pairs * times, first) / np.add.reduceat(times, first)
        times = np.add.reduceat(times, first)
    return pairs.imag.copy(), pairs.real.copy(), times.astype(np.float64)
