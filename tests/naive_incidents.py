"""Slow, obvious twins of what is fast about incidents: one domain, one GPU, one lag at a time."""

from collections.abc import Mapping, Sequence

Maybe = float | None


def overlapping(domains: Mapping[int, Sequence[int]]) -> list[set[int]]:
    """Domains that hang together by common members, directly or through others."""
    groups: list[tuple[set[int], set[int]]] = []
    for number, members in domains.items():
        mine, rows = {number}, set(members)
        for other in [group for group in groups if group[1] & rows]:
            groups.remove(other)
            mine, rows = mine | other[0], rows | other[1]
        groups.append((mine, rows))
    return [group[0] for group in groups]


def smallest_holding(affected: set[int], domains: Sequence[Sequence[int]], share: float) -> int | None:
    """The smallest domain with this share of the affected GPUs in it; of equals the first."""
    holds = [n for n, members in enumerate(domains) if len(affected & set(members)) >= share * len(affected)]
    return min(holds, key=lambda n: (len(domains[n]), n), default=None)


def within_smaller(domain: int, chosen: set[int], domains: Sequence[Sequence[int]]) -> int:
    """How many members of a domain are also in a smaller chosen one."""
    smaller = [set(domains[n]) for n in chosen if len(domains[n]) < len(domains[domain])]
    return sum(any(row in other for other in smaller) for row in domains[domain])


def correlation_at(first: Sequence[Maybe], second: Sequence[Maybe], lag: int, least: int) -> Maybe:
    """Of the changes of `first` with those of `second` so many bins later; None with too few pairs."""
    pairs = []
    for t in range(1, len(first)):
        then = t + lag
        if not 1 <= then < len(second):
            continue
        a0, a1, b0, b1 = first[t - 1], first[t], second[then - 1], second[then]
        if a0 is not None and a1 is not None and b0 is not None and b1 is not None:
            pairs.append((a1 - a0, b1 - b0))
    if len(pairs) < least:
        return None
    mean_a, mean_b = (sum(pair[i] for pair in pairs) / len(pairs) for i in (0, 1))
    product = sum((a - mean_a) * (b - mean_b) for a, b in pairs)
    scale = sum((a - mean_a) ** 2 for a, _ in pairs) * sum((b - mean_b) ** 2 for _, b in pairs)
    return product / scale**0.5 if scale > 0 else 0.0


def brakes_together(began_s: Sequence[float], node: Sequence[int], within_s: float, least: int) -> list[set[int]]:
    """GPUs whose brakes began within so long of each other on enough nodes, in chains."""
    found: list[set[int]] = []
    for start in sorted(set(began_s)):
        inside = {i for i, at in enumerate(began_s) if start <= at <= start + within_s}
        if len({node[i] for i in inside}) < least:
            continue
        joined = [group for group in found if group & inside]
        for group in joined:
            found.remove(group)
            inside |= group
        found.append(inside)
    return found
