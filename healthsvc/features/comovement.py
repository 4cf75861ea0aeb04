"""Which nodes warm and cool together from day to day, so that they must share something that nobody has named."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.medians import group_median, group_rows, nan_median
from healthsvc.fleet import DailyLedger, Floats

Numbers = NDArray[np.float64]
LEAST_DAYS = 14
TOGETHER = 0.8  # correlation
CHANCE = 0.05  # that two nodes of a fleet in which nothing is shared are taken for one place
MOST_NODES = 2000  # their correlations are a square


def nodes_moving_together(daily: DailyLedger, node: NDArray[np.int32]) -> NDArray[np.int32]:
    """The group of each GPU whose node moves together with others [gpu], -1 for none; node int32[gpu], -1 unknown.

    From finished days of the ledger: the node's median of log thermal resistance, less what all nodes share and each
    node's own steady drift; average-linkage clusters at a correlation of 0.8, or as much more as chance reaches once in
    twenty fleets of this size and age. A day without samples is left out of the pairs that it concerns.

    Blind to nodes with less than two weeks, to what moves the whole fleet, and to fleets above 2,000 nodes. Two nodes
    whose own faults bend at about the same time look as if they shared one.
    """
    nothing = np.full(len(node), -1, np.int32)
    finished = slice(0, len(daily.days) - int(daily.unfinished))
    log_r = daily.get("gpu_log_resistance")[:, finished]
    nodes = int(node.max(initial=-1)) + 1
    if log_r.shape[1] < LEAST_DAYS or not 2 <= nodes <= MOST_NODES:
        return nothing
    moves = _without_drift(_of_nodes(log_r, node), daily.days[finished].astype(np.float64))
    seen = np.flatnonzero((~np.isnan(moves)).sum(axis=1) >= LEAST_DAYS)
    if len(seen) < 2:
        return nothing
    together = np.full(nodes + 1, -1, np.int32)  # node -1 picks the last
    together[seen] = _clusters(moves[seen])
    return together[node]


def _of_nodes(log_r: Floats, node: NDArray[np.int32]) -> Numbers:
    """The median over each node's GPUs of how far each is from its own median, less the fleet's [node, day]."""
    own = log_r - nan_median(log_r)[:, None]  # levels differ, and who is observed changes
    table = group_rows(node)
    of_gpu = group_median(own, node)
    values = np.where((table[:, :1] >= 0), of_gpu[table[:, 0]], np.nan).astype(np.float64)
    return values - nan_median(values.T)


def _without_drift(values: Numbers, days: Numbers) -> Numbers:
    """Less each row's straight line, by least squares over the days that it has [node, day]."""
    known = ~np.isnan(values)
    count = known.sum(axis=1, keepdims=True).clip(1)
    at = np.where(known, days, 0.0)
    at = np.where(known, days - at.sum(axis=1, keepdims=True) / count, 0.0)
    filled = np.where(known, values, 0.0)
    filled = np.where(known, values - filled.sum(axis=1, keepdims=True) / count, 0.0)
    spread = (at**2).sum(axis=1, keepdims=True)
    slope = (at * filled).sum(axis=1, keepdims=True) / np.where(spread > 0, spread, 1.0)
    left: Numbers = np.where(known, filled - slope * at, np.nan)
    return left


def _clusters(moves: Numbers) -> NDArray[np.int32]:
    """The cluster of each row, numbered by the first row of each, -1 for one alone; moves [node, day]."""
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import, and most sites name their places
    from scipy.spatial.distance import squareform
    from scipy.special import ndtri

    known = (~np.isnan(moves)).astype(np.float64)
    filled = np.where(known > 0, moves, 0.0)
    squares = filled**2 @ known.T
    common = known @ known.T
    scale = np.sqrt(squares * squares.T)
    correlation = np.where(scale > 0, filled @ filled.T / np.where(scale > 0, scale, 1.0), 0.0)
    pairs = len(moves) * (len(moves) - 1) / 2
    # Fisher's z of a correlation of n independent pairs has a variance of 1 / (n - 3); the line took one degree more.
    chance = np.tanh(-ndtri(CHANCE / pairs) / np.sqrt(np.maximum(common - 4, 1)))
    # The bar of each pair becomes the same one: 0.8, so that one cut of the tree serves all.
    correlation = np.where(common >= LEAST_DAYS, correlation * TOGETHER / np.maximum(TOGETHER, chance), 0.0)
    distance = np.clip(1.0 - (correlation + correlation.T) / 2, 0.0, None)
    np.fill_diagonal(distance, 0.0)
    cluster = fcluster(linkage(squareform(distance, checks=False), "average"), 1.0 - TOGETHER, "distance")
    _, first, number, size = np.unique(cluster, return_index=True, return_inverse=True, return_counts=True)
    wide = np.flatnonzero(size >= 2)
    order = np.full(len(size), -1, np.int32)
    order[wide[np.argsort(first[wide])]] = np.arange(len(wide))
    found: NDArray[np.int32] = order[number]
    return found
