"""Intervals that know that one GPU's alerts belong together, and one rack's: whole clusters are drawn again.

Every statistic is a function of sums over cases, so a draw is a matrix product of cluster weights and cluster sums.
Blind to what all clusters share: one fleet, one season, one driver. Few clusters (< 20) give intervals too narrow.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from healthsvc.evaluation.exact import CONFIDENCE
from healthsvc.evaluation.probability import Array, Estimate, average_precision, known_cases

DRAWS = 2000
BATCH_CELLS = 4_000_000  # weights held at a time (32 MB)


def cluster_sums(values: ArrayLike, cluster: ArrayLike) -> Array:
    """[cluster, column]: the sums of `values` [case, column] over the cases of each cluster.

    cluster: any labels [case] (GPU rows, rack names). Clusters without a case are not among the result: give them a
    case of zeros if they were observed.
    """
    table = np.asarray(values, np.float64)
    table = table[:, None] if table.ndim == 1 else table
    _, number = np.unique(np.asarray(cluster), return_inverse=True)
    count = int(number.max(initial=-1)) + 1
    return np.stack([np.bincount(number, column, count) for column in table.T], axis=1)


def bootstrap(
    statistic: Callable[[Array], Array],
    sums: Array,
    rng: np.random.Generator,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The statistic of the summed columns, with a percentile interval over draws of whole clusters.

    sums [cluster, column]; statistic maps totals [..., column] to values [...], NaN where it cannot be said (such
    draws are left out). n is the number of clusters.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(sums.sum(axis=0)))
        drawn = [np.atleast_1d(statistic(weights @ sums)) for weights in _weights(len(sums), rng, draws)]
    return _estimate(value, np.concatenate(drawn) if drawn else np.zeros(0), len(sums), confidence)


def ratio_interval(
    part: ArrayLike, whole: ArrayLike, cluster: ArrayLike, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """sum part / sum whole over cases [case]: precision from (true, true or false), recall from (predicted, event)."""
    table = np.stack([np.asarray(part, np.float64), np.asarray(whole, np.float64)], axis=1)
    return bootstrap(lambda total: total[..., 0] / total[..., 1], cluster_sums(table, cluster), rng, draws)


def skill_interval(
    p: ArrayLike, y: ArrayLike, cluster: ArrayLike, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """Brier skill against the observed base rate; p, y and cluster are [case], NaN cases are left out."""
    chance, happened, known = known_cases(p, y)
    table = np.stack([(chance - happened) ** 2, happened, np.ones_like(happened)], axis=1)

    def skill(total: Array) -> Array:
        base = total[..., 1] / total[..., 2]
        return 1 - total[..., 0] / total[..., 2] / (base * (1 - base))

    return bootstrap(skill, cluster_sums(table, np.asarray(cluster).ravel()[known]), rng, draws)


def average_precision_interval(
    p: ArrayLike, y: ArrayLike, cluster: ArrayLike, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """Average precision with the cases sorted once and weighted anew in each draw."""
    chance, happened, known = known_cases(p, y)
    _, number = np.unique(np.asarray(cluster).ravel()[known], return_inverse=True)
    order = np.argsort(-chance, kind="stable")
    value = average_precision(chance, happened)
    happened, number = happened[order], number[order]
    last = np.flatnonzero(np.diff(chance[order], append=-1.0))
    clusters = int(number.max(initial=-1)) + 1
    drawn = []
    for weights in _weights(clusters, rng, draws, max(clusters, len(order))):
        weight = weights[:, number]
        alerts, true = (np.cumsum(w, axis=1)[:, last] for w in (weight, weight * happened))
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.where(alerts > 0, true / alerts, 0.0)
            drawn.append((np.diff(true, axis=1, prepend=0.0) * precision).sum(axis=1) / true[:, -1])
    return _estimate(value, np.concatenate(drawn) if drawn else np.zeros(0), clusters, CONFIDENCE)


def _weights(clusters: int, rng: np.random.Generator, draws: int, row_cells: int = 0) -> Iterator[Array]:
    """How often each cluster is drawn [draw, cluster], a batch of draws at a time."""
    if not clusters:
        return
    batch = max(1, BATCH_CELLS // max(clusters, row_cells))
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        # Counting drawn numbers: the multinomial distribution in half the time of rng.multinomial.
        drawn = rng.integers(0, clusters, (size, clusters)) + clusters * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * clusters)
        yield counts.reshape(size, clusters).astype(np.float64)


def _estimate(value: float, drawn: Array, n: int, confidence: float) -> Estimate:
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return Estimate(value, math.nan, math.nan, n)
    lower, upper = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return Estimate(value, lower, upper, n)
