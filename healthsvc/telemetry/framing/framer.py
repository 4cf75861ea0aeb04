"""Samples of any origin to a RawGrid: canonical names, base units, no blanks, all series of a device merged."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import LIVENESS, GpuId, PlaceSeries, Signal, first_of, first_rows
from healthsvc.telemetry.catalogue import GPU_ROWS, EnvironmentRow, Row
from healthsvc.telemetry.catalogue.rows import predicate
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.cleaning import Series, clean
from healthsvc.telemetry.framing.codes import (
    CodeCounts,
    behind_counts,
    count_codes,
    filled,
    several_codes,
    show_newborn,
)
from healthsvc.telemetry.framing.freshness import HELD, STALE, Rhythm, frozen, held_for, hold, intervals
from healthsvc.telemetry.framing.merge import columns_of, merge_samples
from healthsvc.telemetry.framing.owners import Owners
from healthsvc.telemetry.framing.read_memory import ReadMemory
from healthsvc.telemetry.framing.readings import Readings
from healthsvc.telemetry.framing.seams import judge_all
from healthsvc.telemetry.framing.tails import Tail
from healthsvc.telemetry.identity.labels import place_name
from healthsvc.telemetry.source import RawGrid

Floats = NDArray[np.float64]
_NO_GPU = ("nvswitch", "cpu", "nvlink")  # series with one of these speak of no GPU, and may
_RANK = {(row.metric.lower(), row.matcher): rank for rank, row in enumerate(GPU_ROWS)}


class Framer:
    """Takes answers in any order, then gives the grid.

    gpus: the rows; series of others are left out. memory: what reads of the same source share. now_s: samples later
    than this come from a clock that is ahead.
    """

    def __init__(
        self,
        gpus: Sequence[GpuId],
        times_s: Floats,
        step_s: float,
        memory: ReadMemory | None = None,
        now_s: float = np.inf,
    ) -> None:
        self._gpus, self._times_s, self._step_s, self._now_s = tuple(gpus), times_s, step_s, now_s
        self._memory = memory if memory is not None else ReadMemory()
        self._row_of = first_rows(gpus)
        self._grids: dict[Row, Floats] = {}
        self._covered: defaultdict[Row, list[tuple[slice, NDArray[np.bool_]]]] = defaultdict(list)
        self._codes: dict[Row, CodeCounts] = {}
        self._surroundings: defaultdict[EnvironmentRow, list[Samples]] = defaultdict(list)
        self._rejected: defaultdict[Signal, Counter[str]] = defaultdict(Counter)
        self._readings = Readings(len(self._gpus))
        self._interval_s = np.full(len(self._gpus), np.nan)
        self._rhythm = Rhythm.unknown(len(self._gpus))

    @property
    def owners(self) -> Owners:
        """Whose series are whose, for whoever looks at the same answers."""
        return self._memory.owners

    def take(self, row: Row | EnvironmentRow, samples: Samples, columns: slice = slice(None)) -> None:
        """The samples of one catalogue row, for these columns of the grid."""
        if isinstance(row, EnvironmentRow):
            self._surroundings[row].append(samples)
            return
        columns = slice(*columns.indices(len(self._times_s)))
        series = self._owned(row, samples)
        if not len(series.rows):
            return
        series = clean(series, row, self._memory.units, self._readings, self._rejected[row.signal], self._now_s)
        if series.signal_of_life:
            self._learn_intervals(series)
        grid_s = self._times_s[columns]
        if row.code_label:
            codes = np.array([_code(labels.get(row.code_label, "")) for labels in series.labels], np.intp)
            counted = self._codes.setdefault(row, CodeCounts(len(self._times_s)))
            counted.add(series.values, series.times_s, series.counts, series.rows, codes, columns, grid_s, self._step_s)
            return
        if row not in self._grids:
            self._grids[row] = np.full((len(self._gpus), len(self._times_s)), np.nan)
        out = self._grids[row]
        fresh = self._is_fresh(row, columns, series.rows)
        if row.signal is Signal.XID and not fresh[1]:
            several = several_codes(series.values, series.counts, series.rows)
            if several.any():
                self._newborn(out, series.chosen(several), columns, grid_s)
                series = series.chosen(~several)
        merge_samples(
            out,
            series.values,
            series.times_s,
            series.counts,
            series.rows,
            columns,
            grid_s,
            self._step_s,
            row.merge,
            fresh[0],
        )

    def grid(self, samples: int, warnings: Sequence[str], partial: bool = False) -> RawGrid:
        """What was taken so far. samples: how many there were; warnings: what their source warned of; partial: series
        may be missing, so that a metric without any proves nothing."""
        values = self._coalesced()
        devices, start_s = tuple(gpu.device_id for gpu in self._gpus), float(self._times_s[0]) - self._step_s
        tail = self._memory.freshness.tails.get(start_s, Tail.unknown(()))
        before = tail.of(devices)
        sticks = self._count_xids(values, before, start_s, partial)
        after = self._refresh(values, before, sticks)
        self._memory.freshness.keep(float(self._times_s[-1]), after.with_absent(tail))
        self._memory.owners.forget_answer()
        places: defaultdict[Signal, list[PlaceSeries]] = defaultdict(list)
        for surrounding in sorted(self._surroundings, key=lambda row: (row.rank, row.metric)):
            places[surrounding.signal].append(self._places(surrounding, self._surroundings[surrounding]))
        environment = {signal: first_of(parts) for signal, parts in places.items()}
        return RawGrid(
            self._gpus,
            self._times_s,
            values,
            {signal: series for signal, series in environment.items() if series.names},
            samples,
            tuple(sorted(warnings)),
            {(signal, why): n for signal, each in self._rejected.items() for why, n in each.items() if n},
            self._readings.told(),
        )

    def _owned(self, row: Row, samples: Samples) -> Series:
        """The series of known GPUs that the row means; others are left out, those that name no GPU are counted."""
        rejected, owned = self._rejected[row.signal], self._memory.owners.of(samples.labels)
        rows = np.fromiter(map(self._row_of.get, owned.devices, repeat(-1)), np.intp, len(owned.devices))
        rows[owned.oversized] = -1
        if len(owned.oversized):
            rejected["oversized_labels"] += int(samples.counts[owned.oversized].sum())
        if row.matcher:
            meets = predicate(row.matcher)
            rows[[i for i, labels in enumerate(samples.labels) if not meets(labels)]] = -1
        if "" in owned.devices:
            large = frozenset(owned.oversized.tolist())
            for i, labels in enumerate(samples.labels):
                nameless = not owned.devices[i] and i not in large and predicate(row.matcher)(labels)
                if nameless and not any(name in labels for name in _NO_GPU):
                    rejected["no_device"] += int(samples.counts[i])
        series = Series(row.signal, samples.labels, rows, *_floats(samples), samples.counts)
        return series if (rows >= 0).all() else series.chosen(rows >= 0)

    def _is_fresh(self, row: Row, columns: slice, rows: NDArray[np.intp]) -> tuple[bool, bool]:
        """Whether nothing was written yet where these series go; and whether each has a row to itself."""
        mine = np.zeros(len(self._gpus), bool)
        mine[rows] = True
        alone = int(mine.sum()) == len(rows)
        taken = any(
            other.start < columns.stop and columns.start < other.stop and bool((mine & theirs).any())
            for other, theirs in self._covered[row]
        )
        self._covered[row].append((columns, mine))
        return not taken, alone and not taken

    def _newborn(self, out: Floats, series: Series, columns: slice, grid_s: Floats) -> None:
        owner = np.repeat(np.arange(len(series.rows)), series.counts)
        column = columns_of(series.times_s, grid_s, self._step_s)
        show_newborn(out, series.values, column, series.times_s, owner, series.rows, columns)

    def _learn_intervals(self, series: Series) -> None:
        """The shortest of a GPU's series: replicas and pods repeat one target."""
        found = intervals(series.times_s, series.counts)
        np.fmin.at(self._interval_s, series.rows, found)
        self._rhythm.see(series.times_s, series.counts, series.rows)

    def _coalesced(self) -> dict[Signal, Floats]:
        """One grid a signal but XIDs: of its metrics the first in the catalogue wins, sample by sample; without samples
        none."""
        values: dict[Signal, Floats] = {}
        for row in sorted(self._grids, key=_rank):
            grid = self._grids[row]
            if row.signal is Signal.XID or np.isnan(grid).all():
                continue
            earlier = values.get(row.signal)
            if earlier is None:
                values[row.signal] = grid
                continue
            np.copyto(earlier, grid, where=np.isnan(earlier))
        return values

    def _count_xids(self, values: dict[Signal, Floats], before: Tail, start_s: float, partial: bool) -> Floats:
        """Puts the XIDs into `values`, keeps their counts for the next read, and returns what sticks in the gauge."""
        heard = [~np.isnan(values[signal]) for signal in LIVENESS & values.keys()]
        alive = np.logical_or.reduce(heard) if heard and not partial else None
        codes = {row: self._codes[row] for row in sorted(self._codes, key=_rank)}
        counts, last = count_codes(codes, before.devices, self._memory.totals.get(start_s), alive, partial)
        self._memory.keep_totals(float(self._times_s[-1]), last)
        gauge: Floats | None = None
        for row in sorted(self._grids, key=_rank):
            if row.signal is Signal.XID:
                gauge = self._grids[row] if gauge is None else filled(gauge, self._grids[row])
        shown, sticks = counts, before.sticks
        if gauge is not None:
            shown, sticks = behind_counts(counts, gauge, before.sticks)
        if shown is not None and not np.isnan(shown).all():
            values[Signal.XID] = shown
        return sticks

    def _refresh(self, values: dict[Signal, Floats], before: Tail, sticks: Floats) -> Tail:
        """Take out what cannot follow the read before or what a frozen exporter repeats; hold gauges of slow GPUs.

        How the grid ends, for the next read.
        """
        known, devices = self._memory.freshness.interval_s, before.devices
        rhythm = self._rhythm.after(before.rhythm)
        self._interval_s = np.where(np.isnan(self._interval_s), rhythm.intervals(), self._interval_s)
        unknown = np.flatnonzero(np.isnan(self._interval_s))
        self._interval_s[unknown] = [known.get(devices[i], np.nan) for i in unknown]
        learned = np.flatnonzero(~np.isnan(self._interval_s))
        known.update(zip([devices[i] for i in learned], self._interval_s[learned].tolist(), strict=True))
        gone, lasts = judge_all(values, self._times_s, before.lasts)
        for signal, count in gone.items():
            self._rejected[signal]["impossible_jump"] += count
        energy, since_s = before.energy, before.since_s
        if Signal.ENERGY in values:
            power = values.get(Signal.POWER)
            still, energy, since_s = frozen(values[Signal.ENERGY], power, self._times_s, (energy, since_s))
            if still.any():
                for signal in STALE & values.keys():
                    self._rejected[signal]["frozen"] += int(np.count_nonzero(~np.isnan(values[signal]) & still))
                    values[signal][still] = np.nan
        held_s = held_for(self._interval_s, self._step_s)
        held: dict[Signal, tuple[Floats, Floats]] = {}
        if (held_s > 0).any():
            for signal in HELD & (values.keys() | before.held.keys()) - {Signal.XID}:
                # A column in which no GPU has a sample is held like any other.
                grid = values.get(signal)
                grid = np.full((len(devices), len(self._times_s)), np.nan) if grid is None else grid
                held[signal] = hold(grid, self._times_s, held_s, before.held.get(signal))
                if signal in values or not np.isnan(grid).all():
                    values[signal] = grid
        return Tail(devices, held, energy, since_s, sticks, rhythm, lasts)

    def _places(self, row: EnvironmentRow, answers: Sequence[Samples]) -> PlaceSeries:
        """The row's series by place, in order of name."""
        meets, rejected = predicate(row.matcher), self._rejected[row.signal]
        named = [
            [place_name(labels, row.place_labels) if meets(labels) else "" for labels in samples.labels]
            for samples in answers
        ]
        names = tuple(sorted({name for each in named for name in each if name}))
        number = {name: i for i, name in enumerate(names)}
        grid = np.full((len(names), len(self._times_s)), np.nan)
        whole = slice(0, len(self._times_s))
        for samples, each in zip(answers, named, strict=True):
            rows = np.array([number.get(name, -1) for name in each], np.intp)
            series = Series(row.signal, samples.labels, rows, *_floats(samples), samples.counts)
            series = clean(series.chosen(rows >= 0), row, self._memory.units, None, rejected, self._now_s)
            merge_samples(
                grid,
                series.values,
                series.times_s,
                series.counts,
                series.rows,
                whole,
                self._times_s,
                self._step_s,
                row.merge,
                False,
            )
        return PlaceSeries(row.layer, names, grid.astype(np.float32))


def _floats(samples: Samples) -> tuple[Floats, Floats]:
    return np.asarray(samples.values, np.float64), np.asarray(samples.times_s, np.float64)


def _rank(row: Row) -> int:
    """Its place in the catalogue, whatever case its name is written in."""
    return _RANK.get((row.metric.lower(), row.matcher), len(_RANK))


def _code(label: str) -> int:
    """The number that an xid label holds; 0 where it holds none."""
    return int(label) if label.isdecimal() and len(label) < 6 else 0
