"""Collects imported samples, thinned to the grid they will lie on, until all files have been read."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, GpuId
from healthsvc.telemetry.decode import Samples

MOST_CELLS = 400_000_000  # samples kept: 16 bytes each, twice while they are sorted
LATEST_S = 4_102_444_800.0  # 2100-01-01
Labels = tuple[tuple[str, str], ...]


class TooLargeError(Exception):
    """More samples than may be kept."""


@dataclass
class Gatherer:
    """Of each series the last sample of each grid column is kept: a column shows no more, whatever the log's interval.

    Blind to what an earlier sample of the same column said, also where the last one turns out to be no measurement.
    Raises TooLargeError.
    """

    step_s: float
    owner: Callable[[str, Mapping[str, str]], GpuId | None]  # of a series of this metric with these labels, if any
    most_cells: int = MOST_CELLS
    gpus: dict[str, GpuId] = field(default_factory=dict)
    samples: int = 0
    duplicates: int = 0  # samples at a time that their series has already had (all known after `days`); the later wins
    senseless: int = 0  # samples at a time before 1970 or after 2100
    _series: defaultdict[str, dict[Labels, int]] = field(default_factory=lambda: defaultdict(dict))
    _kept: defaultdict[str, list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _cells: int = 0
    _seen_s: dict[str, float] = field(default_factory=dict)

    def add(self, metric: str, samples: Samples) -> None:
        """Samples of one metric, in any order."""
        if not len(samples.values):
            return
        self.samples += len(samples.values)
        known = self._series[metric]
        ids = [known.setdefault(_key(labels), len(known)) for labels in samples.labels]
        series = np.repeat(np.array(ids, np.int64), samples.counts)
        order = np.lexsort((samples.times_s, series))
        order = order[(samples.times_s[order] >= 0.0) & (samples.times_s[order] < LATEST_S)]
        self.senseless += len(series) - len(order)
        if not len(order):
            return
        series, times_s, values = series[order], samples.times_s[order], samples.values[order]
        self._latest(series, times_s)
        column = np.ceil(times_s / self.step_s)
        last = np.append((series[1:] != series[:-1]) | (column[1:] != column[:-1]), True)
        self._kept[metric].append((series[last], times_s[last], values[last]))
        self._cells += int(last.sum())
        if self._cells > self.most_cells:
            raise TooLargeError(f"more than {self.most_cells:,} samples to keep")
        ends = np.cumsum(samples.counts)
        for labels, end, count in zip(samples.labels, ends.tolist(), samples.counts.tolist(), strict=True):
            if count:
                self._meet(metric, labels, float(samples.times_s[end - count : end].max()))

    def _latest(self, series: NDArray[np.int64], times_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        """bool[sample]: not followed by another sample of its series at the same time; the others are counted."""
        again = (series[1:] == series[:-1]) & (times_s[1:] == times_s[:-1])
        self.duplicates += int(again.sum())
        return np.append(~again, True)

    def _meet(self, metric: str, labels: Mapping[str, str], at_s: float) -> None:
        """The GPU of a series, its newest labels winning."""
        gpu = self.owner(metric, labels)
        if gpu and at_s >= self._seen_s.get(gpu.device_id, -np.inf):
            self.gpus[gpu.device_id], self._seen_s[gpu.device_id] = gpu, at_s

    def days(self) -> Iterator[tuple[int, dict[str, Samples]]]:
        """Each UTC day (its number since 1970) with its samples by metric, in order of series and time.

        A day's columns are the multiples of the step in [midnight, midnight): a sample at 00:00:00 belongs to the new
        day, and so do those that come after the last column of the day before.
        """
        by_day: defaultdict[int, dict[str, Samples]] = defaultdict(dict)
        for metric, parts in self._kept.items():
            series, times_s, values = (np.concatenate(each) for each in zip(*parts, strict=True))
            labels = [dict(key) for key in self._series[metric]]
            day = ((np.ceil(times_s / self.step_s) * self.step_s) // DAY_S).astype(np.int64)
            order = np.lexsort((times_s, series, day))
            order = order[self._latest(series[order], times_s[order])]
            series, times_s, values, day = series[order], times_s[order], values[order], day[order]
            numbers, starts = np.unique(day, return_index=True)
            for number, begin, end in zip(numbers.tolist(), starts, [*starts[1:], len(day)], strict=True):
                here, counts = np.unique(series[begin:end], return_counts=True)
                by_day[number][metric] = Samples(
                    tuple(labels[i] for i in here.tolist()), counts, times_s[begin:end], values[begin:end]
                )
        yield from sorted(by_day.items())

    @property
    def metrics(self) -> frozenset[str]:
        """Those of which there is a sample."""
        return frozenset(self._kept)


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
