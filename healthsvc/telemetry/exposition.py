"""Reads the text dumps that `healthsvc import` is given: OpenMetrics, Prometheus' text format, promtool's dump.

Each line stands for itself, so that a broken one costs only itself. Names and labels are read by prometheus-client,
once for each series; the same series' further lines cost a look-up. Names stay as written: no `_total` is added or
taken.
"""

import math
import re
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
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
# From the brace that opens the labels to the one that closes them: braces in quotes, and quotes behind a backslash, are
# part of a value. Nothing is given back once taken, so that the search is linear in what it sees.
_LABELS = re.compile(r'\{(?:[^"}\\]|\\["\\]?+|"(?:[^"\\]|\\["\\]?+)*+")*+\}')


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

    only: metric names to keep, all if empty; of others nothing is kept. Times are given as written. rejected: lines by
    reason (malformed, oversized_labels, too_many_series). Blind to samples without a time: they are malformed.
    """

    only: frozenset[str] = frozenset()
    rejected: Counter[str] = field(default_factory=Counter)
    _known: dict[str, _Series | str] = field(default_factory=dict)  # by name and labels as written; or why it is none
    _series: dict[tuple[str, tuple[tuple[str, str], ...]], _Series] = field(default_factory=dict)

    def read(self, text: str) -> None:
        """Never raises, whatever the text."""
        for line in text.split("\n"):
            line = line.strip()
            if not line or line[0] == "#":
                continue
            end = _head(line)
            if end < 0:
                self.rejected["malformed" if len(line) <= MOST_LABELS else "oversized_labels"] += 1
                continue
            head = line[:end]
            series = self._known.get(head) or self._new(head)
            if series is None:
                continue
            if isinstance(series, str):
                self.rejected[series] += 1
                continue
            parts = line[end:].partition(" # ")[0].split()
            value, time_s = (_number(parts[0]), _number(parts[1])) if len(parts) == 2 else (None, None)
            if value is None or time_s is None or not math.isfinite(time_s):
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

    def _new(self, head: str) -> _Series | str | None:
        """The series that `head` names, or why it cannot be read; None if it is of another metric.

        Two spellings of one series are one. Only what may be wanted is parsed, and only that is kept.
        """
        if self.only and not self._may_be_wanted(head):
            named = _NAME.fullmatch(_bare_name(head)) or "__name__" in head
            return None if named else "malformed"
        if len(self._known) >= MOST_SERIES:
            return "too_many_series"
        found: _Series | str
        try:
            family = next(iter(text_string_to_metric_families(head + " 0\n")))
            sample = family.samples[0]
        except (ValueError, StopIteration, IndexError, KeyError, TypeError):
            found = "malformed"
        else:
            if self.only and sample.name not in self.only:
                return None
            key = (sample.name, tuple(sorted(sample.labels.items())))
            found = self._series.setdefault(key, _Series(sample.name, dict(sample.labels)))
        self._known[head] = found
        return found

    def _may_be_wanted(self, head: str) -> bool:
        """By the name before the labels; where there is none, it is one of the texts in quotes."""
        name = _bare_name(head)
        return name in self.only if name else not self.only.isdisjoint(head.split('"'))


def _bare_name(head: str) -> str:
    return head.partition("{")[0].strip()


def _head(line: str) -> int:
    """Where name and labels end: behind the brace that closes the labels, else at the first gap.

    -1: nowhere within MOST_LABELS; no more of the labels than that is looked at.
    """
    brace = line.find("{")
    gap = min((at for at in map(line.find, _BETWEEN) if at >= 0), default=-1)
    if brace < 0 or (0 <= gap < brace and line[gap:brace].strip()):
        return gap if gap <= MOST_LABELS else -1
    found = _LABELS.match(line, brace, MOST_LABELS)
    return found.end() if found else -1


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
