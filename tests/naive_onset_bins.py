"""Slow, obvious twins of `features.pseudo_inlet`, `features.rings` and the sample of `features.onset_bins`."""

from collections.abc import Sequence
from statistics import median

Maybe = float | None


def pseudo_inlet(
    temperature: Sequence[Maybe], power: Sequence[Maybe], resistance: Sequence[Maybe], node: Sequence[int]
) -> list[Maybe]:
    """Of each GPU at one moment: the median over the others of its node, if there are two."""
    found: list[Maybe] = []
    for i, own in enumerate(node):
        felt = []
        for j, (t, p, r) in enumerate(zip(temperature, power, resistance, strict=True)):
            if j != i and own >= 0 and node[j] == own and t is not None and p is not None and r is not None:
                felt.append(t + 0.5 - r * p)
        found.append(median(felt) if len(felt) >= 2 else None)
    return found


def rings(flags: Sequence[bool], node: Sequence[int], rack: Sequence[int], loop: Sequence[int]) -> list[list[int]]:
    """[layer][gpu]: how many others are flagged, each in the narrowest layer that both share."""
    counts = [[0] * len(flags) for _ in range(3)]
    for i in range(len(flags)):
        for j in range(len(flags)):
            if i != j and flags[j]:
                for layer, group in enumerate((node, rack, loop)):
                    if group[i] >= 0 and group[i] == group[j]:
                        counts[layer][i] += 1
                        break
    return counts


def at_risk(ratio: Sequence[Maybe]) -> list[int]:
    """Bins of one GPU that may hold an onset: seen now and before, none of the three before throttled."""
    found = []
    for t in range(1, len(ratio)):
        if ratio[t] is not None and ratio[t - 1] is not None:
            before = [r for r in ratio[max(t - 3, 0) : t] if r is not None]
            if all(r <= 0.01 for r in before):
                found.append(t)
    return found
