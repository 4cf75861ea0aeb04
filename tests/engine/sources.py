"""Sources made of arrays, for fleets that no simulator would make: GPUs come, go and change their sockets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.joins import day_of
from healthsvc.fleet import FleetHistory, FleetWindow, GpuId, OnsetBins, Placement, PlaceSeries, Sighting, Signal
from healthsvc.telemetry.source import RawGrid, SourceError


@dataclass
class ArraySource:
    """Raw samples [gpu, time] on a uniform grid; what is asked for beside it is NaN. `broken`: refuse every read."""

    gpus: tuple[GpuId, ...]
    times_s: NDArray[np.float64]
    values: Mapping[Signal, NDArray[np.float64]]
    environment: Mapping[Signal, PlaceSeries] = field(default_factory=dict)
    name: str = "arrays"
    broken: bool = False

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        inside = (self.times_s >= start_s) & (self.times_s <= end_s)
        return tuple(g for i, g in enumerate(self.gpus) if self._seen(i)[inside].any())

    def placement(self) -> Placement | None:
        return None

    def span(self) -> tuple[float, float] | None:
        return float(self.times_s[0]), float(self.times_s[-1])

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        if self.broken:
            raise SourceError(self.name, "does not answer", "Mend it")
        wanted = self.gpus if gpus is None else tuple(gpus)
        row = {gpu.device_id: i for i, gpu in enumerate(self.gpus)}
        rows = np.array([row[gpu.device_id] for gpu in wanted], np.intp)
        column = np.searchsorted(self.times_s, times_s)
        here = (column < len(self.times_s)) & np.isin(times_s, self.times_s)
        column = np.minimum(column, len(self.times_s) - 1)
        values = {s: np.where(here, v[rows][:, column], np.nan) for s, v in self.values.items()}
        if gpus is None:
            seen = np.any([~np.isnan(v).all(axis=1) for v in values.values()], axis=0)
            wanted = tuple(g for g, there in zip(wanted, seen, strict=True) if there)
            values = {s: v[seen] for s, v in values.items()}
        places = {
            s: replace(p, values=np.where(here, p.values[:, column], np.nan).astype(np.float32))
            for s, p in self.environment.items()
            if here.any() and not np.isnan(p.values[:, column]).all()
        }
        return RawGrid(wanted, times_s, values, places, samples=sum(np.isfinite(v).sum() for v in values.values()))

    def _seen(self, row: int) -> NDArray[np.bool_]:
        seen: NDArray[np.bool_] = np.any([~np.isnan(v[row]) for v in self.values.values()], axis=0)
        return seen


def steady_source(
    gpus: Sequence[GpuId],
    start_s: float,
    end_s: float,
    step_s: float,
    alive: Mapping[str, tuple[float, float]] | None = None,
) -> ArraySource:
    """GPUs at constant load; alive: (from, until) of those that are not there all the time."""
    times = np.arange(start_s + step_s, end_s + step_s / 2, step_s)
    there = np.ones((len(gpus), len(times)), bool)
    for row, gpu in enumerate(gpus):
        since, until = (alive or {}).get(gpu.device_id, (-np.inf, np.inf))
        there[row] = (times > since) & (times <= until)
    level = np.array([50.0 + ord(gpu.device_id[-1]) % 32 for gpu in gpus])[:, None]  # of its name, not of its row
    raw = {
        Signal.GPU_TEMPERATURE: level + np.zeros(len(times)),
        Signal.POWER: 10 * level + np.zeros(len(times)),
        Signal.ENERGY: 10 * level * times,
        Signal.SBE_AGGREGATE: np.floor(times / 3600.0) + 0 * level,
        Signal.XID: np.zeros(there.shape),
        Signal.SOFTWARE_THERMAL_THROTTLE: np.zeros(there.shape),
    }
    return ArraySource(tuple(gpus), times, {s: np.where(there, v, np.nan) for s, v in raw.items()})


@dataclass
class NomadSource:
    """An ArraySource whose GPUs change their labels: courses, what each is from when on, in order of time."""

    whole: ArraySource
    courses: Mapping[str, Sequence[Sighting]]
    name: str = "nomads"

    def placement(self) -> Placement | None:
        return None

    def span(self) -> tuple[float, float] | None:
        return self.whole.span()

    def _state(self, gpu: GpuId, at_s: float) -> Sighting:
        told = [s for s in self.courses.get(gpu.device_id, ()) if s.at_s <= at_s]
        return told[-1] if told else Sighting(-np.inf, gpu, frozenset())

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        return tuple(self._state(gpu, end_s).gpu for gpu in self.whole.discover(start_s, end_s))

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        raw = self.whole.read(times_s, gpus, step_s)
        ends = [self._state(gpu, float(times_s[-1])) if len(times_s) else Sighting(0.0, gpu) for gpu in raw.gpus]
        told: list[Sighting] = []
        for row, gpu in enumerate(raw.gpus):
            there = np.any([~np.isnan(v[row]) for v in raw.values.values()], axis=0)
            states = [(float(t), self._state(gpu, float(t))) for t in times_s[there]]
            turns = [
                Sighting(at_s, state.gpu, state.instances)
                for k, (at_s, state) in enumerate(states)
                if k == 0 or state != states[k - 1][1]
            ]
            told += turns if len(turns) > 1 else []
        return replace(
            raw,
            gpus=tuple(end.gpu for end in ends),
            partitions={end.gpu.device_id: end.instances for end in ends if end.instances},
            sightings=tuple(sorted(told, key=lambda sighting: sighting.at_s)),
        )


def by_device(history: FleetHistory, device_id: str) -> FleetHistory:
    """One GPU's part of a history."""
    row = next(i for i, gpu in enumerate(history.gpus) if gpu.device_id == device_id)
    return history.take(np.array([row]))


def assert_same_window(one: FleetWindow, other: FleetWindow) -> None:
    assert one.gpus == other.gpus
    np.testing.assert_array_equal(one.times_s, other.times_s)
    for signal in {*one.values, *other.values}:
        np.testing.assert_array_equal(one.get(signal), other.get(signal), err_msg=signal.value)


def assert_same_bins(one: OnsetBins, other: OnsetBins) -> None:
    """The same bins in any order."""
    orders = [np.lexsort((bins.row, bins.start_s)) for bins in (one, other)]
    for name in ("row", "start_s", "onset", "share", "inlet_source", "x"):
        columns = [getattr(bins, name)[order] for bins, order in zip((one, other), orders, strict=True)]
        np.testing.assert_array_equal(columns[0], columns[1], err_msg=name)


def assert_same_history(one: FleetHistory, other: FleetHistory) -> None:
    """Every part of both is equal, NaN where the other has NaN."""
    assert_same_window(one.recent, other.recent)
    assert (one.daily.gpus, one.daily.unfinished) == (other.daily.gpus, other.daily.unfinished)
    known = (one.daily.exposure_h > 0).any(axis=0), (other.daily.exposure_h > 0).any(axis=0)
    assert one.daily.days[known[0]].tolist() == other.daily.days[known[1]].tolist()
    for name in {*one.daily.features, *other.daily.features}:
        np.testing.assert_array_equal(one.daily.get(name)[:, known[0]], other.daily.get(name)[:, known[1]], name)
    for name in ("exposure_h", "completeness"):
        np.testing.assert_array_equal(getattr(one.daily, name)[:, known[0]], getattr(other.daily, name)[:, known[1]])
    for name in ("row", "start_s", "end_s", "kind", "value"):
        np.testing.assert_array_equal(getattr(one.events, name), getattr(other.events, name), name)
    assert [day_of(part) for part in one.onset_bins] == [day_of(part) for part in other.onset_bins]
    for part, twin in zip(one.onset_bins, other.onset_bins, strict=True):
        assert_same_bins(part, twin)
    assert one.topology.names == other.topology.names
    for layer, group in one.topology.groups.items():
        np.testing.assert_array_equal(group, other.topology.groups[layer])
    assert one.environment.keys() == other.environment.keys()
    for signal, series in one.environment.items():
        assert series.names == other.environment[signal].names
        np.testing.assert_array_equal(series.values, other.environment[signal].values, signal.value)
