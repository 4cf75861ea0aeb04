"""Which MIG instances a GPU is cut into, and when that changes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.owners import Owners
from healthsvc.telemetry.identity.labels import INSTANCE_LABELS, instance_of

Timeline = list[tuple[float, frozenset[str]]]
_MOST = 62  # instance names told apart in one reading; DCGM numbers them 0 to 14


@dataclass
class CutBefore:
    """What earlier readings have shown: GPUs that were cut, and metrics that come by instance."""

    devices: set[str] = field(default_factory=set)
    metrics: set[str] = field(default_factory=set)


@dataclass
class Partitions:
    """Takes answers in any order, then tells the instances of each GPU column by column.

    In each column the newest scrape counts: who is in it are the instances. A GPU is whole again once a metric that
    came by instance comes without. before: is kept up, so that the next reading knows. Blind to a change that was
    undone within a column.
    """

    times_s: NDArray[np.float64]
    step_s: float
    before: CutBefore
    owners: Owners = field(default_factory=Owners)
    _parts: list[tuple[NDArray[np.int64], ...]] = field(
        default_factory=list, init=False
    )  # device, column, ms, instance
    _device: dict[str, int] = field(default_factory=dict, init=False)
    _instance: dict[str, int] = field(default_factory=dict, init=False)

    def take(self, metric: str, samples: Samples) -> None:
        """The series of one metric: of GPUs that are cut, or once were."""
        cut, small = INSTANCE_LABELS
        if metric not in self.before.metrics and not any(cut in labels or small in labels for labels in samples.labels):
            return
        named = [instance_of(labels) for labels in samples.labels]
        devices = self.owners.of(samples.labels).devices
        if any(named):
            self.before.metrics.add(metric)
            self.before.devices.update(name for name, instance in zip(devices, named, strict=True) if instance)
        if metric not in self.before.metrics:
            return
        device, instance = np.full(len(named), -1, np.int64), np.full(len(named), -1, np.int64)
        for series, (name, each) in enumerate(zip(devices, named, strict=True)):
            if name and name in self.before.devices:
                device[series] = self._device.setdefault(name, len(self._device))
                instance[series] = min(self._instance.setdefault(each, len(self._instance)), _MOST) if each else -1
        of = np.repeat(np.arange(len(named)), samples.counts)
        column = np.searchsorted(self.times_s, samples.times_s, side="left")
        kept = (device[of] >= 0) & (column < len(self.times_s)) & (samples.times_s > self.times_s[0] - self.step_s)
        at_ms = np.round(samples.times_s[kept] * 1000).astype(np.int64)
        self._parts.append((device[of[kept]], column[kept].astype(np.int64), at_ms, instance[of[kept]]))

    def timelines(self) -> Mapping[str, Timeline]:
        """device_id -> its instances from each column on in which they are others than before, the first included."""
        if not self._parts:
            return {}
        device, column, at_ms, instance = (np.concatenate([p[k] for p in self._parts]) for k in range(4))
        cell = device * len(self.times_s) + column
        order = np.lexsort((at_ms, cell))
        cell, at_ms, instance = cell[order], at_ms[order], instance[order]
        starts = np.flatnonzero(np.append(True, cell[1:] != cell[:-1])) if len(cell) else np.zeros(0, np.intp)
        if not len(starts):
            return {}
        newest = np.repeat(np.append(at_ms[starts[1:] - 1], at_ms[-1]), np.diff(np.append(starts, len(cell))))
        bit = np.where((instance >= 0) & (at_ms == newest), np.int64(1) << np.maximum(instance, 0), 0)
        mask, cells = np.bitwise_or.reduceat(bit, starts), cell[starts]
        owner = cells // len(self.times_s)
        turn = np.append(True, (owner[1:] != owner[:-1]) | (mask[1:] != mask[:-1]))
        names, devices = list(self._instance), list(self._device)
        found: defaultdict[str, Timeline] = defaultdict(list)
        for which, place, bits in zip(owner[turn], cells[turn] % len(self.times_s), mask[turn], strict=True):
            found[devices[int(which)]].append((float(self.times_s[place]), _unpacked(int(bits), names)))
        return found


def _unpacked(bits: int, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for number, name in enumerate(names[: _MOST + 1]) if bits >> number & 1)
