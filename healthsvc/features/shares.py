"""A GPU's share of its node's errors, given how many the node had: what befalls all siblings is nobody's own."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln, gammaln

Numbers = NDArray[np.float64]

FEW = 64  # up to so many errors a node the tail is summed
LEAST = 1e-6  # of a beta's parameters: the GPU has always had nothing, or everything


def share_tail(own: Numbers, total: Numbers, expected: Numbers, precision: Numbers) -> Numbers:
    """P(a GPU has `own` or more of the node's `total` errors), beta-binomial [gpu]; 1 at own 0, NaN where any is NaN.

    expected: its share as the past has it, between 0 and 1; precision: the shapes of the node's counts, summed: if
    counts are negative binomial of one scale, the share given the total is Beta(precision x expected, precision x
    (1 - expected)). With a small precision a single GPU that has everything is nothing rare. Above 64 errors the
    share is taken as continuous, cut so that both ends, one error and all errors its own, are exact for large totals.
    """
    a, b = precision * expected, precision * (1.0 - expected)
    found = np.where(np.isnan(own + total + a + b), np.nan, 1.0)
    few = np.flatnonzero((own > 0) & (total <= FEW) & ~np.isnan(found))
    many = np.flatnonzero((own > 0) & (total > FEW) & ~np.isnan(found))
    found[few] = _summed(own[few], total[few], a[few], b[few])
    own, total = own[many], total[many]
    a, b = np.maximum(a[many], LEAST), np.maximum(b[many], LEAST)
    from_none, from_all = ((np.exp(gammaln(each + 1.0) / each) - 0.5) / total for each in (a, b))
    upper = (own - 1.0) / (total - 1.0)
    cut = (own - 0.5) / total + (1.0 - upper) * from_none - upper * from_all
    found[many] = betainc(b, a, 1.0 - np.clip(cut, 0.0, 1.0))
    return found


def _summed(own: Numbers, total: Numbers, a: Numbers, b: Numbers) -> Numbers:
    k = np.arange(FEW + 1.0)[None, :]
    n, a, b = total[:, None], np.maximum(a, LEAST)[:, None], np.maximum(b, LEAST)[:, None]
    inside = (k >= own[:, None]) & (k <= n)
    rest = np.where(inside, n - k, 0.0)
    ways = -np.log1p(n) - betaln(rest + 1.0, np.where(inside, k, 0.0) + 1.0)
    log_p = ways + betaln(np.where(inside, k, 0.0) + a, rest + b) - betaln(a, b)
    return np.asarray(np.minimum(np.sum(np.where(inside, np.exp(log_p), 0.0), axis=1), 1.0), np.float64)
