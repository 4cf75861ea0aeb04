"""The two kinds of row that a vendor's table is made of."""

from dataclasses import dataclass
from typing import Literal

from healthsvc.fleet import Signal

Merge = Literal["max", "min", "last"]


@dataclass(frozen=True)
class Row:
    """One exporter metric and the canonical signal it carries.

    value in base units = sample * scale. Where several series of one device report in one grid column (pods, jobs,
    MIG instances, replicas), `merge` picks the largest, the smallest or the newest; never a sum, because they repeat
    one reading. Of several rows with one signal the earlier wins, sample by sample.
    """

    signal: Signal
    metric: str
    scale: float = 1.0
    merge: Merge = "max"


@dataclass(frozen=True)
class EnvironmentRow:
    """One metric of a place. The place is named by the first of `place_labels` that a series has; `matcher` narrows."""

    signal: Signal
    metric: str
    layer: str
    place_labels: tuple[str, ...]
    matcher: str = ""
    merge: Merge = "max"
