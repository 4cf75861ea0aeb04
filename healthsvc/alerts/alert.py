"""One alert, and the named reasons for holding one back or ending it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import cached_property
from types import MappingProxyType

SEVERITIES = ("critical", "warning", "info")


class Rank(IntEnum):
    """How grave the alert of one GPU and class is. A standing alert climbs; it never steps down."""

    DEGRADING = 0  # the watch rule
    FAILURE = 1  # T2 predicted
    LOST = 2  # a fact: gone although its node answers
    TERMINAL = 3  # T1, predicted or a fact


class Held(StrEnum):
    """Why a wanted alert does not fire (yet)."""

    HOLD = "hold"  # the condition has not lasted long enough
    COOLDOWN = "cooldown"  # the same class ended lately, at this rank or above
    WARM_UP = "warm_up"  # right after the start, silence proves nothing
    UNDER_INCIDENT = "under_incident"  # a member of an open incident, which has its own alert
    UNDER_WIDER_UNKNOWN = "under_wider_unknown"  # many hosts are unknown, and one alert says so
    FLOOD = "flood"  # too many new alerts at once; listed in one alert, and fired later a few at a time


class Resolution(StrEnum):
    """Why an alert ended."""

    CLEARED = "cleared"
    ESCALATED = "escalated"  # a graver alert of the same GPU and class replaces it
    SWAPPED = "swapped"  # another GPU sits in its socket
    DEPARTED = "departed"  # the GPU has left the fleet, and no other one is known to sit in its socket
    TAKEN_OVER = "taken_over"  # no data for too long: GpuTelemetryUnknown stands in for it


@dataclass(frozen=True)
class Alert:
    """What stands in Alertmanager. Labels are identity and never carry a number; annotations may change every cycle.

    raised_s is data time.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    raised_s: float

    def __post_init__(self) -> None:
        for name in ("labels", "annotations"):
            stated = {key: text for key, text in getattr(self, name).items() if text}  # an empty label is no label
            object.__setattr__(self, name, MappingProxyType(stated))

    @property
    def alertname(self) -> str:
        return self.labels["alertname"]

    @property
    def severity(self) -> str:
        return self.labels["severity"]

    @cached_property
    def key(self) -> str:
        """Fingerprint of the labels: the same alert has the same key in every process."""
        text = json.dumps(sorted(self.labels.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def ended(self, resolution: Resolution, because: str = "") -> "Alert":
        """The same alert, saying why it ended."""
        said = f"{resolution.value}: {because}" if because else resolution.value
        return replace(self, annotations={**self.annotations, "resolution": said})

    def order(self) -> tuple[int, float, str]:
        """Gravest first, then oldest."""
        return (SEVERITIES.index(self.severity), self.raised_s, self.key)
