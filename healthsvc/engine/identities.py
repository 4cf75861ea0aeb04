"""Who was known and who is seen, at the seams of the readings: what the identity events are worked out from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.identity_events import IdentityEvent, Known, identity_events
from healthsvc.fleet import DAY_S, FleetWindow, GpuId, Sighting, Workload, first_rows
from healthsvc.telemetry.source import RawGrid, Source

KNOWN_FOR_S = DAY_S  # before the day at hand: who was away longer is a newcomer


def known_before(source: Source, start_s: float) -> tuple[GpuId, ...]:
    """Everybody who reported in the day before `start_s`. Raises SourceError."""
    return source.discover(start_s - KNOWN_FOR_S, start_s)


def known_of(gpus: tuple[GpuId, ...]) -> Known:
    """They are known by their labels; what their MIG instances were is not."""
    return Known({gpu.device_id: gpu for gpu in gpus})


@dataclass(frozen=True)
class Registry:
    """What a running service knows of who the GPUs are, whatever the roster shows.

    known: those that reported today or yesterday; yesterday: who is in the last finished day; workloads: the pod that
    held each GPU when it was seen last.
    """

    known: Known = field(default_factory=Known)
    yesterday: tuple[GpuId, ...] = ()
    workloads: Mapping[str, Workload] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, raw: RawGrid, window: FleetWindow) -> tuple[list[IdentityEvent], "Registry"]:
        """What one more reading (framed: `window`) tells, and what is known then."""
        events, known = identities_in(self.known, raw, window)
        workloads = self.workloads
        if workloads or raw.workloads:
            here = first_rows(raw.gpus)
            workloads = {device: pod for device, pod in workloads.items() if device not in here} | dict(raw.workloads)
        return events, replace(self, known=known, workloads=workloads)

    def after_day(self, reported: tuple[GpuId, ...], since: Iterable[str]) -> "Registry":
        """A day is finished: these reported on it; `since` are the devices that have reported after it already."""
        known = self.known.only({gpu.device_id for gpu in reported} | set(since))
        workloads = {device: pod for device, pod in self.workloads.items() if device in known.gpus}
        return replace(self, known=known, yesterday=reported, workloads=workloads)


def identities_in(
    known: Known, raw: RawGrid, window: FleetWindow, since_s: float = -np.inf
) -> tuple[list[IdentityEvent], Known]:
    """What the samples of `raw` (framed: `window`) after `since_s` say of who the GPUs are, and who is known then."""
    alive = window.alive(frozenset(window.values))
    seen = [sighting for sighting in _sightings(known, raw, window, alive) if sighting.at_s > since_s]
    if not seen:
        return [], known
    rows = first_rows(window.gpus)

    def present(device: str, at_s: float) -> bool:
        row, column = rows.get(device), int(np.searchsorted(window.times_s, at_s))
        return row is not None and column < alive.shape[1] and bool(alive[row, column])

    return identity_events(known, seen, present)


def _sightings(known: Known, raw: RawGrid, window: FleetWindow, alive: NDArray[np.bool_]) -> list[Sighting]:
    """In order of time: what the source tells of changes within the grid, and everybody who is not as known.

    The second kind counts from its first sample on; of a GPU without a sample nothing is said.
    """
    told = {sighting.gpu.device_id for sighting in raw.sightings}
    whole: frozenset[str] = frozenset()
    fresh = [
        (row, Sighting(0.0, gpu, raw.partitions.get(gpu.device_id, whole)))
        for row, gpu in enumerate(window.gpus)
        if gpu.device_id not in told
        and (
            known.gpus.get(gpu.device_id) != gpu
            or known.instances.get(gpu.device_id) != raw.partitions.get(gpu.device_id, whole)
        )
    ]
    if not fresh and not told:
        return []
    there: NDArray[np.bool_] = np.asarray(alive.any(axis=1))
    first = np.argmax(alive, axis=1) if alive.shape[1] else np.zeros(len(alive), np.intp)
    starts = [
        Sighting(float(window.times_s[first[row]]), sighting.gpu, sighting.instances)
        for row, sighting in fresh
        if there[row]
    ]
    return sorted([*raw.sightings, *starts], key=lambda sighting: (sighting.at_s, sighting.gpu.device_id))
