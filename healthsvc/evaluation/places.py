"""Which GPUs a scope of incidents.csv stands for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from healthsvc.evaluation.labels import WHOLE_FLEET
from healthsvc.fleet import GpuId, Topology

SYNC_LAYERS = ("node", "job")  # in these, one GPU's failure stops the others


@dataclass(frozen=True)
class Places:
    """members: `layer:name` -> device_ids; gpus: every device_id that was ever observed."""

    gpus: frozenset[str]
    members: Mapping[str, frozenset[str]]

    def of(self, scope: str) -> frozenset[str]:
        """The GPUs of a scope: itself, or a place's members; empty if it is neither known GPU nor known place."""
        if scope in self.gpus:
            return frozenset({scope})
        if scope == WHOLE_FLEET:
            return self.gpus
        return self.members.get(scope, frozenset())

    def group_of(self, layer: str) -> Mapping[str, str]:
        """device_id -> the scope of its place in this layer; GPUs whose place is unknown are absent."""
        scopes = (scope for scope in self.members if scope.startswith(f"{layer}:"))
        return {gpu: scope for scope in scopes for gpu in self.members[scope]}


def places_of(gpus: Sequence[GpuId], topology: Topology) -> Places:
    """The places of a fleet; every GPU that is to be judged must be among `gpus`, also those that have left."""
    ids = np.array([gpu.device_id for gpu in gpus], object)
    members: dict[str, frozenset[str]] = {}
    for layer, groups in topology.groups.items():
        order = np.argsort(groups, kind="stable")
        numbers, starts = np.unique(groups[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            if number >= 0:
                members[f"{layer}:{topology.names[layer][number]}"] = frozenset(ids[rows].tolist())
    return Places(frozenset(ids.tolist()), MappingProxyType(members))
