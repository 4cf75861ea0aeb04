"""What one read of a source can know from those before it."""

from dataclasses import dataclass, field

from healthsvc.telemetry.framing.freshness import Freshness
from healthsvc.telemetry.framing.units import UnitJudge

_KEPT_TOTALS = 16  # of reads that others may continue


@dataclass
class ReadMemory:
    """What one read of a source can know from those before it. A source keeps one for its life; it is never stored.

    totals[metric, the moment until which they are known] = {(device_id, code): count}.
    """

    units: UnitJudge = field(default_factory=UnitJudge)
    freshness: Freshness = field(default_factory=Freshness)
    totals: dict[tuple[str, float], dict[tuple[str, int], float]] = field(default_factory=dict)

    def keep_totals(self, metric: str, end_s: float, last: dict[tuple[str, int], float]) -> None:
        """Remember them in the place of the oldest."""
        self.totals.pop((metric, end_s), None)
        self.totals[metric, end_s] = last
        while len(self.totals) > _KEPT_TOTALS:
            del self.totals[next(iter(self.totals))]
