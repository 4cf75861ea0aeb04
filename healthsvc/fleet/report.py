"""What a cycle concludes, and the one immutable thing that publishers read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.arrays import Floats
from healthsvc.fleet.forecast import CLASSES, HORIZONS_S, DomainForecast, Facts, Incident
from healthsvc.fleet.gpus import GpuId
from healthsvc.fleet.history import FleetHistory

Arrays = Mapping[str, NDArray[Any]]


class Band(IntEnum):
    """Published as `healthsvc_gpu_band`; unknown never sorts into healthy."""

    UNKNOWN = -1
    HEALTHY = 0
    WATCH = 1
    DEGRADED = 2
    CRITICAL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class RiskReport:
    """The verdict on every GPU at `as_of_s`. Axes: gpu, class (CLASSES), grade (GRADES), horizon (HORIZONS_S).

    probability is NaN where the class is unknown and no prior stands in; calibrated bool[gpu, class] tells a
    calibrated probability from a prior one; observed bool[gpu, class]; risk float32[gpu, horizon] is NaN at
    coverage 0; share float32[gpu, class] at 7 d. class_band int8[gpu, class] is what the probability of a class alone
    has reached, the only part of a band that outlasts its cause (down to half of the threshold); facts and change
    alarms are not in it. reasons and actions hold only GPUs that have something to say.
    """

    as_of_s: float
    gpus: tuple[GpuId, ...]
    probability: Floats
    calibrated: NDArray[np.bool_]
    observed: NDArray[np.bool_]
    risk: Floats
    share: Floats
    coverage: Floats
    band: NDArray[np.int8]
    class_band: NDArray[np.int8]  # [gpu, class]
    facts: Facts
    change_p: Floats  # [gpu, class]
    time_to_limit_s: Floats  # [gpu, class, quantile]
    headroom_celsius: Mapping[str, Floats]  # sensor -> [gpu]
    evidence: Mapping[str, Mapping[str, Floats]]  # class -> name_unit -> [gpu]
    watch_p_30d: tuple[float, ...]  # of each class, P(T2, 30 d) from which a GPU is at watch
    reasons: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    actions: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    domains: tuple[DomainForecast, ...] = ()
    incidents: tuple[Incident, ...] = ()
    horizons_s: tuple[float, ...] = HORIZONS_S
    classes: tuple[str, ...] = CLASSES

    def ranking(self) -> NDArray[np.intp]:
        """Rows, most urgent first: open events, then by band, then risk at 7 d and at 30 d; unknown last."""
        urgent = self.facts.terminal.any(1) | self.facts.open_events.any(1)
        week, month = (np.where(np.isnan(self.risk[:, i]), -1.0, self.risk[:, i]) for i in (1, 2))
        return np.lexsort((-month, -week, -self.band, ~urgent))


@dataclass(frozen=True)
class Snapshot:
    """One finished cycle. Swapped in whole; nothing behind it is ever read by a publisher."""

    report: RiskReport
    history: FleetHistory
    state: Mapping[str, Arrays]  # forecaster name -> what it learned
    trained_at_s: float | None = None
