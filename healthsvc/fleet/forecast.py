"""What forecasters say: hazards per GPU, probabilities per domain, and facts that need no forecast."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.arrays import Floats, frozen_array
from healthsvc.fleet.times import DAY_S

CLASSES = ("thermal", "memory", "device_loss")
GRADES = ("T2", "T1")  # service event (or worse); terminal, RMA-grade
HORIZONS_S = (DAY_S, 7 * DAY_S, 30 * DAY_S)
HORIZON_NAMES = ("24h", "7d", "30d")
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Forecast:
    """Cumulative hazard of one failure class: P(grade within horizon) = 1 - exp(-H).

    cumulative_hazard float32[gpu, grade, horizon]: >= 0, rising along the horizon, H(T2) >= H(T1); a NaN row means
    unknown. change_p float32[gpu]: tail probability of "nothing has changed", NaN = not tested. time_to_limit_s
    float32[gpu, quantile] at 10, 50, 90 %; NaN = no crossing expected. evidence: {name ending in its unit: [gpu]}.
    """

    horizons_s: tuple[float, ...]
    cumulative_hazard: Floats
    change_p: Floats
    time_to_limit_s: Floats
    evidence: Mapping[str, Floats]

    def __post_init__(self) -> None:
        gpus, horizons = len(self.cumulative_hazard), len(self.horizons_s)
        wanted = {
            "cumulative_hazard": (gpus, len(GRADES), horizons),
            "change_p": (gpus,),
            "time_to_limit_s": (gpus, len(QUANTILES)),
        }
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(f"Forecast.{name} has shape {array.shape}; needs {shape}")
            object.__setattr__(self, name, frozen_array(array))
        for name, array in self.evidence.items():
            if array.shape != (gpus,):
                raise ValueError(f"Forecast.evidence[{name}] has shape {array.shape}; needs ({gpus},)")
        object.__setattr__(self, "evidence", MappingProxyType(dict(self.evidence)))


@dataclass(frozen=True)
class NeighbourEffect:
    """How much a throttling neighbour of a layer hastens an onset, given the environment: log odds a log(1 + count).

    estimated: effect with its 90 % interval low, high. insufficient: fewer onsets than an estimate needs. not
    separable: no environment is measured, so that a common cause would look the same. NaN unless estimated.
    """

    layer: str
    status: Literal["estimated", "insufficient", "not separable"]
    effect: float
    low: float
    high: float
    onsets: int


@dataclass(frozen=True)
class DomainForecast:
    """P(at least k members of a domain throttle within the horizon), for domains with at least 3 members.

    domains: (layer, name); members: GPU rows per domain; probability_at_least_k float32[domain, k-1, horizon] for
    k = 1..3; expected_lost_gpu_hours float32[domain] over the second horizon: whole for a member that throttles now,
    half for one that begins within it, since it begins anywhere in it alike; throttling: members that throttle now.

    watch bool[domain]: worth a look, though no alert. excess_p float64[domain]: tail probability of as many onsets as
    the half hour that has just ended has seen, given each member's own covariates at its start and no neighbours; NaN
    but in the cycle that ends a half hour. inferred bool[domain]: the domain was guessed from how its GPUs move
    together. neighbours: what the fit says of contagion, by layer.
    """

    domains: tuple[tuple[str, str], ...]
    horizons_s: tuple[float, ...]
    probability_at_least_k: Floats
    expected_lost_gpu_hours: Floats
    throttling: NDArray[np.int32]
    members: tuple[NDArray[np.int32], ...]
    watch: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    excess_p: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    inferred: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    neighbours: tuple[NeighbourEffect, ...] = ()

    def __post_init__(self) -> None:
        domains = len(self.domains)
        for name, calm in (("watch", False), ("excess_p", np.nan), ("inferred", False)):
            if len(getattr(self, name)) != domains:
                object.__setattr__(self, name, frozen_array(np.full(domains, calm)))


@dataclass(frozen=True)
class Facts:
    """What has happened and still holds; facts need no model and pass every gate.

    open_events bool[gpu, class]: a T2 event not yet followed by a reset, return or replacement. terminal bool[gpu,
    class]: a T1 fact. lost_s float64[gpu]: when the GPU was last seen although its node answers, NaN = not lost.
    """

    open_events: NDArray[np.bool_]
    terminal: NDArray[np.bool_]
    lost_s: NDArray[np.float64]


# What strikes the members of an incident together: measured coolant flow that fell, air or coolant that came warmer,
# the airflow of one node, cooling in common that no sensor tells apart, the power brake; "" before anybody knew.
IncidentKind = Literal["", "flow", "supply", "airflow", "common", "power"]


@dataclass(frozen=True)
class Incident:
    """One common-cause event on the smallest domain that holds at least 80 % of the affected members.

    onset_s: when it was opened; began_s: when the first sensor or member of it moved, as far as `recent` shows, which
    may be long before. evidence: in what order sensors and GPUs moved.
    """

    id: str
    layer: str
    domain: str
    state: Literal["watch", "predicted", "active", "cleared"]  # watch: seen, and nobody is woken for it
    alertname: str  # fixed when it first alerts; "" while at watch
    cause: str
    onset_s: float
    members: tuple[str, ...]  # device_ids
    first_mover: str = ""
    cleared_s: float | None = None
    last_true_s: float = 0.0  # when its condition last held; it clears 30 min after that
    kind: IncidentKind = ""
    began_s: float | None = None
    evidence: str = ""


@dataclass(frozen=True)
class Projection:
    """One GPU's past and future of one quantity, for people to look at; values in `unit`."""

    quantity: str
    unit: str
    past_s: NDArray[np.float64]
    past: Floats
    future_s: NDArray[np.float64]
    future: Floats  # [quantile, time] at 10, 50, 90 %
    limit: float
