"""The places of a fleet that can have an incident, and arithmetic over all of them at once."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import HOLDS_SHARE, DomainForecast, Topology

Place = tuple[str, str]  # layer, name
NO_PLACE = "job"  # moves from host to host: what strikes a job as a whole has a place of its own


@dataclass(frozen=True)
class Places:
    """names and members (GPU rows) of each domain; all members one behind the other (`row`), whose each is (`domain`),
    and how many there are (`size`)."""

    names: tuple[Place, ...]
    members: tuple[NDArray[np.int32], ...]
    row: NDArray[np.int32]
    domain: NDArray[np.intp]
    size: NDArray[np.intp]

    @staticmethod
    def of(names: tuple[Place, ...], members: tuple[NDArray[np.int32], ...]) -> "Places":
        size = np.array([len(rows) for rows in members], np.intp)
        row = np.concatenate([np.zeros(0, np.int32), *members])
        return Places(names, members, row, np.repeat(np.arange(len(size)), size), size)

    def count(self, flags: NDArray[np.bool_]) -> NDArray[np.intp]:
        """How many members of each domain are flagged [domain]; flags bool[gpu]."""
        return np.bincount(self.domain[flags[self.row]], minlength=len(self.size))

    def lowest(self, rank: NDArray[np.intp]) -> NDArray[np.intp]:
        """The lowest rank among the members of each domain [domain]; rank [gpu]."""
        found = np.full(len(self.size), np.iinfo(np.intp).max)
        np.minimum.at(found, self.domain, rank[self.row])
        return found

    def within_smaller(self, chosen: NDArray[np.bool_], gpus: int) -> NDArray[np.intp]:
        """How many members of each domain are also in a smaller one of the `chosen` domains [domain]."""
        inside = chosen[self.domain]
        least = np.full(gpus, np.iinfo(np.intp).max)
        np.minimum.at(least, self.row[inside], self.size[self.domain[inside]])
        return np.bincount(self.domain[least[self.row] < self.size[self.domain]], minlength=len(self.size))

    def overlapping(self, chosen: NDArray[np.intp], gpus: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of the `chosen` domains hang together by common members: (group of each of them, group of each GPU).

        A GPU that is in none of them has the group -1. Groups are numbered from 0.
        """
        from scipy.sparse import coo_array  # slow to import, and incidents are rare
        from scipy.sparse.csgraph import connected_components

        number = np.full(len(self.size), -1, np.intp)
        number[chosen] = np.arange(len(chosen))
        inside = number[self.domain] >= 0
        edge = (number[self.domain[inside]], len(chosen) + self.row[inside].astype(np.intp))
        nodes = len(chosen) + gpus
        graph = coo_array((np.ones(len(edge[0]), bool), edge), shape=(nodes, nodes))
        label = connected_components(graph, directed=False)[1]
        _, group = np.unique(label[: len(chosen)], return_inverse=True)
        of_gpu = np.full(gpus, -1, np.intp)
        of_gpu[self.row[inside]] = group[edge[0]]
        return group, of_gpu

    def smallest_holding(self, group: NDArray[np.intp], groups: int) -> NDArray[np.intp]:
        """The smallest domain that holds four fifths of each group's GPUs [group], -1 if none does; group [gpu]."""
        at = group[self.row]
        pair, count = np.unique(at[at >= 0] * len(self.size) + self.domain[at >= 0], return_counts=True)
        at, domain = np.divmod(pair, len(self.size))
        holds = count >= HOLDS_SHARE * np.bincount(group[group >= 0], minlength=groups)[at]
        at, domain = at[holds], domain[holds]
        found = np.full(groups, -1, np.intp)
        order = np.lexsort((domain, self.size[domain], at))[::-1]  # so that the smallest is written last
        found[at[order]] = domain[order]
        return found


def chosen_places(
    domains: DomainForecast, topology: Topology, needed: Iterable[Place]
) -> tuple[Places, NDArray[np.intp]]:
    """The places that the forecast speaks of, and where in it they stand [domain]; -1 for those that are only `needed`.

    A forecast leaves out a loop that is the same GPUs as a rack. Jobs are left out here, and needed places in which no
    GPU is known to stand.
    """
    kept = [number for number, (layer, _) in enumerate(domains.domains) if layer != NO_PLACE]
    names = [domains.domains[number] for number in kept]
    members = [domains.members[number] for number in kept]
    known = set(names)
    for layer, name in needed:
        told = topology.names.get(layer, ())
        if (layer, name) in known or name not in told:
            continue
        rows = np.flatnonzero(topology.groups[layer] == told.index(name)).astype(np.int32)
        if len(rows):
            names.append((layer, name))
            members.append(rows)
            kept.append(-1)
    return Places.of(tuple(names), tuple(members)), np.array(kept, np.intp)
