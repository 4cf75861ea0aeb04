"""What one read of a source can know from those before it."""

from dataclasses import dataclass, field

from healthsvc.telemetry.framing.codes import Totals
from healthsvc.telemetry.framing.owners import Owners
from healthsvc.telemetry.framing.tails import Freshness
from healthsvc.telemetry.framing.units import UnitJudge

_KEPT_TOTALS = 6  # reads that others may continue


@dataclass
class ReadMemory:
    """What one read of a source can know from those before it. A source keeps one for its life; it is never stored.

    totals[the moment until which they are known][metric in small letters]: of every metric that counts codes, also of
    one that had no series, which has counted nothing yet. owners: whose series are whose.
    """

    units: UnitJudge = field(default_factory=UnitJudge)
    freshness: Freshness = field(default_factory=Freshness)
    totals: dict[float, dict[str, Totals]] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)

    def keep_totals(self, end_s: float, last: dict[str, Totals]) -> None:
        """Remember them in the place of the oldest."""
        self.totals.pop(end_s, None)
        self.totals[end_s] = last
        while len(self.totals) > _KEPT_TOTALS:
            del self.totals[next(iter(self.totals))]
