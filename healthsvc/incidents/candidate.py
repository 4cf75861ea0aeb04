"""What an incident would be, seen from this moment alone."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from healthsvc.fleet.forecast import IncidentKind

State = Literal["watch", "predicted", "active"]
FLEET = "fleet"  # the layer of an incident that no place holds: its members are the affected GPUs alone


class Level(IntEnum):
    """How much is known of it."""

    WATCH = 0
    PREDICTED = 1
    ACTIVE = 2

    @property
    def state(self) -> State:
        return ("watch", "predicted", "active")[self]


@dataclass(frozen=True)
class Candidate:
    """One common cause at one place, as of now. members: device_ids; rows: theirs, in the same order."""

    layer: str
    domain: str
    members: tuple[str, ...]
    rows: tuple[int, ...]
    level: Level
    kind: IncidentKind
    cause: str
    first_mover: str = ""
    began_s: float | None = None

    @property
    def alertname(self) -> str:
        """What its alert would be called; "" while it is only watched."""
        if self.level is Level.WATCH:
            return ""
        if self.kind == "power":
            return "FacilityPowerIncident"
        return "CoolingIncident" if self.level is Level.ACTIVE else "ThrottlingCascadePredicted"
