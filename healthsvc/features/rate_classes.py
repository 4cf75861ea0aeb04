"""The rate of each GPU when a fleet has two sorts of them: the many that hardly ever err, and the few that do daily.

One gamma over both is wide, and believes too little of a GPU without errors and too much of one with a handful. So a
GPU's rate is Gamma(a_k, b_k) with k one of two classes; its own record decides between them as well as within them.
Blind to a GPU that changes its class: that is what the exceedance of the hour is for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from healthsvc.features.counts import GammaPrior, exceedance, smallest_count, widened
from healthsvc.features.negative_binomial import Toward, cells, fit_negative_binomial, winsorised

Numbers = NDArray[np.float64]

CLASSES = 2
START = ((0.2, 1.0), (5.0, 1.0))  # of the fleet's mean, and shape: where the two begin
LEAST_RATIO = 3.0  # of the means, so that the order of the classes stands
SHARE_GPUS = 2.0  # what the shares start from weighs so many GPUs
BOUNDS = (0.05, 100.0)
STEPS, CONVERGED = 40, 1e-3


@dataclass(frozen=True)
class RateClasses:
    """share and gamma of each class, the quiet one first."""

    share: tuple[float, ...]
    prior: tuple[GammaPrior, ...]


@dataclass(frozen=True)
class RatePosterior:
    """chance, a, b [class, gpu]: of each class, and the gamma of the rate in it; dispersion [gpu]: variance by mean of
    what a rate brings. Counts and exposures are those that were given, divided by it."""

    chance: Numbers
    a: Numbers
    b: Numbers
    dispersion: Numbers

    @property
    def mean(self) -> Numbers:
        """Expected rate [gpu]."""
        return np.asarray(np.sum(self.chance * self.a / self.b, axis=0), np.float64)

    def tail(self, count: Numbers, exposure: float) -> Numbers:
        """P(Y >= count) over the next `exposure` [gpu]; 1 at 0, NaN where the count is."""
        total = np.zeros(np.shape(count))
        for chance, a, b in zip(self.chance, self.a, self.b, strict=True):
            total += chance * exceedance(count, *widened(a, b, exposure, self.dispersion), exposure)
        return total

    def quantile(self, q: float, exposure: float) -> Numbers:
        """Smallest count that the next `exposure` does not exceed with probability `q` [gpu]."""
        return smallest_count(q, lambda count: self.tail(count, exposure), self.dispersion.shape)


def fit_rate_classes(counts: Numbers, exposure: Numbers, toward: RateClasses | None = None) -> RateClasses:
    """The classes of a fleet by expectation and maximisation; counts, exposure [gpu], NaN or unexposed are left out.

    toward: the site's, to which a model of few GPUs stays close. Without any error the two are told apart by nothing:
    the half event of Jeffreys, and five times as much.
    """
    use = (exposure > 0) & ~np.isnan(counts)
    if toward is None:
        total, days = float(counts[use].sum()), float(exposure[use].sum())
        mean = max(total, 0.5) / max(days, 1.0)
        toward = RateClasses((0.9, 0.1), tuple(GammaPrior(shape, shape / (times * mean)) for times, shape in START))
        loose = (2.0, 1.0)
    else:
        loose = (1.0, 0.5)
    if not use.any():
        return toward
    y, t, w = cells(winsorised(counts[use]), exposure[use])
    drawn = [Toward(prior.mean, prior.a, *loose) for prior in toward.prior]
    classes = toward
    for _ in range(STEPS):
        belongs = _chances(y, t, classes) * w
        share = belongs.sum(axis=1) + SHARE_GPUS * np.array(toward.share)
        fitted = [
            fit_negative_binomial(y, t, own, pull, BOUNDS, (prior.mean, prior.a), 1)
            for own, pull, prior in zip(belongs, drawn, classes.prior, strict=True)
        ]
        means = [fitted[0][0], max(fitted[1][0], LEAST_RATIO * fitted[0][0])]
        shapes = [shape for _, shape in fitted]
        fresh = RateClasses(
            tuple((share / share.sum()).tolist()),
            tuple(GammaPrior(shape, shape / mean) for mean, shape in zip(means, shapes, strict=True)),
        )
        moved = max(abs(new.mean / old.mean - 1.0) for new, old in zip(fresh.prior, classes.prior, strict=True))
        classes = fresh
        if moved < CONVERGED:
            break
    return classes


def rate_posterior(
    counts: Numbers, exposure: Numbers, dispersion: Numbers, classes: Sequence[RateClasses], groups: NDArray[np.int32]
) -> RatePosterior:
    """Of each GPU, with the classes of its group (model); [gpu] all. An unexposed GPU keeps its model's classes."""

    def of_gpu(value: Callable[[RateClasses, int], float]) -> Numbers:
        table = np.array([[value(one, k) for one in classes] for k in range(CLASSES)]).reshape(CLASSES, -1)
        return np.asarray(table[:, groups], np.float64)

    share, a, b = (
        of_gpu(lambda one, k: one.share[k]),
        of_gpu(lambda one, k: one.prior[k].a),
        of_gpu(lambda one, k: one.prior[k].b),
    )
    y, t = np.where(np.isnan(counts), 0.0, counts) / dispersion, exposure / dispersion
    return RatePosterior(_weighed(np.log(share) + _log_mass(y, t, a, b)), a + y, b + t, dispersion)


def _chances(y: Numbers, t: Numbers, classes: RateClasses) -> Numbers:
    share, a, b = (
        np.array(each)[:, None]
        for each in (classes.share, [prior.a for prior in classes.prior], [prior.b for prior in classes.prior])
    )
    return _weighed(np.log(share) + _log_mass(y, t, a, b))


def _weighed(log_p: Numbers) -> Numbers:
    p = np.exp(log_p - log_p.max(axis=0))
    return np.asarray(p / p.sum(axis=0), np.float64)


def _log_mass(y: Numbers, t: Numbers, a: Numbers, b: Numbers) -> Numbers:
    """log P(y) of the negative binomial, less log(t^y / y!), which the classes have in common [class, cell]."""
    return np.asarray(gammaln(a + y) - gammaln(a) + a * np.log(b / (b + t)) - y * np.log(b + t), np.float64)
