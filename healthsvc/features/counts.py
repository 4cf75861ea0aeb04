"""Gamma-Poisson shrinkage of rare counts: what a GPU's own record says, tempered by its model's and the fleet's.

A GPU's count over exposure t is Poisson(rate t) and its rate Gamma(a, b), so that counts are negative binomial with
mean a t / b and shape a (alpha = 1 / a in the words of statsmodels). Blind to rates that change with time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaincinv

from healthsvc.features.negative_binomial import Toward, cells, fit_negative_binomial, winsorised

Numbers = NDArray[np.float64]

DISPERSION_DAYS = 20.0


@dataclass(frozen=True)
class GammaPrior:
    """Rate ~ Gamma(shape a, rate b in exposure units): mean a / b."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        return self.a / self.b


def fit_gamma(counts: Numbers, exposure: Numbers, toward: Toward | None = None, winsorise: bool = True) -> GammaPrior:
    """The gamma of the fleet's rates by marginal likelihood, counts winsorised so that one GPU does not speak for all.

    counts, exposure [gpu]; NaN or unexposed GPUs are left out. toward: a wider fleet's prior, to which a few GPUs stay
    close and from which many move away. winsorise: off where counts cannot run away. Without any event a is the half
    event that Jeffreys would grant, or `toward` as far as the exposure without one leaves it.
    """
    use = (exposure > 0) & ~np.isnan(counts)
    y, t = counts[use], exposure[use]
    if not len(y):
        return GammaPrior(toward.shape, toward.shape / toward.mean) if toward else GammaPrior(0.5, 1.0)
    if y.sum() == 0 and toward is None:
        return GammaPrior(0.5, max(float(t.sum()), 1.0))
    mean, shape = fit_negative_binomial(*cells(winsorised(y) if winsorise else y, t), toward)
    return GammaPrior(shape, shape / mean)


def fit_groups(
    counts: Numbers, exposure: Numbers, groups: NDArray[np.int32], toward: Toward | None = None, winsorise: bool = True
) -> tuple[GammaPrior, tuple[GammaPrior, ...]]:
    """The site's prior and each group's (a GPU model's), by group number; groups [gpu].

    The hierarchy: a group's log mean and log shape are Normal around the site's with deviations 1.0 and 0.5, so a
    model of three GPUs keeps nearly the site's prior and one of a thousand has its own. toward: of the site's fit.
    """
    site = fit_gamma(counts, exposure, toward, winsorise)
    number = int(groups.max(initial=-1)) + 1
    if number == 1:
        return site, (site,)
    drawn = Toward(site.mean, site.a)
    members = [groups == group for group in range(number)]
    return site, tuple(fit_gamma(counts[rows], exposure[rows], drawn, winsorise) for rows in members)


def dispersions(days: Numbers, errors: Numbers, squares: Numbers) -> Numbers:
    """Variance by mean of each GPU's daily counts [gpu], at least 1, from how many days, their sum and their squares'.

    A GPU's own is drawn to the middle of the fleet's with the weight of DISPERSION_DAYS days; days of few errors weigh
    less, since they tell little of it. Errors that come in clusters have it above 1, and so has their sum.
    """
    mean = errors / np.maximum(days, 1.0)
    use = (days > 1.0) & (mean > 0)
    n, m = np.where(use, days, 2.0), np.where(use, mean, 1.0)
    own = (squares / n - m**2) * n / (n - 1.0) / m
    weight = np.where(use, (n - 1.0) * np.minimum(m, 1.0), 0.0)
    order = np.argsort(own, kind="stable")
    reached = np.cumsum(weight[order])
    total = float(reached[-1]) if len(reached) else 0.0
    middle = float(own[order][np.searchsorted(reached, total / 2.0)]) if total > 0 else 1.0
    fleet = max((total * middle + DISPERSION_DAYS) / (total + DISPERSION_DAYS), 1.0)
    return np.asarray(
        np.maximum((weight * own + DISPERSION_DAYS * fleet) / (weight + DISPERSION_DAYS), 1.0), np.float64
    )


def widened(a: Numbers, b: Numbers, exposure: float, dispersion: Numbers) -> tuple[Numbers, Numbers]:
    """(a, b) of a predictive with the same mean over `exposure`, its Poisson variance `dispersion` times as large."""
    mean = a / b * exposure
    wide = 1.0 / (1.0 / a + (dispersion - 1.0) / mean)
    return wide, wide * exposure / mean


def exceedance(count: Numbers, a: Numbers, b: Numbers, exposure: float) -> Numbers:
    """P(Y >= count) under the posterior predictive NB(a, b / (b + exposure)); 1 at count 0, NaN where NaN.

    P(Y >= y) = I_x(y, a) with x = exposure / (b + exposure), the regularised incomplete beta function.
    """
    tail = betainc(np.maximum(count, 1.0), a, exposure / (b + exposure))
    return np.where(np.isnan(count), np.nan, np.where(count <= 0, 1.0, tail))


def predictive_quantile(q: float, a: Numbers, b: Numbers, exposure: float) -> Numbers:
    """Smallest count that the posterior predictive does not exceed with probability `q` [gpu]; NaN where a is NaN."""
    known = ~np.isnan(a + b)
    a, b = np.where(known, a, 1.0), np.where(known, b, 1.0)
    return np.where(known, smallest_count(q, lambda count: exceedance(count, a, b, exposure), a.shape), np.nan)


def smallest_count(q: float, tail: Callable[[Numbers], Numbers], shape: tuple[int, ...]) -> Numbers:
    """Smallest k with P(Y <= k) >= q, where tail(k) is P(Y >= k) elementwise: by doubling, then by halving."""
    low, high = np.full(shape, -1.0), np.ones(shape)  # P(Y <= low) < q <= P(Y <= high), once the doubling is done
    while (beyond := tail(high + 1.0) > 1.0 - q).any():
        low, high = np.where(beyond, high, low), np.where(beyond, high * 2.0, high)
    while (high - low > 1.0).any():
        middle = np.where(high - low > 1.0, np.floor((low + high) / 2.0), high)
        beyond = tail(middle + 1.0) > 1.0 - q
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return high


def upper_rate(count: Numbers, exposure: Numbers, level: float = 0.95) -> Numbers:
    """Largest rate that leaves a count this low a chance of 1 - level; of no event in t that is 3 / t.

    count, exposure [gpu]; NaN where the count is, or nothing was exposed.
    """
    bound = gammaincinv(np.where(np.isnan(count), 0.0, count) + 1.0, level)
    known = (exposure > 0) & ~np.isnan(count)
    return np.where(known, bound / np.where(known, exposure, 1.0), np.nan)


def adjusted(p: Numbers) -> Numbers:
    """Benjamini and Hochberg's adjusted p [gpu]: what is below q here keeps the false-discovery rate below q.

    Over those that were tested; NaN stays NaN and counts as no test.
    """
    found = np.full(p.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    found[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return found
