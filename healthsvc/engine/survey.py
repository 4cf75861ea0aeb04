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
Known = dict[Signal, tuple[str, NDArray[np.bool_]]]  # layer, and where there is a sample [row, time]


class Reader(Protocol):
    """The part of a forecaster's contract that says what it reads."""

    name: ClassVar[str]
    failure_class: ClassVar[str]
    requires: ClassVar[tuple[frozenset[Signal], ...]]
    uses: ClassVar[frozenset[Signal]]


def survey_of(raw: RawGrid, readers: Sequence[Reader], step_s: float, first_s: Mapping[str, float]) -> Survey:
    """The facts of one window. first_s: metric -> its first sample on the server, where that is known."""
    metrics = _metrics(raw.readings)
    known = _known(raw.values, raw.environment)
    since = {signal: _first_sample_s(cells, raw.times_s) for signal, (_, cells) in known.items()}
    ever = frozenset(signal for signal, at_s in since.items() if at_s < np.inf)
    # What is there in the first column has been there before.
    since = {signal: at_s for signal, at_s in since.items() if raw.times_s[0] < at_s < np.inf}
    for signal, told in metrics.items():
        since[signal] = min([since.get(signal, np.inf), *(first_s.get(m.metric, np.inf) for m in told)])
    since = {signal: at_s for signal, at_s in since.items() if at_s < np.inf}
    return _survey(
        (float(raw.times_s[0]) - step_s, float(raw.times_s[-1])),
        raw.gpus,
        readers,
        known,
        ever | since.keys(),
        (since, metrics, _by_signal(raw.rejected)),
        (raw.incomplete, raw.warnings),
    )


def _survey(
    window: tuple[float, float],
    gpus: Sequence[GpuId],
    readers: Sequence[Reader],
    known: Known,
    ever: frozenset[Signal],
    told: tuple[Mapping[Signal, float], Mapping[Signal, tuple[Reading, ...]], Mapping[Signal, Mapping[str, int]]],
    doubts: tuple[bool, tuple[str, ...]],
) -> Survey:
    present = {signal: np.asarray(cells.any(axis=1)) for signal, (_, cells) in known.items()}
    seen = {signal: rows for signal, rows in present.items() if known[signal][0] == GPU}
    return Survey(
        *window,
        len(gpus),
        _signals(known, present, *told),
        readiness(readers, gpus, seen, ever),
        *doubts,
        silent=int((~heard(len(gpus), seen)).sum()),
    )


def heard(gpus: int, seen: Seen) -> NDArray[np.bool_]:
    """bool[gpu]: whether it has a sample of anything; of its last XID does not count, which outlives the GPU."""
    told = [rows for signal, rows in seen.items() if signal is not Signal.XID]
    return np.asarray(np.logical_or.reduce([np.zeros(gpus, bool), *told]))


def readiness(
    readers: Sequence[Reader], gpus: Sequence[GpuId], seen: Seen, ever: frozenset[Signal]
) -> tuple[ForecasterFacts, ...]:
    """What each reader can do for the GPUs that have a sample of anything: of a silent one nobody can say what its
    exporter would show. seen: signal -> bool[gpu]; ever: signals that were seen at any time.
    """
    there = np.flatnonzero(heard(len(gpus), seen))
    products, product = _products(tuple(gpus))
    beyond = [beyond_board(name) for name in products]

    def cannot(signal: Signal) -> NDArray[np.bool_]:
        of_product = np.array([signal in signals for signals in beyond], bool)
        return of_product[product[there]] if len(there) else np.zeros(0, bool)

    def lacks(signal: Signal) -> NDArray[np.bool_]:
        known = seen.get(signal)
        return np.ones(len(there), bool) if known is None else ~known[there]

    return tuple(_facts(reader, len(there), lacks, cannot, ever) for reader in readers)


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


def _known(values: Mapping[Signal, NDArray[Any]], environment: Mapping[Signal, PlaceSeries]) -> Known:
    known: Known = {signal: (GPU, ~np.isnan(array)) for signal, array in values.items()}
    return known | {signal: (places.layer, ~np.isnan(places.values)) for signal, places in environment.items()}


def _signals(
    known: Known,
    present: Mapping[Signal, NDArray[np.bool_]],
    since_s: Mapping[Signal, float],
    metrics: Mapping[Signal, tuple[Reading, ...]],
    rejected: Mapping[Signal, Mapping[str, int]],
) -> tuple[SignalFacts, ...]:
    """Every signal that anything is known of, in the order of the catalogue of signals."""
    facts = []
    for signal in Signal:
        if not (signal in known or signal in metrics or signal in rejected):
            continue
        layer, cells = known.get(signal, (GPU, np.zeros((0, 0), bool)))
        rows = present.get(signal, np.zeros(0, bool))
        missing, told, thrown = _missing_ratio(cells, rows), metrics.get(signal, ()), rejected.get(signal, {})
        facts.append(SignalFacts(signal, layer, int(rows.sum()), since_s.get(signal), missing, told, thrown))
    return tuple(facts)


def reporting(values: NDArray[Any]) -> NDArray[np.bool_]:
    """bool[row]: whether there is any sample."""
    return np.asarray(~np.isnan(values).all(axis=1))


def _first_sample_s(cells: NDArray[np.bool_], times_s: NDArray[np.float64]) -> float:
    columns = np.flatnonzero(cells.any(axis=0))
    return float(times_s[columns[0]]) if len(columns) else np.inf


def _missing_ratio(cells: NDArray[np.bool_], rows: NDArray[np.bool_]) -> float | None:
    """Share of the cells [row, time] without a sample, from each row's first sample on; None without any sample."""
    if not rows.any():
        return None
    expected = (cells.shape[1] - cells.argmax(axis=1))[rows].sum()
    return float(1.0 - cells.sum() / expected)


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
        for signal in {*raw.values, *raw.environment}:
            if begin_s < (known_s := self._since_s.get(signal, np.inf)):
                values = raw.values[signal] if signal in raw.values else raw.environment[signal].values
                self._since_s[signal] = min(_first_sample_s(~np.isnan(values), raw.times_s), known_s)
        if end_s >= self._newest_s:
            self._metrics.update(_metrics(raw.readings))
            self._newest_s, self._incomplete, self._warnings = end_s, raw.incomplete, raw.warnings

    def survey(self, recent: FleetWindow, environment: Mapping[Signal, PlaceSeries]) -> Survey:
        """The facts as of now: who has a sample in the newest columns, and what has been rejected since the start."""
        window = recent.columns(slice(-NEWEST_COLUMNS, None))
        values: dict[Signal, NDArray[Any]] = {**window.values}
        values.pop(Signal.DRIVER_RELOADS, None)  # derived, not read
        places = {s: replace(p, values=p.values[:, -NEWEST_COLUMNS:]) for s, p in environment.items()}
        since = {signal: at_s for signal, at_s in self._since_s.items() if at_s < np.inf}
        return _survey(
            (recent.now_s - len(window.times_s) * recent.step_s, recent.now_s),
            recent.gpus,
            self.readers,
            _known(values, places),
            frozenset(since),
            (since, self._metrics, _by_signal(self._rejected)),
            (self._incomplete, self._warnings),
        )
