"""Where telemetry comes from: one protocol, whatever stands behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId, Placement, PlaceSeries, Sighting, Signal, Workload
from healthsvc.fleet.survey import Reading

# Why a sample is no measurement; published as the label `reason`, so the words are closed.
REASONS = (
    "blank",  # DCGM's "not supported, not permitted, not found"
    "not_a_number",  # NaN, infinite, a stale marker
    "out_of_range",  # no hardware can read so
    "impossible_jump",  # no hardware can change so
    "frozen",  # the exporter repeats what it once read
    "no_sensor",  # 0 from a board that has no such sensor
    "no_device",  # a series that names no GPU
    "out_of_order",  # earlier than a sample before it
    "duplicate_time",  # a second sample of one moment
    "future",  # a clock ahead
    "malformed",  # a line or a label that cannot be read
    "oversized_labels",
    "duplicate_device",  # two GPUs that claim one name at one time
)


class SourceError(Exception):
    """The source could not answer: `where` it was asked, `what` happened, the `cure`. Nothing was read."""

    def __init__(self, where: str, what: str, cure: str, *, permanent: bool = False) -> None:
        super().__init__(f"{where}: {what}. {cure}")
        self.where, self.what, self.cure, self.permanent = where, what, cure, permanent


@dataclass(frozen=True)
class RawGrid:
    """Samples of some GPUs on a uniform grid, in canonical names and base units, all series of a device merged.

    times_s float64[time] is uniform; column t holds the last sample in (t - step, t], and gauges of a
    GPU with a longer interval the one before as long as it is believed. values[signal] float64[gpu, time], counters
    still cumulative, NaN = no sample. environment values lie on the same grid. rejected: how many
    samples were no measurement, by signal and reason; readings: how each metric was read. incomplete: the source
    itself says that something is missing (`warnings` has its words). By device_id: workloads, the newest pod of each
    GPU that has one; partitions, the MIG instances of each GPU that is cut into any. sightings, in order of time: what
    is told of GPUs whose labels or MIG instances may have changed within the grid, each state from the column on in
    which it was first seen. A GPU that has none was as `gpus` and `partitions` say from its first sample on.
    """

    gpus: tuple[GpuId, ...]
    times_s: NDArray[np.float64]
    values: Mapping[Signal, NDArray[np.float64]]
    environment: Mapping[Signal, PlaceSeries] = field(default_factory=lambda: MappingProxyType({}))
    samples: int = 0
    warnings: tuple[str, ...] = ()
    rejected: Mapping[tuple[Signal, str], int] = field(default_factory=lambda: MappingProxyType({}))
    readings: tuple[Reading, ...] = ()
    incomplete: bool = False
    workloads: Mapping[str, Workload] = field(default_factory=lambda: MappingProxyType({}))
    partitions: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    sightings: tuple[Sighting, ...] = ()


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
