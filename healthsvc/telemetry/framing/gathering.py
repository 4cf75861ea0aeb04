"""From answers about GPUs to a grid that also says who they were, who held them, and how they were cut."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId, Sighting, Signal
from healthsvc.telemetry.catalogue import EnvironmentRow, Row
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.identity.claims import Contest
from healthsvc.telemetry.identity.labels import completed, same_place
from healthsvc.telemetry.identity.partitions import CutBefore, Partitions, Timeline
from healthsvc.telemetry.identity.workload import Holders
from healthsvc.telemetry.server.discovery import Found
from healthsvc.telemetry.source import RawGrid


@dataclass
class KnownDevices:
    """Every GPU that a source has found, where each was at the end of the newest reading, and which were ever cut."""

    found: dict[str, Found] = field(default_factory=dict)
    at: dict[str, GpuId] = field(default_factory=dict)
    cut: CutBefore = field(default_factory=CutBefore)

    def learn(self, found: Mapping[str, Found]) -> dict[str, Found]:
        """`found`, with what is known of each. A GPU whose labels have not changed stays the same object: comparing
        whole fleets then costs next to nothing. What a label said once is remembered as long as none contradicts it.
        """
        fresh = {}
        for device, one in found.items():
            known = self.found.get(device)
            if known is None:
                self.found[device] = fresh[device] = one
                continue
            if one == known:
                fresh[device] = known
                continue
            gpu = completed(one.gpu, known.gpu) if same_place(one.gpu, known.gpu) else one.gpu
            gpu = known.gpu if gpu == known.gpu else gpu
            fresh[device] = replace(one, gpu=gpu)
            news = not {*one.spellings} <= {*known.spellings} or not {*one.places} <= {*known.places}
            if news or gpu is not known.gpu:
                self.found[device] = fresh[device].with_older(known)
        return fresh


class Gathering:
    """Takes answers in any order for a framer of `gpus`, then gives the grid. found: what is known in this stretch."""

    def __init__(
        self,
        framer: Framer,
        gpus: Sequence[GpuId],
        found: Mapping[str, Found],
        known: KnownDevices,
        times_s: NDArray[np.float64],
        step_s: float,
    ) -> None:
        self._framer, self._gpus, self._known = framer, tuple(gpus), known
        wanted = ((gpu.device_id, found.get(gpu.device_id)) for gpu in gpus)
        several = {device: one.places for device, one in wanted if one is not None and len(one.places) > 1}
        self._contest = Contest(several, known.at, times_s, step_s)
        self._partitions = Partitions(times_s, step_s, known.cut, framer.owners)
        self._holders = Holders(framer.owners)

    def take(self, row: Row | EnvironmentRow, samples: Samples, columns: slice) -> None:
        """The answer to one catalogue row, for these columns of the grid."""
        if not isinstance(row, EnvironmentRow):
            self._partitions.take(row.metric, samples)
            self._holders.take(row.signal, samples)
        if (rest := self._contest.hold(row, samples, columns)).labels or not samples.labels:
            self._framer.take(row, rest, columns)

    def grid(self, samples: int, warnings: Sequence[str], partial: bool = False) -> RawGrid:
        """All of it. The GPUs stand in the rows asked for, each with its labels at the end. partial: see the framer."""
        self._contest.settle(self._framer)
        raw = self._framer.grid(samples, [*warnings, *self._contest.warnings()], partial)
        states, cuts = self._contest.states, self._partitions.timelines()
        last = {device: completed(turns[-1][1], self._named(device)) for device, turns in states.items()}
        gpus = tuple(last.get(gpu.device_id, gpu) for gpu in self._gpus)
        self._known.at.update({gpu.device_id: gpu for gpu in gpus})
        rejected: Counter[tuple[Signal, str]] = Counter(raw.rejected)
        rejected.update(self._contest.rejected)
        return replace(
            raw,
            gpus=gpus,
            rejected=dict(rejected),
            workloads=self._holders.workloads(),
            partitions={device: turns[-1][1] for device, turns in cuts.items() if turns[-1][1]},
            sightings=tuple(self._sightings(gpus, cuts)),
        )

    def _named(self, device: str) -> GpuId:
        """What the device's product and so on are, whatever place it is at."""
        found = self._known.found.get(device)
        return GpuId(device, product=found.gpu.product) if found else GpuId(device)

    def _sightings(self, gpus: Sequence[GpuId], cuts: Mapping[str, Timeline]) -> list[Sighting]:
        """Both courses, of places and of instances, put together; in order of time."""
        states = self._contest.states
        whole: frozenset[str] = frozenset()
        told: defaultdict[float, list[Sighting]] = defaultdict(list)
        for gpu in gpus:
            device = gpu.device_id
            places, instances = states.get(device, []), cuts.get(device, [])
            if not places and not instances:
                continue
            now, cut = (completed(places[0][1], self._named(device)) if places else gpu), None if instances else whole
            turns = sorted({at_s for at_s, _ in places} | {at_s for at_s, _ in instances})
            moves = {at_s: completed(place, self._named(device)) for at_s, place in places}
            recuts = dict(instances)
            for at_s in turns:
                now, cut = moves.get(at_s, now), recuts.get(at_s, cut)
                told[at_s].append(Sighting(at_s, now, cut))
        return [sighting for at_s in sorted(told) for sighting in told[at_s]]
