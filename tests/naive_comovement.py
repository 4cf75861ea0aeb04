"""The slow, obvious twin of nodes that move together. None stands for "no sample"."""

from collections.abc import Sequence
from statistics import NormalDist, fmean, median

import numpy as np

Maybe = float | None
Series = list[Maybe]


def together(log_r: Sequence[Sequence[Maybe]], node: Sequence[int]) -> list[int]:
    """The group of each GPU, -1 for none."""
    days = range(len(log_r[0]))
    own = [_less(series, _median(series)) for series in log_r]
    nodes = sorted(set(node))
    of_node = {n: [_median([own[i][d] for i in range(len(node)) if node[i] == n]) for d in days] for n in nodes}
    fleet = [_median([of_node[n][d] for n in nodes]) for d in days]
    moves = {n: _straightened([_minus(of_node[n][d], fleet[d]) for d in days]) for n in nodes}
    seen = [n for n in nodes if sum(v is not None for v in moves[n]) >= 14]
    if len(seen) < 2:
        return [-1] * len(node)
    pairs = len(seen) * (len(seen) - 1) / 2
    distance = {(a, b): _distance(moves[a], moves[b], pairs) for a in seen for b in seen if a != b}
    clusters = [[n] for n in seen]
    while len(clusters) > 1:
        near, i, j = min(
            (fmean(distance[a, b] for a in one for b in other), i, j)
            for i, one in enumerate(clusters)
            for j, other in enumerate(clusters)
            if i < j
        )
        if near > 0.2:
            break
        clusters[i] = sorted(clusters[i] + clusters.pop(j))
    wide = sorted(each for each in clusters if len(each) > 1)
    number = {n: i for i, each in enumerate(wide) for n in each}
    return [number.get(n, -1) for n in node]


def _median(values: Sequence[Maybe]) -> Maybe:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _minus(value: Maybe, other: Maybe) -> Maybe:
    return None if value is None or other is None else value - other


def _less(values: Sequence[Maybe], level: Maybe) -> Series:
    return [_minus(v, level) for v in values]


def _straightened(values: Series) -> Series:
    known = [(day, v) for day, v in enumerate(values) if v is not None]
    if len(known) < 3:
        return values
    slope, level = np.polyfit([d for d, _ in known], [v for _, v in known], 1)
    return [None if v is None else v - (level + slope * day) for day, v in enumerate(values)]


def _distance(one: Series, other: Series, pairs: float) -> float:
    both = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if len(both) < 14:
        return 1.0
    correlation = sum(a * b for a, b in both) / np.sqrt(sum(a * a for a, _ in both) * sum(b * b for _, b in both))
    chance = np.tanh(NormalDist().inv_cdf(1 - 0.05 / pairs) / np.sqrt(len(both) - 4))
    return max(float(1 - correlation * 0.8 / max(0.8, chance)), 0.0)
