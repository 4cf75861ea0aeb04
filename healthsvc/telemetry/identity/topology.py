"""Where GPUs stand, as far as the labels of their series tell: racks, loops, and what DCGM knows of its chassis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from healthsvc.fleet import LAYERS, Placement
from healthsvc.telemetry.identity.labels import host_of

# DCGM fields 572 to 574, if the exporter's CSV lists them as labels: the serial number is the rack's, the tray index
# counts its compute trays, the slot its trays and switches (dcgm_fields.h).
CHASSIS_LABEL = "DCGM_FI_DEV_PLATFORM_CHASSIS_SERIAL_NUMBER"
TRAY_LABELS = ("DCGM_FI_DEV_PLATFORM_TRAY_INDEX", "DCGM_FI_DEV_PLATFORM_CHASSIS_SLOT_NUMBER")
_NOTHING = frozenset({"", "0", "N/A", "unknown"})


def platform_places(labels: Mapping[str, str]) -> dict[str, str]:
    """Rack and tray from DCGM's platform fields; nothing for boards that are in no such chassis."""
    chassis = labels.get(CHASSIS_LABEL, "")
    if chassis in _NOTHING:
        return {}
    tray = next((labels[name] for name in TRAY_LABELS if labels.get(name)), "")
    return {"rack": chassis} | ({"tray": f"{chassis}/{tray}"} if tray else {})


@dataclass
class LabelledPlaces:
    """Learns from label sets. by_layer: the label that names each layer; it goes before DCGM's fields.

    A host that is said to stand in two places stands in the one heard of last, which a server gives in no order: labels
    that contradict each other are not found out here.
    """

    by_layer: Mapping[str, str]
    _hosts: dict[str, dict[str, str]] = field(default_factory=dict, init=False)
    _placement: Placement | None = field(default=None, init=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it has to be shown."""
        return tuple(dict.fromkeys((*self.by_layer.values(), CHASSIS_LABEL, *TRAY_LABELS)))

    def hear(self, labels: Mapping[str, str]) -> None:
        """One label set of a GPU's series."""
        told = platform_places(labels)
        told |= {layer: labels[name] for layer, name in self.by_layer.items() if layer in LAYERS and labels.get(name)}
        host, _ = host_of(labels)
        if not told or not host:
            return
        known = self._hosts.setdefault(host, {})
        if any(known.get(layer) != name for layer, name in told.items()):
            known.update(told)
            self._placement = None

    def placement(self) -> Placement | None:
        """What has been heard so far, None as long as that is nothing; the same object until there is news."""
        if self._placement is None and any(self._hosts.values()):
            hosts = {host: MappingProxyType(dict(sorted(places.items()))) for host, places in self._hosts.items()}
            self._placement = Placement(MappingProxyType(dict(sorted(hosts.items()))))
        return self._placement
