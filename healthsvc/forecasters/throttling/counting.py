"""How many of a domain: chances of at least so many members, and of more than chance explains."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import LEAST_MEMBERS

Numbers = NDArray[np.float64]


def at_least(p: Numbers, certain: NDArray[np.int64]) -> Numbers:
    """P(count >= k) for k = 1..3 [domain, k, horizon] from independent chances p [domain, member, horizon] on top of
    `certain` members [domain]. Exact Poisson-binomial: only P(0), P(1), P(2) are needed.
    """
    nobody = np.zeros((len(p), 1, p.shape[2]))  # so that a domain without members has one that never does
    p = np.concatenate([p, nobody], axis=1)
    exactly = [1.0 - p, p, np.zeros_like(p)]  # P(0), P(1), P(2) of each member alone
    while exactly[0].shape[1] > 1:  # of two halves together, until one is left: log2 of the largest domain
        half = exactly[0].shape[1] // 2
        (a0, a1, a2), (b0, b1, b2) = ([e[:, part] for e in exactly] for part in (slice(half), slice(half, 2 * half)))
        odd = [e[:, 2 * half :] for e in exactly]
        both = (a0 * b0, a0 * b1 + a1 * b0, a0 * b2 + a1 * b1 + a2 * b0)
        exactly = [np.concatenate([e, rest], axis=1) for e, rest in zip(both, odd, strict=True)]
    below = np.cumsum(np.concatenate([nobody, *exactly], axis=1), axis=1)  # P(fewer than j beyond certain), j = 0..3
    needed = np.clip(np.arange(1, LEAST_MEMBERS + 1)[None, :] - certain[:, None], 0, LEAST_MEMBERS)
    return np.clip(1.0 - np.take_along_axis(below, needed[:, :, None], axis=1), 0.0, 1.0)


def tail(p: Numbers, count: int) -> float:
    """P(at least `count` of the members), each with its own chance p [member]; exact to rounding.

    The tail itself is added up from its smallest part, so that 1e-12 is not lost beside 1.
    """
    chance = np.zeros(len(p) + 1)
    chance[0] = 1.0
    for member, q in enumerate(p):
        chance[1 : member + 2] = chance[1 : member + 2] * (1 - q) + chance[: member + 1] * q
        chance[0] *= 1 - q
    return float(min(chance[count:][::-1].sum(), 1.0))


def either(one: Numbers, other: Numbers) -> Numbers:
    """P of either of two that do not depend on each other."""
    both: Numbers = 1.0 - (1.0 - one) * (1.0 - other)
    return both
