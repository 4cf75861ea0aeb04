"""Which GPUs could throttle together: the places that they share, the jobs, and nodes that are seen to move together.

Blind to places that nobody names, but for nodes that have moved together for two weeks. A job is told by the names of
its pods alone: two jobs of one namespace that are called gpt-2 and gpt-3 look like one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.comovement import nodes_moving_together
from healthsvc.features.medians import group_rows
from healthsvc.fleet import LAYERS, LEAST_MEMBERS, FleetHistory, GpuId, Same, Topology, Workload, frozen_array

PLACES = tuple(layer for layer in LAYERS if layer != "job")
INFERRED = "inferred"
# What controllers append to a pod's name: a Deployment's template hash, an ordinal or index (StatefulSet, indexed Job),
# a random end. The alphabet has no vowels, so that no words come of it (k8s.io/apimachinery, util/rand).
_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
_POD = re.compile(rf"(.+?)(?:-{_HASH}{{8,10}})?(?:-\d+)?(?:-{_HASH}{{5}})?")


@dataclass(frozen=True)
class DomainTable:
    """The domains of one layer: those with at least three GPUs.

    table [domain, member]: GPU rows, ascending, padded with -1; names [domain]. inferred: guessed from how nodes move
    together, not told. same_as: wider layers whose domains are these very ones, with their names in this order.
    """

    layer: str
    names: tuple[str, ...]
    table: NDArray[np.intp]
    inferred: bool = False
    same_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def domains_of(history: FleetHistory) -> tuple[DomainTable, ...]:
    """A table a layer: node, tray, rack, cooling_loop, row, power_feed, job, inferred; without those that have none.

    A layer whose domains have the same members as those of a narrower one is not listed: one place is judged once.
    Jobs within one node are not listed: that is the node. Layer `inferred` stands in where neither racks nor cooling
    loops are known.
    """
    return history.once("domains", _domains)


def _domains(history: FleetHistory) -> tuple[DomainTable, ...]:
    gpus, topology = history.gpus, history.topology
    tables = list(_placed(Same(topology), len(gpus)))
    named = any((topology.group(layer, len(gpus)) >= 0).any() for layer in ("rack", "cooling_loop"))
    node = topology.group("node", len(gpus))
    groups, names = jobs(gpus, history.workloads, node)
    tables = _without_repeats([*tables, _table("job", groups, names)])
    if not named:
        together = nodes_moving_together(history.daily, node)
        count = int(together.max(initial=-1)) + 1
        tables.append(_table(INFERRED, together, tuple(f"{INFERRED}-{i + 1}" for i in range(count)), inferred=True))
    return tuple(table for table in tables if len(table.table))


@lru_cache(maxsize=4)
def _placed(where: Same[Topology], gpus: int) -> tuple[DomainTable, ...]:
    topology = where.it
    tables = [_table(layer, topology.group(layer, gpus), topology.names.get(layer, ())) for layer in PLACES]
    return tuple(_without_repeats(tables))


def _table(layer: str, groups: NDArray[np.int32], names: Sequence[str], inferred: bool = False) -> DomainTable:
    """groups int32[gpu], -1 for none."""
    table = group_rows(groups)
    kept = np.flatnonzero((table >= 0).sum(axis=1) >= LEAST_MEMBERS)
    chosen = tuple(names[i] for i in kept.tolist())
    return DomainTable(layer, chosen, frozen_array(table[kept]), inferred)


def _without_repeats(tables: Sequence[DomainTable]) -> list[DomainTable]:
    """Those that no table before them says already; of the others, the names go to that one's `same_as`."""
    kept: list[DomainTable] = []
    for table in tables:
        order = _by_first_member(table)
        twin = next(
            (i for i, old in enumerate(kept) if np.array_equal(old.table[_by_first_member(old)], table.table[order])),
            None,
        )
        if twin is None:
            kept.append(table)
            continue
        at = np.empty_like(order)
        at[_by_first_member(kept[twin])] = order  # which domain of `table` each of the twin's is
        names = tuple(table.names[i] for i in at.tolist())
        kept[twin] = replace(kept[twin], same_as={**kept[twin].same_as, table.layer: names})
    return kept


def _by_first_member(table: DomainTable) -> NDArray[np.intp]:
    """An order of the domains that their names do not decide: a GPU is in one domain of a layer at most."""
    return np.argsort(table.table[:, 0]) if len(table.table) else np.zeros(0, np.intp)


def jobs(
    gpus: Sequence[GpuId], workloads: Mapping[str, Workload], node: NDArray[np.int32]
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """The job of each GPU [gpu], -1 for none, and the names of the jobs; only jobs on at least two nodes."""
    if not workloads:
        return np.full(len(gpus), -1, np.int32), ()
    held = [workloads.get(gpu.device_id) for gpu in gpus]
    label = {pod: f"{pod.namespace}/{job_of(pod.pod)}" for pod in set(held) if pod}
    names = tuple(sorted(set(label.values())))
    number = {name: i for i, name in enumerate(names)}
    of_pod: dict[Workload | None, int] = {pod: number[name] for pod, name in label.items()}
    job = np.array([of_pod.get(pod, -1) for pod in held], np.int32)
    known = (job >= 0) & (node >= 0)
    pairs = np.unique(np.stack([job[known], node[known]]), axis=1)
    wide = np.append(np.bincount(pairs[0], minlength=len(names)) >= 2, False)  # job -1 picks the last
    return np.where(wide[job], job, -1).astype(np.int32), names


@lru_cache(maxsize=2**16)
def job_of(pod: str) -> str:
    """The name that the pods of one job share: train-0 and train-1 are of train."""
    told = _POD.fullmatch(pod)
    return told[1] if told else pod
