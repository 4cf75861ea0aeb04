"""Intervals that know that one GPU's alerts belong together, and one rack's: whole clusters are drawn again.

Every figure is a ratio of sums over cases, so a draw is a matrix product of cluster weights and cluster sums.
Blind to what all clusters share: one fleet, one season, one driver. Few clusters (< 20) give intervals too narrow.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from healthsvc.evaluation.exact import CONFIDENCE
from healthsvc.evaluation.matching import Fate, Matching, Outcome
from healthsvc.evaluation.probability import Array, Estimate

DRAWS = 2000
BATCH_CELLS = 4_000_000  # weights held at a time (32 MB)
FIGURES = ("precision", "recall")


def clustered(
    matchings: Sequence[Matching], cluster_of: Mapping[str, str], rng: np.random.Generator
) -> list[dict[str, Estimate]]:
    """Precision and recall of each matching of GPUs, with an interval over draws of whole clusters.

    cluster_of: device_id -> cluster of every GPU observed, also of those that nothing befell: they are drawn too, and
    n counts them. A GPU that is not among them is a cluster of its own. NaN where nothing can be said.
    """
    number = {cluster: i for i, cluster in enumerate(dict.fromkeys(cluster_of.values()))}
    cells: list[tuple[int, int]] = []  # of single cases: cluster and column, the columns of ratio_intervals in turn

    def count(scope: str, column: int, counted: bool) -> None:
        if counted:
            cells.append((number.setdefault(cluster_of.get(scope, scope), len(number)), column))

    for i, matching in enumerate(matchings):
        precision, recall = 4 * i, 4 * i + 2
        for alert, outcome in zip(matching.alerts, matching.outcomes, strict=True):
            count(alert.scope, precision, outcome is Outcome.TRUE)
            count(alert.scope, precision + 1, outcome in (Outcome.TRUE, Outcome.FALSE))
        for event, fate in zip(matching.events, matching.fates, strict=True):
            count(event.scope, recall, fate is Fate.PREDICTED)
            count(event.scope, recall + 1, True)
    sums = np.zeros((len(number), 4 * len(matchings)))
    if cells:
        np.add.at(sums, tuple(np.array(cells).T), 1.0)
    found = ratio_intervals(sums[:, 0::2], sums[:, 1::2], rng)
    return [dict(zip(FIGURES, found[2 * i : 2 * i + 2], strict=True)) for i in range(len(matchings))]


def ratio_intervals(part: Array, whole: Array, rng: np.random.Generator) -> list[Estimate]:
    """sum part / sum whole of each column of [cluster, figure], with a 95 % percentile interval; n clusters.

    All figures are drawn together. Draws in which a figure cannot be said are left out of its interval.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        value = part.sum(axis=0) / whole.sum(axis=0)
        drawn = [(weights @ part) / (weights @ whole) for weights in _weights(len(part), rng)]
    table = np.concatenate([*drawn, np.full((1, len(value)), np.nan)])
    said = ~np.isnan(table).all(axis=0)
    lower, upper = np.full((2, len(value)), np.nan)
    tail = (1 - CONFIDENCE) / 2
    if said.any():
        lower[said], upper[said] = np.nanquantile(table[:, said], [tail, 1 - tail], axis=0)
    bounds = zip(value.tolist(), lower.tolist(), upper.tolist(), strict=True)
    return [Estimate(figure, low, high, len(part)) for figure, low, high in bounds]


def _weights(clusters: int, rng: np.random.Generator) -> Iterator[Array]:
    """How often each cluster is drawn [draw, cluster], a batch of draws at a time."""
    if not clusters:
        return
    batch = max(1, BATCH_CELLS // clusters)
    for start in range(0, DRAWS, batch):
        size = min(batch, DRAWS - start)
        # Counting drawn numbers: the multinomial distribution in half the time of rng.multinomial.
        drawn = rng.integers(0, clusters, (size, clusters)) + clusters * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * clusters)
        yield counts.reshape(size, clusters).astype(np.float64)
