"""Which GPUs a scope of incidents.csv stands for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from healthsvc.evaluation.labels import WHOLE_FLEET
from healthsvc.fleet import GpuId, Topology

SYNC_LAYERS = ("node", "job")  # in these, one GPU's failure stops the others


@dataclass(frozen=True)
class Places:
    """members: `layer:name` -> device_ids; gpus: every device_id that was ever observed."""

    gpus: frozenset[str] = frozenset()
    members: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))

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
    members = {
        f"{layer}:{name}": frozenset(gpus[row].device_id for row in rows.tolist())
        for layer in topology.groups
        for name, rows in zip(topology.names[layer], topology.members(layer), strict=True)
        if len(rows)  # a topology that was cut down to some GPUs keeps the names of places they are not in
    }
    return Places(frozenset(gpu.device_id for gpu in gpus), MappingProxyType(members))
