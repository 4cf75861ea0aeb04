"""Who the GPUs are and where they sit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

LAYERS = ("node", "tray", "rack", "cooling_loop", "row", "power_feed", "job")
# Further columns of topology.csv that a hazard can learn from: where in the path of the cooling air a node stands (a
# number, larger is warmer), which delivery its boards came with, and when they were put in (a date).
BOARD_COLUMNS = ("position", "batch", "installed")


@dataclass(frozen=True, slots=True)
class GpuId:
    """One physical GPU. Identity is `device_id` (UUID or serial); everything else may change over its life.

    `slot` is where it is plugged in (PCI bus id, else the index): a new device_id on a known slot is a swap, and the
    newcomer inherits no history.
    """

    device_id: str
    hostname: str = ""
    index: str = ""
    product: str = ""
    slot: str = ""
    cluster: str = ""

    def __hash__(self) -> int:  # whole fleets are keys of caches, and a string keeps its hash
        return hash(self.device_id)

    @property
    def place(self) -> tuple[str, str, str]:
        """The socket this GPU occupies: (cluster, hostname, slot)."""
        return (self.cluster, self.hostname, self.slot or self.index)


@dataclass(frozen=True, slots=True)
class Workload:
    """The pod that holds a GPU."""

    namespace: str
    pod: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Who a GPU was from this moment on: its labels, and the MIG instances it was cut into.

    instances: None where the samples do not tell; empty where the GPU is whole.
    """

    at_s: float
    gpu: GpuId
    instances: frozenset[str] | None = None


@dataclass(frozen=True)
class Topology:
    """Which GPUs share a node, rack, loop or feed.

    groups: {layer: int32[gpu]}, -1 unknown; names: {layer: names by group number}. A layer that is absent is wholly
    unknown. BOARD_COLUMNS are kept in the same way: who shares a value of them.
    """

    groups: Mapping[str, NDArray[np.int32]]
    names: Mapping[str, tuple[str, ...]]

    def group(self, layer: str, gpu_count: int) -> NDArray[np.int32]:
        """Group number of each GPU in `layer`; all -1 where the layer is unknown."""
        known = self.groups.get(layer)
        return known if known is not None else np.full(gpu_count, -1, np.int32)

    def members(self, layer: str) -> tuple[NDArray[np.intp], ...]:
        """Rows of each group of `layer`, ascending, by group number; none where the layer is unknown."""
        group = self.groups.get(layer)
        if group is None:
            return ()
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(len(self.names[layer]) + 1))
        return tuple(order[start:end] for start, end in pairwise(starts.tolist()))

    def take(self, rows: NDArray[np.intp]) -> "Topology":
        """The same places, seen from a subset or permutation of the GPUs."""
        return Topology({k: v[rows] for k, v in self.groups.items()}, self.names)


@dataclass(frozen=True)
class Placement:
    """topology.csv as a table: hostname -> {layer: name}; further columns of the file are kept as labels."""

    by_hostname: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))

    def over(self, other: "Placement | None") -> "Placement":
        """Both, layer by layer: what this one leaves open is as in `other`."""
        if other is None or not other.by_hostname:
            return self
        hosts = sorted({*self.by_hostname, *other.by_hostname})
        nothing: Mapping[str, str] = {}
        merged = {
            host: {**other.by_hostname.get(host, nothing), **_told(self.by_hostname.get(host, nothing))}
            for host in hosts
        }
        return Placement(MappingProxyType(merged))


def _told(places: Mapping[str, str]) -> dict[str, str]:
    return {layer: name for layer, name in places.items() if name}


def build_topology(gpus: Sequence[GpuId], placement: Placement | None = None) -> Topology:
    """Number the places of each layer; the node comes from the hostname, the other layers from `placement`.

    Names are numbered in sorted order, so the same fleet gives the same numbers whatever the order of its rows.
    """
    places = placement.by_hostname if placement else {}
    labels: dict[str, list[str]] = {"node": [g.hostname for g in gpus]}
    for layer in (*LAYERS[1:], *BOARD_COLUMNS):
        column = [places.get(g.hostname, {}).get(layer, "") for g in gpus]
        if any(column):
            labels[layer] = column
    groups: dict[str, NDArray[np.int32]] = {}
    names: dict[str, tuple[str, ...]] = {}
    for layer, column in labels.items():
        ordered = tuple(sorted({name for name in column if name}))
        number = {name: i for i, name in enumerate(ordered)}
        groups[layer] = np.array([number.get(name, -1) for name in column], np.int32)
        names[layer] = ordered
    return Topology(groups, names)
