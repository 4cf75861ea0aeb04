"""Many futures of one domain, two hours in steps of ten minutes: heat that goes on rising, and neighbours that pull.

In each future the failing stops at a moment of its own, the sensors' offsets are drawn anew, and whoever throttles in
one step raises the chances of its neighbours in the next. Vectorised over futures and members.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import LEAST_MEMBERS
from healthsvc.forecasters.throttling.heat_path import HeatPath
from healthsvc.forecasters.throttling.reach import needed_s

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
BIN_S = 600.0
LAGS_BY_CELSIUS = 1.0  # deviation of the moment at which a GPU throttles from its limit: dips, fans, the next degree
RATE_DOUBT = 0.25  # deviation of the log of a believed rate
STAYS = 0.6  # of those that throttle by chance, how many still do ten minutes later; who is heated stays


@dataclass(frozen=True)
class Ring:
    """Neighbours of one layer: the group of each member within the domain [member], how many throttle in it outside
    the domain [member], and their effect on the log odds of an onset a log(1 + count)."""

    group: NDArray[np.intp]
    outside: Numbers
    effect: float


@dataclass(frozen=True)
class Members:
    """One domain. rows [member] of the fleet; logit [member]: log odds of an onset within ten minutes, without
    neighbours; margin_celsius [member]; hot bool[member]: throttles already; rings: narrowest layer first."""

    rows: NDArray[np.intp]
    logit: Numbers
    margin_celsius: Numbers
    hot: Flags
    rings: tuple[Ring, ...]


@dataclass(frozen=True)
class Futures:
    """at_least [k, horizon] for k = 1..3; throttled_h: expected GPU-hours throttled within the last horizon."""

    at_least: Numbers
    throttled_h: float


def simulate(
    members: Members, path: HeatPath, horizons_s: tuple[float, ...], goes_on: float, futures: int, seed: int
) -> Futures:
    """goes_on: the exponent a of P(lasts r longer) = (d / (d + r))^a after it has lasted d (Lomax 1954: the longer it
    has lasted the longer it will; a = 1 would be even odds for as long again)."""
    rng = np.random.default_rng(seed)
    shape = (futures, len(members.rows))
    here = path.of(members.rows)
    lasts_s = here.age_s * (rng.uniform(1e-6, 1.0, (futures, 1)) ** (-1.0 / goes_on) - 1.0)
    pace = np.exp(rng.normal(0.0, RATE_DOUBT, (futures, 1)))
    wait_s = needed_s(here, members.margin_celsius + rng.normal(0.0, LAGS_BY_CELSIUS, shape))
    steps = round(horizons_s[-1] / BIN_S)
    begin, stay = rng.random((2, steps, *shape), np.float32)
    # Log odds of each draw, so that a comparison is all that a step needs.
    begin = np.log(begin + 1e-12) - np.log1p(-begin)
    now = np.broadcast_to(members.hot, shape).copy()
    ever, pull = now.copy(), _Pull.of(members.rings)
    at_least = np.zeros((LEAST_MEMBERS, len(horizons_s)))
    ends = {round(h / BIN_S): column for column, h in enumerate(horizons_s)}
    throttled = 0
    for step in range(1, steps + 1):
        begins = begin[step - 1] < members.logit + pull.on(now)
        reached = np.minimum(step * BIN_S * pace, lasts_s) >= wait_s
        now = reached | begins | (now & (members.hot | (stay[step - 1] < STAYS)))
        ever |= now
        throttled += int(now.sum())
        if step in ends:
            total = ever.sum(axis=1)
            at_least[:, ends[step]] = [(total >= k).mean() for k in range(1, LEAST_MEMBERS + 1)]
    return Futures(at_least, throttled / futures * BIN_S / 3600.0)


@dataclass(frozen=True)
class _Pull:
    """What throttling neighbours add to the log odds; each counts in the narrowest layer that is shared."""

    rings: tuple[tuple[Ring, NDArray[np.float32]], ...]  # with [member, group]: 1 where a member is in a group

    @staticmethod
    def of(rings: tuple[Ring, ...]) -> "_Pull":
        return _Pull(tuple((ring, np.eye(int(ring.group.max()) + 1, dtype=np.float32)[ring.group]) for ring in rings))

    def on(self, now: Flags) -> Numbers:
        """now bool[future, member]: who throttles -> [future, member]."""
        added = np.zeros(now.shape)
        throttled = now.astype(np.float32)
        nearer: Numbers = throttled.astype(np.float64)  # the GPU itself is no neighbour of its own
        for ring, inside in self.rings:
            if not ring.outside.any() and not now.any():
                continue
            whole = (throttled @ inside)[:, ring.group] + ring.outside
            added += ring.effect * np.log1p(np.maximum(whole - nearer, 0.0))
            nearer = whole
        return added
