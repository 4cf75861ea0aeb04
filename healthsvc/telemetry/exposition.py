"""What an exporter shows, as samples by metric name: Prometheus' text format, OpenMetrics, promtool's dump.

Each line stands for itself, so that a broken one costs only itself. Names and labels are read by prometheus-client,
once for each series; the same series' further lines cost a look-up. Names stay as written: no `_total` is added or
taken.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from healthsvc.telemetry.decode import Samples

MOST_LABELS = 16_384  # characters of one series' name and labels
MOST_SERIES = 1_000_000
_BETWEEN = " \t"


@dataclass(frozen=True)
class Exposition:
    """samples by metric name, each series in the order of its lines; rejected: lines that gave none, by reason."""

    samples: Mapping[str, Samples]
    rejected: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass
class _Series:
    metric: str
    labels: dict[str, str]
    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass
class Reader:
    """Takes text piece by piece, whole lines each, and gives what it held.

    at_s: the time of samples that have none. openmetrics: times are seconds, not milliseconds. only: metric names to
    keep, all if empty. Blind to samples without a time where at_s is NaN: they are counted as malformed.
    """

    at_s: float = math.nan
    openmetrics: bool = False
    only: frozenset[str] = frozenset()
    rejected: Counter[str] = field(default_factory=Counter)
    _known: dict[str, _Series | None] = field(default_factory=dict)
    _series: dict[tuple[str, tuple[tuple[str, str], ...]], _Series] = field(default_factory=dict)

    def read(self, text: str) -> None:
        """Never raises, whatever the text."""
        per_second = 1.0 if self.openmetrics else 1000.0
        for line in text.split("\n"):
            line = line.strip()
            if not line or line[0] == "#":
                continue
            end = _head(line)
            if end > MOST_LABELS or (end < 0 and len(line) > MOST_LABELS):
                self.rejected["oversized_labels"] += 1
                continue
            if end < 0:
                self.rejected["malformed"] += 1
                continue
            head = line[:end]
            if head in self._known:
                series = self._known[head]
            else:
                series = self._new(head)
                if len(self._known) < MOST_SERIES:
                    self._known[head] = series
            if series is None:
                self.rejected["malformed"] += 1
                continue
            if self.only and series.metric not in self.only:
                continue
            parts = line[end:].partition(" # ")[0].split()
            value = _number(parts[0]) if parts else None
            at = _number(parts[1]) if len(parts) == 2 else None
            time_s = self.at_s if len(parts) == 1 else math.nan if at is None else at / per_second
            if value is None or len(parts) > 2 or not math.isfinite(time_s):
                self.rejected["malformed"] += 1
                continue
            series.times_s.append(time_s)
            series.values.append(value)

    def take(self) -> Exposition:
        """What was read since the last call. Series stay known; their samples are handed over."""
        by_metric: dict[str, list[_Series]] = {}
        for series in self._series.values():
            if series.values:
                by_metric.setdefault(series.metric, []).append(series)
        found = {metric: _samples(each) for metric, each in by_metric.items()}
        for series in self._series.values():
            series.times_s, series.values = [], []
        rejected, self.rejected = self.rejected, Counter()
        return Exposition(MappingProxyType(found), MappingProxyType(dict(rejected)))

    def _new(self, head: str) -> _Series | None:
        """The series that `head` names; None if it cannot be read. Two spellings of one series are one."""
        if len(self._series) >= MOST_SERIES:
            return None
        try:
            family = next(iter(text_string_to_metric_families(head + " 0\n")))
            sample = family.samples[0]
        except (ValueError, StopIteration, IndexError, KeyError, TypeError):
            return None
        labels = dict(sample.labels)
        key = (sample.name, tuple(sorted(labels.items())))
        if key not in self._series:
            self._series[key] = _Series(sample.name, labels)
        return self._series[key]


def parse(text: str, at_s: float, *, openmetrics: bool = False) -> Exposition:
    """The samples of one scrape."""
    reader = Reader(at_s, openmetrics)
    reader.read(text)
    return reader.take()


def is_openmetrics(text: str) -> bool:
    """Whether a whole text is OpenMetrics: only that format ends with a line of its own."""
    return text.rstrip().endswith("# EOF")


def _head(line: str) -> int:
    """Where name and labels end: behind the brace that closes the labels, else at the first gap; -1: nowhere."""
    brace = line.find("{")
    gap = min((at for at in map(line.find, _BETWEEN) if at >= 0), default=-1)
    if brace < 0 or (0 <= gap < brace and line[gap:brace].strip()):
        return gap
    close = line.find("}", brace)
    while close >= 0:
        # Inside a quoted value there is an odd number of quotes before the brace, escaped ones aside.
        inside = line[brace:close].replace("\\\\", "").replace('\\"', "")
        if inside.count('"') % 2 == 0:
            return close + 1
        close = line.find("}", close + 1)
    return -1


def _number(text: str) -> float | None:
    if "_" in text:  # a number for Python, not for Prometheus
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _samples(series: Iterable[_Series]) -> Samples:
    each = list(series)
    return Samples(
        tuple(one.labels for one in each),
        np.array([len(one.values) for one in each], np.int64),
        np.array([time_s for one in each for time_s in one.times_s], np.float64),
        np.array([value for one in each for value in one.values], np.float64),
    )
