"""From when on a forecast or an excess of onsets is an incident, and when an incident is over."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

OTHERS = "wider"  # in `excess_p`: every layer that is not named


@dataclass(frozen=True)
class IncidentPolicy:
    """domain_p_2h: P(at least 3 members, 2 h) from which on an incident is predicted. excess_p: by layer, the tail
    probability of a half hour's onsets below which they are an incident, so small that all the domains of a large fleet
    reach it by chance less than once in years. clear_after_s: how long an incident is calm before it clears.
    """

    domain_p_2h: float = 0.5
    excess_p: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"node": 1e-7, OTHERS: 1e-6}))
    clear_after_s: float = 1800.0

    @classmethod
    def of(cls, thresholds: Mapping[str, Any]) -> "IncidentPolicy":
        """From the `thresholds` of a prior.json. Raises KeyError if domain_p_2h is not among them."""
        shipped = cls(thresholds["domain_p_2h"])
        excess_p = thresholds.get("excess_p")
        return shipped if excess_p is None else replace(shipped, excess_p=MappingProxyType(dict(excess_p)))

    def excess_of(self, layer: str) -> float:
        """The threshold of excess_p for a layer; of one that is not named, the strictest there is."""
        return self.excess_p.get(layer, self.excess_p.get(OTHERS, min(self.excess_p.values(), default=0.0)))
