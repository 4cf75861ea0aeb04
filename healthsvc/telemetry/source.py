"""Where telemetry comes from: one protocol, whatever stands behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId, Placement, PlaceSeries, Signal


class SourceError(Exception):
    """The source could not answer: `where` it was asked, `what` happened, the `cure`. Nothing was read."""

    def __init__(self, where: str, what: str, cure: str, *, permanent: bool = False) -> None:
        super().__init__(f"{where}: {what}. {cure}")
        self.where, self.what, self.cure, self.permanent = where, what, cure, permanent


@dataclass(frozen=True)
class RawGrid:
    """Samples of some GPUs on a uniform grid, in canonical names and base units, all series of a device merged.

    times_s float64[time] is uniform; column t holds the last sample in (t - step, t]. values[signal] float64[gpu,
    time], counters still cumulative, NaN = no sample. environment values lie on the same grid.
    """

    gpus: tuple[GpuId, ...]
    times_s: NDArray[np.float64]
    values: Mapping[Signal, NDArray[np.float64]]
    environment: Mapping[Signal, PlaceSeries] = field(default_factory=lambda: MappingProxyType({}))
    samples: int = 0
    warnings: tuple[str, ...] = ()


class Source(Protocol):
    """Anything that can say which GPUs there were and what they reported."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        """Every GPU with a sample in [start, end], each device once, its newest labels winning. Raises SourceError."""
        ...

    def placement(self) -> Placement | None:
        """Topology given by the source itself (topology.csv of a recording), if any."""
        ...

    def span(self) -> tuple[float, float] | None:
        """First and last moment with GPU samples, if any. Raises SourceError."""
        ...

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        """Samples on the grid `times_s` (uniform) for `gpus`, or for every GPU found there. Raises SourceError.

        step_s: width of a column; by default the spacing of `times_s`, which a single column does not have.
        """
        ...
