"""One UUID in two places: in sequence it is a GPU that was carried or renamed, at once it is a mistake.

Samples of a GPU that more than one place speaks for are held back until all are there. Column by column the place that
was right in the column before stays right as long as it has a sample; after that the first by name that has one. What
another host reports in the same column is left out: two boards must never be averaged into one.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId, Signal
from healthsvc.telemetry.catalogue import EnvironmentRow, Row
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.identity.labels import device_id, place_among, same_place

REASON = "duplicate_device"
_NAMED = 5  # of the devices, in a warning


@dataclass
class Contest:
    """places: device_id -> the places that speak for it, two or more, in order of name; was: where each was before."""

    places: Mapping[str, tuple[GpuId, ...]]
    was: Mapping[str, GpuId]
    times_s: NDArray[np.float64]
    step_s: float
    _held: list[tuple[Row, Samples, slice, list[tuple[str, int]]]] = field(default_factory=list, init=False)
    rejected: Counter[tuple[Signal, str]] = field(default_factory=Counter, init=False)
    states: dict[str, list[tuple[float, GpuId]]] = field(default_factory=dict, init=False)
    _doubled: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)

    def hold(self, row: Row | EnvironmentRow, samples: Samples, columns: slice) -> Samples:
        """What can be framed at once; the rest is kept for `settle`."""
        if not self.places or isinstance(row, EnvironmentRow):
            return samples
        whose = [device_id(labels) for labels in samples.labels]
        contested = np.array([device in self.places for device in whose], bool)
        if not contested.any():
            return samples
        mine = [
            (whose[i], place_among(self.places[whose[i]], samples.labels[i]))
            for i in np.flatnonzero(contested).tolist()
        ]
        self._held.append((row, _chosen(samples, contested), columns, mine))
        return _chosen(samples, ~contested)

    def settle(self, framer: Framer) -> None:
        """Frame what was held back, without what came from a host that was not the GPU's in that column."""
        right = self._right()
        for row, samples, columns, mine in self._held:
            of = np.repeat(np.arange(len(mine)), samples.counts)
            column = self._columns(samples.times_s)
            hosts = [np.array([_host(place) for place in self.places[device]]) for device, _ in mine]
            ok = np.zeros((len(mine), len(self.times_s) + 1), bool)
            for series, (device, place) in enumerate(mine):
                same = (hosts[series] == hosts[series][place]).all(axis=1)
                ok[series, :-1] = same[right[device]]
            keep = ok[of, column] | (column == len(self.times_s))
            dropped = int(np.count_nonzero(~keep))
            if dropped:
                self.rejected[(row.signal, REASON)] += dropped
                left_out, first = np.unique(of[~keep], return_index=True)
                for series, at in zip(left_out.tolist(), column[~keep][first].tolist(), strict=True):
                    device, place = mine[series]
                    others = self.places[device]
                    pair = (others[int(right[device][at])].hostname, others[place].hostname)
                    self._doubled.setdefault(device, pair)
            counts = np.bincount(of[keep], minlength=len(mine)).astype(np.int64)
            true = replace(samples, counts=counts, times_s=samples.times_s[keep], values=samples.values[keep])
            framer.take(row, true, columns)

    def _columns(self, times_s: NDArray[np.float64]) -> NDArray[np.intp]:
        """The column of each sample; beyond the last where it is in none."""
        column = np.searchsorted(self.times_s, times_s, side="left")
        return np.where(times_s > self.times_s[0] - self.step_s, column, len(self.times_s))

    def _right(self) -> Mapping[str, NDArray[np.intp]]:
        """device_id -> number of its place in each column; fills `states`."""
        there = {d: np.zeros((len(places), len(self.times_s) + 1), bool) for d, places in self.places.items()}
        for _, samples, _, mine in self._held:
            column = self._columns(samples.times_s)
            ends = np.cumsum(samples.counts)
            for (device, place), first, end in zip(mine, ends - samples.counts, ends, strict=True):
                there[device][place, column[first:end]] = True
        right = {}
        for device, present in there.items():
            places, was = self.places[device], self.was.get(device)
            before = next((i for i, place in enumerate(places) if was is not None and same_place(place, was)), None)
            right[device], turns = _course(present[:, :-1], before)
            if turns:
                self.states[device] = [(float(self.times_s[column]), places[place]) for column, place in turns]
        return right

    def warnings(self) -> list[str]:
        """Whose UUID two hosts claimed at once."""
        if not self._doubled:
            return []
        told = [f"{device} by {kept} and {other}" for device, (kept, other) in sorted(self._doubled.items())[:_NAMED]]
        more = f" and {len(self._doubled) - _NAMED} more" if len(self._doubled) > _NAMED else ""
        return [f"claimed by two hosts at once, the first is believed: {', '.join(told)}{more}"]


def _course(present: NDArray[np.bool_], before: int | None) -> tuple[NDArray[np.intp], list[tuple[int, int]]]:
    """The place that is right in each column, and the columns from which on it is another, the first included.

    present: [place, column]; before: the place that was right before the first column, if one was.
    """
    anybody: NDArray[np.bool_] = np.asarray(present.any(axis=0))
    right = np.zeros(len(anybody), np.intp)
    if not anybody.any():
        return right, []
    at = int(np.argmax(anybody))
    now = before if before is not None and present[before, at] else int(np.argmax(present[:, at]))
    right[:] = now
    turns = [(at, now)]
    while (other := anybody[at:] & ~present[now, at:]).any():
        at += int(np.argmax(other))
        now = int(np.argmax(present[:, at]))
        right[at:] = now
        turns.append((at, now))
    return right, turns


def _host(gpu: GpuId) -> tuple[str, str]:
    return gpu.cluster, gpu.hostname


def _chosen(samples: Samples, series: NDArray[np.bool_]) -> Samples:
    """Some of the series."""
    kept = np.repeat(series, samples.counts)
    labels = tuple(each for each, chosen in zip(samples.labels, series.tolist(), strict=True) if chosen)
    return replace(
        samples,
        labels=labels,
        counts=samples.counts[series],
        times_s=samples.times_s[kept],
        values=samples.values[kept],
    )
