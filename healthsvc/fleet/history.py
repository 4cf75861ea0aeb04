"""What was observed: the recent window, the daily ledger, the events, and the three together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.arrays import Floats, align_rows, frozen_array
from healthsvc.fleet.gpus import GpuId, Topology, Workload
from healthsvc.fleet.onset_bins import OnsetBins
from healthsvc.fleet.signals import Signal

Found = TypeVar("Found")


def first_rows(gpus: Sequence[GpuId]) -> dict[str, int]:
    """device_id -> row."""
    return {gpu.device_id: row for row, gpu in enumerate(gpus)}


@dataclass(frozen=True)
class FleetWindow:
    """Recent telemetry on a uniform grid. `values[signal]` is float32[gpu, time]; NaN = no sample.

    A gauge or state at column t is its last sample in (t - step, t]; a counter at column t is its increment over the
    same interval, never negative. Blind to what happens between two samples.
    """

    gpus: tuple[GpuId, ...]
    times_s: NDArray[np.float64]
    values: Mapping[Signal, Floats]
    _alive: dict[frozenset[Signal], NDArray[np.bool_]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        shape = (len(self.gpus), len(self.times_s))
        for signal, array in self.values.items():
            if array.shape != shape:
                raise ValueError(
                    f"FleetWindow.values[{signal.value}] has shape {array.shape}; needs {shape} = [gpu, time]"
                )
        object.__setattr__(self, "times_s", frozen_array(self.times_s))
        frozen = {signal: frozen_array(array) for signal, array in self.values.items()}
        object.__setattr__(self, "values", MappingProxyType(frozen))

    @property
    def now_s(self) -> float:
        """Data time: the end of the last column."""
        return float(self.times_s[-1])

    @property
    def step_s(self) -> float:
        return float(self.times_s[1] - self.times_s[0]) if len(self.times_s) > 1 else 60.0

    def get(self, signal: Signal) -> Floats:
        """The signal, or all NaN where nobody reports it."""
        found = self.values.get(signal)
        if found is None:
            # One NaN seen from everywhere: no memory, and as read-only as the others.
            return np.broadcast_to(np.float32(np.nan), (len(self.gpus), len(self.times_s)))
        return found

    def last(self, signal: Signal) -> Floats:
        """The newest sample of each GPU anywhere in the window [gpu]; NaN if there is none."""
        values = self.values.get(signal)
        if values is None:
            return np.full(len(self.gpus), np.nan, np.float32)
        latest: Floats = values[:, -1].copy()
        rows = np.flatnonzero(np.isnan(latest))  # few: nearly everybody answered just now
        earlier = values[rows]
        column = earlier.shape[1] - 1 - np.argmax(~np.isnan(earlier[:, ::-1]), axis=1)
        latest[rows] = earlier[np.arange(len(rows)), column]
        return latest

    def alive(self, signals: frozenset[Signal]) -> NDArray[np.bool_]:
        """Whether any of `signals` has a sample, bool[gpu, time]; read-only, and worked out once a window."""
        if signals not in self._alive:
            alive = np.zeros((len(self.gpus), len(self.times_s)), bool)
            for signal in signals & self.values.keys():
                alive |= ~np.isnan(self.values[signal])
            self._alive[signals] = frozen_array(alive)
        return self._alive[signals]

    def columns(self, chosen: slice) -> "FleetWindow":
        """A slice of time."""
        return replace(self, times_s=self.times_s[chosen], values={s: v[:, chosen] for s, v in self.values.items()})

    def take(self, gpus: Sequence[GpuId], rows: NDArray[np.intp]) -> "FleetWindow":
        """The same columns for `gpus`, whose old rows are `rows` (-1: not here before)."""
        return FleetWindow(tuple(gpus), self.times_s, {s: align_rows(v, rows) for s, v in self.values.items()})


class EventKind(IntEnum):
    """What can happen to a GPU. Numbers are stored in files: append, never renumber."""

    XID = 1  # value: the code
    DOUBLE_BIT_ERROR = 2  # value: errors
    UNCORRECTABLE_REMAP = 3  # value: rows
    CORRECTABLE_REMAP = 4  # value: rows
    REMAP_FAILURE = 5
    REMAP_PENDING = 6
    RETIRED_PAGES = 7  # value: pages
    THERMAL_THROTTLE = 8  # value: dose, share of the episode's seconds throttled
    HARDWARE_THROTTLE = 9  # value: as above
    POWER_BRAKE = 10  # value: as above
    LOST = 11  # gone while its node answers
    GAP = 12  # gone together with its node
    DRIVER_RELOAD = 13
    MAINTENANCE = 14
    SWAP = 15  # of the newcomer, in a socket where another board was before; it starts without a past
    MOVE = 16  # the same board on another host: other neighbours, the same history
    RENAME = 17  # its whole host has another name; nothing was carried anywhere
    RE_ENUMERATION = 18  # another index or bus address on the same host
    DECOMMISSION = 19  # gone for a whole UTC day together with all of its host
    REPARTITION = 20  # its MIG instances are others than before; value: how many there are now


OPEN = np.inf
EVENT_COLUMNS = ("row", "start_s", "end_s", "kind", "value")


@dataclass(frozen=True)
class EventLog:
    """Episodes sorted by start: row int32, start_s, end_s float64 (`OPEN`: it lasts), kind int16, value float64."""

    row: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    start_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    end_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    kind: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))
    value: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        for name in EVENT_COLUMNS:
            object.__setattr__(self, name, frozen_array(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.row)

    def where(self, mask: NDArray[Any]) -> "EventLog":
        """The chosen events (boolean mask or positions)."""
        return EventLog(*(getattr(self, name)[mask] for name in EVENT_COLUMNS))

    def of(self, *kinds: EventKind) -> "EventLog":
        """Events of these kinds."""
        return self.where(np.isin(self.kind, kinds))

    def known_at(self, now_s: float) -> "EventLog":
        """Only what had begun by `now_s`; an end that lies in the future is not known yet."""
        past = self.where(self.start_s <= now_s)
        return replace(past, end_s=np.where(past.end_s > now_s, OPEN, past.end_s))

    def take(self, rows: NDArray[np.intp]) -> "EventLog":
        """Renumbered: the GPU at old row rows[i] becomes row i; events of GPUs that are not in `rows` are dropped."""
        new_row = np.full(int(max(rows.max(initial=-1), self.row.max(initial=-1))) + 1, -1, np.int32)
        new_row[rows[rows >= 0]] = np.flatnonzero(rows >= 0).astype(np.int32)
        moved = replace(self, row=new_row[self.row] if len(self) else self.row)
        return moved.where(moved.row >= 0)

    def merged(self, other: "EventLog") -> "EventLog":
        """Both in order of start, each (row, kind, start) once, of XIDs each code; of two reports that of `other`."""
        joined = {n: np.concatenate([getattr(other, n), getattr(self, n)]) for n in EVENT_COLUMNS}
        # Two XIDs may begin at one sample, so their code tells them apart; of anything else the value is a measurement.
        apart = np.where(joined["kind"] == EventKind.XID, joined["value"], 0.0)
        order = np.lexsort((apart, joined["kind"], joined["row"], joined["start_s"]))
        log = EventLog(**{n: v[order] for n, v in joined.items()})
        if not len(log):
            return log
        same = (np.diff(log.row) == 0) & (np.diff(log.kind) == 0) & (np.diff(log.start_s) == 0)
        repeated = same & ((np.diff(log.value) == 0) | (log.kind[1:] != EventKind.XID))
        return log.where(~np.concatenate([[False], repeated]))


@dataclass(frozen=True)
class DailyLedger:
    """One column a UTC day, one row a GPU. `features[name]` is [gpu, day]; NaN = not observed.

    Error counts are float64 (17,700 errors/s is 1.5e9 a day), the rest float32. exposure_h: hours with samples;
    completeness: share of the day's expected samples that arrived. When `unfinished`, the last column is today so far.
    """

    gpus: tuple[GpuId, ...]
    days: NDArray[np.int64]  # days since 1970-01-01
    features: Mapping[str, Floats]
    exposure_h: Floats
    completeness: Floats
    unfinished: bool = False

    def __post_init__(self) -> None:
        shape = (len(self.gpus), len(self.days))
        for name, array in {
            **self.features,
            "exposure_h": self.exposure_h,
            "completeness": self.completeness,
        }.items():
            if array.shape != shape:
                raise ValueError(f"DailyLedger {name} has shape {array.shape}; needs {shape} = [gpu, day]")
        object.__setattr__(self, "features", MappingProxyType({k: frozen_array(v) for k, v in self.features.items()}))
        for name in ("days", "exposure_h", "completeness"):
            object.__setattr__(self, name, frozen_array(getattr(self, name)))

    def get(self, name: str) -> Floats:
        """The feature, or all NaN where no day has it."""
        found = self.features.get(name)
        return found if found is not None else np.full((len(self.gpus), len(self.days)), np.nan, np.float32)

    def take(self, gpus: Sequence[GpuId], rows: NDArray[np.intp]) -> "DailyLedger":
        """The same days for `gpus`, whose old rows are `rows` (-1: never seen, NaN)."""
        features = {k: align_rows(v, rows) for k, v in self.features.items()}
        exposure, complete = align_rows(self.exposure_h, rows, 0.0), align_rows(self.completeness, rows, 0.0)
        return DailyLedger(tuple(gpus), self.days, features, exposure, complete, self.unfinished)


@dataclass(frozen=True)
class PlaceSeries:
    """An environment signal: values float32[place, time] on the recent window's grid, for the places of one layer."""

    layer: str
    names: tuple[str, ...]
    values: Floats


@dataclass(frozen=True)
class FleetHistory:
    """What forecasters see, and all they see. Every part has the same GPUs in the same rows.

    workloads: by device_id, the pod that held a GPU last, where one did; for people, not for forecasts. onset_bins: of
    finished days, one part a day, what the onset of throttling is learned from.
    """

    recent: FleetWindow
    daily: DailyLedger
    events: EventLog
    topology: Topology
    environment: Mapping[Signal, PlaceSeries] = field(default_factory=lambda: MappingProxyType({}))
    workloads: Mapping[str, Workload] = field(default_factory=lambda: MappingProxyType({}))
    onset_bins: tuple[OnsetBins, ...] = ()
    _worked_out: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, name: str, work: Callable[["FleetHistory"], Found]) -> Found:
        """work(self), the first time; what that gave ever after. For what several readers of a cycle ask."""
        if name not in self._worked_out:
            self._worked_out[name] = work(self)
        found: Found = self._worked_out[name]
        return found

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        return self.recent.gpus

    @property
    def now_s(self) -> float:
        """Data time, the only clock that forecasters have."""
        return self.recent.now_s

    def take(self, rows: NDArray[np.intp]) -> "FleetHistory":
        """A subset or permutation of the GPUs."""
        gpus = tuple(self.gpus[i] for i in rows)
        return FleetHistory(
            self.recent.take(gpus, rows),
            self.daily.take(gpus, rows),
            self.events.take(rows),
            self.topology.take(rows),
            self.environment,
            self.workloads,
            tuple(part.take(rows) for part in self.onset_bins),
        )
