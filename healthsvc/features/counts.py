"""Gamma-Poisson shrinkage of rare counts: what a GPU's own record says, tempered by the fleet's."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

WINSOR = 0.99  # counts above this quantile of the fleet speak no louder than it


@dataclass(frozen=True)
class GammaPrior:
    """Rate ~ Gamma(shape a, rate b in exposure units): mean a / b."""

    a: float
    b: float


def fit_gamma(counts: NDArray[np.float64], exposure: NDArray[np.float64]) -> GammaPrior:
    """Moments of the fleet's rates, counts winsorised so that one bursting GPU does not speak for all.

    The between-GPU variance is the variance of the rates less the Poisson part; where nothing is left of it the prior
    is tight. NaN or unexposed GPUs are left out; without any event a is the half event that Jeffreys would grant.
    """
    use = (exposure > 0) & ~np.isnan(counts)
    y, t = counts[use], exposure[use]
    if not len(y) or y.sum() == 0:
        return GammaPrior(0.5, max(float(t.sum()), 1.0))
    y = np.minimum(y, np.quantile(y, WINSOR) + 1.0)
    mean = float(y.sum() / t.sum())
    rate = y / t
    poisson = mean / float(len(t) / np.sum(1.0 / t))
    between = max(float(np.var(rate)) - poisson, 1e-3 * mean**2)
    return GammaPrior(mean**2 / between, mean / between)


def exceedance(
    count: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64], exposure: float
) -> NDArray[np.float64]:
    """P(Y >= count) under the posterior predictive NB(a, b / (b + exposure)); 1 at count 0, NaN where NaN.

    P(Y >= y) = I_x(y, a) with x = exposure / (b + exposure), the regularised incomplete beta function.
    """
    tail = betainc(np.maximum(count, 1.0), a, exposure / (b + exposure))
    return np.where(np.isnan(count), np.nan, np.where(count <= 0, 1.0, tail))
