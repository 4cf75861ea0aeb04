"""What telemetry there is, and what each forecaster can do with it: facts for people, the same live and one-off."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from healthsvc.fleet.signals import Signal

Readiness = Literal["ready", "degraded", "starved"]


@dataclass(frozen=True)
class Reading:
    """How one metric was read as one signal: in which unit, and why (its name, or what its values prove).

    conflict: the values contradict the name; `why` then says what was done. gpus: that had samples of it.
    """

    signal: Signal
    metric: str
    generation: str
    unit: str
    why: str
    conflict: bool
    gpus: int


@dataclass(frozen=True)
class SignalFacts:
    """One signal: who reports it, and how well.

    count: GPUs (places, for a signal of the environment) with a sample in the time looked at. since_s: its first
    sample, None where there is none or it is not known. missing_ratio: share of the expected samples of those GPUs that
    is not there, None where nobody reports. rejected: samples that were no measurement, by reason.
    """

    signal: Signal
    layer: str
    count: int
    since_s: float | None
    missing_ratio: float | None
    metrics: tuple[Reading, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class ForecasterFacts:
    """How many GPUs a forecaster serves fully, with less than it could use, or not at all.

    starved_by: required any-of group -> GPUs with none of it. degraded_by: signal that it also reads -> GPUs without.
    beyond_board: GPUs that are starved by what their board cannot report, so that nothing can be enabled.
    """

    name: str
    failure_class: str
    ready: int
    degraded: int
    starved: int
    starved_by: Mapping[tuple[Signal, ...], int] = field(default_factory=lambda: MappingProxyType({}))
    degraded_by: Mapping[Signal, int] = field(default_factory=lambda: MappingProxyType({}))
    beyond_board: int = 0

    @property
    def readiness(self) -> Readiness:
        """The state of the worst-served GPU; of an empty fleet, starved."""
        if self.starved or not self.ready + self.degraded:
            return "starved"
        return "degraded" if self.degraded else "ready"


@dataclass(frozen=True)
class Survey:
    """The telemetry in (start_s, as_of_s]. incomplete: the source itself says that something is missing. silent: of the
    `gpus`, those without a sample of anything; no forecaster is called starved for their sake.
    """

    start_s: float
    as_of_s: float
    gpus: int
    signals: tuple[SignalFacts, ...]
    forecasters: tuple[ForecasterFacts, ...]
    incomplete: bool = False
    warnings: tuple[str, ...] = ()
    silent: int = 0

    def of(self, signal: Signal) -> SignalFacts | None:
        """The facts on one signal, None where it is not among them."""
        return next((facts for facts in self.signals if facts.signal is signal), None)
