"""The one mutable cell between the engine, which writes, and the publishers, which read."""

from dataclasses import dataclass, field

from healthsvc.alerts import Decision
from healthsvc.alerts.state import AlertState
from healthsvc.fleet import Snapshot
from healthsvc.fleet.survey import Survey

MISSED_CYCLES = 3  # after so many the last report is too old to be shown as if it were of now


@dataclass(frozen=True)
class ServiceStatus:
    """How the service itself is. last_cycle_s and heartbeat_s are on the monotonic clock; replay_s is data time.

    heartbeat_s: the loop was alive then, whatever it did. reasons: why not ready, one short sentence each. backfill:
    days walked, of days to walk.
    """

    ready: bool = False
    reasons: tuple[str, ...] = ()
    last_cycle_s: float | None = None
    missed_cycles: int = 0
    source_ok: bool = True
    source_message: str = ""
    backfill_days: tuple[int, int] | None = None
    replay_s: float | None = None
    heartbeat_s: float = 0.0


@dataclass
class Board:
    """Each part is immutable and swapped whole; take one reference and read from that."""

    snapshot: Snapshot | None = None
    decision: Decision = field(default_factory=lambda: Decision(AlertState()))
    status: ServiceStatus = field(default_factory=ServiceStatus)
    survey: Survey | None = None  # of the newest cycle
