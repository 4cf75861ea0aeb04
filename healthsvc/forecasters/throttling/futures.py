"""Picks out of the fleet what the simulation of one domain needs."""

from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import NEIGHBOUR_LAYERS, FleetHistory
from healthsvc.forecasters.throttling.onset_model import NEIGHBOURS, OnsetModel
from healthsvc.forecasters.throttling.outlook import Outlook
from healthsvc.forecasters.throttling.simulation import Futures, Members, Ring, simulate

MOST_FUTURES, LEAST_FUTURES = 400, 100
MEMBER_FUTURES = 40_000  # of one domain, so that a row of a thousand GPUs takes no longer than ten racks


@dataclass(frozen=True)
class DomainFutures:
    """The futures of the domains of one cycle. The same fleet gives the same futures, whatever the order of its rows:
    members are put in order of their identity, and the seed is the domain's name."""

    now: Outlook
    model: OnsetModel
    history: FleetHistory
    horizons_s: tuple[float, ...]
    goes_on: float

    def of(self, rows: NDArray[np.intp], name: str) -> Futures:
        """One domain; rows [member], -1 where there is none."""
        rows = rows[rows >= 0]
        gpus = self.history.gpus
        rows = rows[np.argsort([crc32(gpus[row].device_id.encode()) for row in rows.tolist()], kind="stable")]
        now = self.now
        members = Members(rows, now.alone[rows], now.margin_celsius[rows], now.hot[rows], self._rings(rows))
        futures = int(np.clip(MEMBER_FUTURES // len(rows), LEAST_FUTURES, MOST_FUTURES))
        return simulate(members, now.path, self.horizons_s, self.goes_on, futures, crc32(name.encode()))

    @cached_property
    def _hot_in(self) -> dict[str, NDArray[np.int64]]:
        """How many throttle in each group of a layer of neighbours, by group number."""
        found = {}
        for layer in NEIGHBOUR_LAYERS:
            group = self.history.topology.group(layer, len(self.now.hot))
            hot = group[self.now.hot & (group >= 0)]
            found[layer] = np.bincount(hot, minlength=int(group.max(initial=0)) + 1)
        return found

    def _rings(self, rows: NDArray[np.intp]) -> tuple[Ring, ...]:
        rings = []
        effects = self.model.effects[NEIGHBOURS]
        nearer = -2 - np.arange(len(rows))  # each by itself
        for layer, effect in zip(NEIGHBOUR_LAYERS, effects.tolist(), strict=True):
            group = self.history.topology.group(layer, len(self.now.hot))[rows].astype(np.intp)
            known = group >= 0
            _, number = np.unique(np.where(known, group, nearer), return_inverse=True)
            inside = np.bincount(number[self.now.hot[rows]], minlength=int(number.max()) + 1)[number]
            total = np.where(known, self._hot_in[layer][np.maximum(group, 0)], inside)
            rings.append(Ring(number, (total - inside).astype(np.float64), effect))
            nearer = np.where(known, -2 - len(rows) - number, nearer)
        return tuple(rings)
