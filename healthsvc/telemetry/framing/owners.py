"""Whose series are whose: a GPU's names are parsed once, not in every answer of every read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.telemetry.identity.labels import DEVICE_LABELS, HOST_LABELS, canonical, device_id

LARGEST_LABELS = 16_384  # characters in the label values of one series
_MOST = 2**17  # names that are remembered
_FIRST = DEVICE_LABELS[0]
_CHANGES = ("hw_type", "gpu_partition_id")  # with one of these a series may be of no GPU, whatever else it says
_BEARING = (*DEVICE_LABELS, *HOST_LABELS, *_CHANGES)  # what device_id looks at


@dataclass(frozen=True)
class Owned:
    """devices[series]: the GPU's own name, "" for none; oversized [series]: labels too large to be any exporter's."""

    devices: Sequence[str]
    oversized: NDArray[np.intp]


@dataclass
class Owners:
    """Remembers names as they were written, and the answer asked about last: several readers look at each."""

    _names: dict[str, str] = field(default_factory=dict, init=False)
    _others: dict[tuple[str | None, ...], str] = field(default_factory=dict, init=False)
    _labels: tuple[Mapping[str, str], ...] = field(default=(), init=False)
    _owned: Owned = field(default=Owned((), np.zeros(0, np.intp)), init=False)

    def of(self, labels: tuple[Mapping[str, str], ...]) -> Owned:
        """The owner of each series, as `device_id` tells it."""
        if labels is self._labels:
            return self._owned
        names = self._names
        devices = [
            names.get(each.get(_FIRST, "")) if _CHANGES[0] not in each and _CHANGES[1] not in each else None
            for each in labels
        ]
        found = [self._device(labels[i]) if known is None else known for i, known in enumerate(devices)]
        sizes = np.array([len("".join(each.values())) for each in labels], np.int64)
        self._labels, self._owned = labels, Owned(found, np.flatnonzero(sizes > LARGEST_LABELS))
        return self._owned

    def forget_answer(self) -> None:
        """Let the labels of the answer asked about last go; the names stay."""
        self._labels, self._owned = (), Owned((), np.zeros(0, np.intp))

    def _device(self, labels: Mapping[str, str]) -> str:
        written = labels.get(_FIRST, "")
        if len(written) <= 64 and canonical(written) and not any(name in labels for name in _CHANGES):
            self._names = self._names if len(self._names) < _MOST else {}
            return self._names.setdefault(written, canonical(written))
        bearing = tuple([labels.get(name) for name in _BEARING])
        if sum(len(value) for value in bearing if value) > LARGEST_LABELS // 16:
            return device_id(labels)
        known = self._others.get(bearing)
        if known is None:
            self._others = self._others if len(self._others) < _MOST else {}
            known = self._others[bearing] = device_id(labels)
        return known
