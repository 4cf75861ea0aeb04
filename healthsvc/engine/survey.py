"""What telemetry there is and what the forecasters can do with it: from one window, or cycle by cycle.

Blind to what a GPU could report and nobody has enabled, where neither its board nor another GPU tells.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import FleetWindow, GpuId, PlaceSeries, Signal, frozen_array
from healthsvc.fleet.boards import beyond_board
from healthsvc.fleet.survey import ForecasterFacts, Reading, SignalFacts, Survey
from healthsvc.telemetry.source import RawGrid

# Exporters since 4.8.2 have no series for these before the first event: one GPU's series proves that it is enabled.
BORN_BY_EVENT = frozenset({Signal.XID})
NEWEST_COLUMNS = 3  # in which a running service expects a signal to have a sample
GPU = "gpu"
Seen = Mapping[Signal, NDArray[np.bool_]]
Laid = dict[Signal, tuple[str, NDArray[Any]]]  # layer and values [row, time]


class Reader(Protocol):
    """The part of a forecaster's contract that says what it reads."""

    name: ClassVar[str]
    failure_class: ClassVar[str]
    requires: ClassVar[tuple[frozenset[Signal], ...]]
    uses: ClassVar[frozenset[Signal]]


def survey_of(raw: RawGrid, readers: Sequence[Reader], step_s: float, first_s: Mapping[str, float]) -> Survey:
    """The facts of one window. first_s: metric -> its first sample on the server, where that is known."""
    metrics = _metrics(raw.readings)
    laid = _laid(raw.values, raw.environment)
    since = {signal: _first_sample_s(values, raw.times_s) for signal, (_, values) in laid.items()}
    for signal, told in metrics.items():
        since[signal] = min([since.get(signal, np.inf), *(first_s.get(m.metric, np.inf) for m in told)])
    since = {signal: at_s for signal, at_s in since.items() if at_s < np.inf}
    seen = {signal: reporting(values) for signal, (layer, values) in laid.items() if layer == GPU}
    return Survey(
        float(raw.times_s[0]) - step_s,
        float(raw.times_s[-1]),
        len(raw.gpus),
        _signals(laid, since, metrics, _by_signal(raw.rejected)),
        readiness(readers, raw.gpus, seen, frozenset(since)),
        raw.incomplete,
        raw.warnings,
    )


def readiness(
    readers: Sequence[Reader], gpus: Sequence[GpuId], seen: Seen, ever: frozenset[Signal]
) -> tuple[ForecasterFacts, ...]:
    """What each reader can do for the fleet. seen: signal -> bool[gpu]; ever: signals that were seen at any time."""
    products, product = _products(tuple(gpus))
    beyond = [beyond_board(name) for name in products]

    def cannot(signal: Signal) -> NDArray[np.bool_]:
        of_product = np.array([signal in signals for signals in beyond], bool)
        return of_product[product] if len(products) else np.zeros(0, bool)

    def lacks(signal: Signal) -> NDArray[np.bool_]:
        known = seen.get(signal)
        return np.ones(len(gpus), bool) if known is None else ~known

    return tuple(_facts(reader, len(gpus), lacks, cannot, ever) for reader in readers)


@lru_cache(maxsize=4)
def _products(gpus: tuple[GpuId, ...]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The names of all products, and the number of each GPU's [gpu]; worked out once a fleet."""
    names = tuple(sorted({gpu.product for gpu in gpus}))
    number = {name: i for i, name in enumerate(names)}
    return names, frozen_array(np.array([number[gpu.product] for gpu in gpus], np.intp))


class _PerGpu(Protocol):
    def __call__(self, signal: Signal) -> NDArray[np.bool_]: ...


def _facts(reader: Reader, gpus: int, lacks: _PerGpu, cannot: _PerGpu, ever: frozenset[Signal]) -> ForecasterFacts:
    starved, beyond = np.zeros(gpus, bool), np.zeros(gpus, bool)
    starved_by: dict[tuple[Signal, ...], int] = {}
    for group in reader.requires:
        without = np.logical_and.reduce([lacks(signal) for signal in group])
        starved |= without
        beyond |= without & np.logical_and.reduce([cannot(signal) for signal in group])
        if without.any():
            starved_by[tuple(sorted(group))] = int(without.sum())
    poor = np.zeros(gpus, bool)
    degraded_by: dict[Signal, int] = {}
    for signal in sorted(reader.uses):
        if signal in BORN_BY_EVENT and signal in ever:
            continue
        without = lacks(signal) & ~cannot(signal) & ~starved
        poor |= without
        if without.any():
            degraded_by[signal] = int(without.sum())
    return ForecasterFacts(
        reader.name,
        reader.failure_class,
        int((~starved & ~poor).sum()),
        int(poor.sum()),
        int(starved.sum()),
        starved_by,
        degraded_by,
        int(beyond.sum()),
    )


def _laid(values: Mapping[Signal, NDArray[Any]], environment: Mapping[Signal, PlaceSeries]) -> Laid:
    laid: Laid = {signal: (GPU, array) for signal, array in values.items()}
    return laid | {signal: (places.layer, places.values) for signal, places in environment.items()}


def _signals(
    laid: Laid,
    since_s: Mapping[Signal, float],
    metrics: Mapping[Signal, tuple[Reading, ...]],
    rejected: Mapping[Signal, Mapping[str, int]],
) -> tuple[SignalFacts, ...]:
    """Every signal that anything is known of, in the order of the catalogue of signals."""
    facts = []
    for signal in Signal:
        if not (signal in laid or signal in metrics or signal in rejected):
            continue
        layer, values = laid.get(signal, (GPU, np.zeros((0, 0))))
        count = int(reporting(values).sum())
        told, thrown = metrics.get(signal, ()), rejected.get(signal, {})
        facts.append(SignalFacts(signal, layer, count, since_s.get(signal), _missing_ratio(values), told, thrown))
    return tuple(facts)


def reporting(values: NDArray[Any]) -> NDArray[np.bool_]:
    """bool[row]: whether there is any sample."""
    return np.asarray(~np.isnan(values).all(axis=1))


def _first_sample_s(values: NDArray[Any], times_s: NDArray[np.float64]) -> float:
    known = np.flatnonzero(~np.isnan(values).all(axis=0))
    return float(times_s[known[0]]) if len(known) else np.inf


def _missing_ratio(values: NDArray[Any]) -> float | None:
    """Share of the cells [row, time] without a sample, from each row's first sample on; None without any sample."""
    known = ~np.isnan(values)
    rows = known.any(axis=1)
    if not rows.any():
        return None
    expected = (values.shape[1] - known.argmax(axis=1))[rows].sum()
    return float(1.0 - known.sum() / expected)


def _metrics(readings: Sequence[Reading]) -> dict[Signal, tuple[Reading, ...]]:
    told: defaultdict[Signal, list[Reading]] = defaultdict(list)
    for reading in readings:
        told[reading.signal].append(reading)
    return {signal: tuple(each) for signal, each in told.items()}


def _by_signal(rejected: Mapping[tuple[Signal, str], int]) -> dict[Signal, dict[str, int]]:
    told: defaultdict[Signal, dict[str, int]] = defaultdict(dict)
    for (signal, reason), count in sorted(rejected.items()):
        told[signal][reason] = count
    return dict(told)


@dataclass
class SurveyKeeper:
    """The survey of a running service, from what each cycle reads anyway; its cost does not grow with history."""

    readers: tuple[Reader, ...]
    _rejected: Counter[tuple[Signal, str]] = field(default_factory=Counter, init=False)
    _metrics: dict[Signal, tuple[Reading, ...]] = field(default_factory=dict, init=False)
    _since_s: dict[Signal, float] = field(default_factory=dict, init=False)
    _newest_s: float = field(default=-np.inf, init=False)
    _incomplete: bool = field(default=False, init=False)
    _warnings: tuple[str, ...] = field(default=(), init=False)

    def hear(self, raw: RawGrid) -> None:
        """A read as it came in; one of older days adds to what was rejected, and does not outdate the newest."""
        self._rejected.update(raw.rejected)
        if not len(raw.times_s):
            return
        begin_s, end_s = float(raw.times_s[0]), float(raw.times_s[-1])
        for signal, (_, values) in _laid(raw.values, raw.environment).items():
            if begin_s < self._since_s.get(signal, np.inf):
                self._since_s[signal] = min(_first_sample_s(values, raw.times_s), self._since_s.get(signal, np.inf))
        if end_s >= self._newest_s:
            self._metrics.update(_metrics(raw.readings))
            self._newest_s, self._incomplete, self._warnings = end_s, raw.incomplete, raw.warnings

    def survey(self, recent: FleetWindow, environment: Mapping[Signal, PlaceSeries]) -> Survey:
        """The facts as of now: who has a sample in the newest columns, and what has been rejected since the start."""
        window = recent.columns(slice(-NEWEST_COLUMNS, None))
        values: dict[Signal, NDArray[Any]] = {**window.values}
        values.pop(Signal.DRIVER_RELOADS, None)  # derived, not read
        places = {s: replace(p, values=p.values[:, -NEWEST_COLUMNS:]) for s, p in environment.items()}
        seen = {signal: reporting(array) for signal, array in values.items()}
        since = {signal: at_s for signal, at_s in self._since_s.items() if at_s < np.inf}
        return Survey(
            recent.now_s - len(window.times_s) * recent.step_s,
            recent.now_s,
            len(recent.gpus),
            _signals(_laid(values, places), since, self._metrics, _by_signal(self._rejected)),
            readiness(self.readers, recent.gpus, seen, frozenset(since)),
            self._incomplete,
            self._warnings,
        )
