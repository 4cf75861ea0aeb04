"""The ledger on disk: what every GPU was on every finished day, kept longer than any server keeps samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from healthsvc.fleet import DAY_S, DailyLedger, EventLog, Floats, GpuId, OnsetBins, day_name
from healthsvc.store.day_files import DayFiles
from healthsvc.store.day_tables import (
    BIN_VALUES,
    COVERAGE,
    EVENT_VALUES,
    IDENTITY,
    ONSET_FACTS,
    DayFacts,
    bin_table,
    bins_in,
    daily_table,
    event_table,
    identities,
    replaced,
    rows_of,
    same_onsets,
)

ONSETS_LOST = "Nothing to do: neighbours and margins are learned without that day"


@dataclass(frozen=True)
class DayStatus:
    """One day on disk: how many GPUs, the mean completeness of their samples, and what is out of date."""

    day: int
    gpus: int
    completeness_ratio: float
    complete: bool  # False: written before the day, or the last of its shards, was done
    stale_columns: tuple[str, ...]  # computed by another definition than today's; read as NaN
    written_at_s: float


@dataclass(frozen=True)
class Ledger:
    """`ledger/YYYY-MM-DD.parquet`, and `events/` and `onsets/` beside it, under `directory`.

    A day counts once it has its ledger and its events; one without a file of onsets has no bins to learn from.
    definitions: {feature: hash of how it is computed today}; a column written under another hash is never mixed with
    today's numbers. One thread of one process writes (StateLock), any number may read meanwhile. Methods raise
    StoreError when the disk refuses; a damaged file is set aside with a warning and its day counts as missing.
    """

    directory: Path
    definitions: Mapping[str, str]

    @property
    def _daily(self) -> DayFiles:
        return DayFiles(Path(self.directory) / "ledger", (*IDENTITY, *COVERAGE), DayFacts.decode)

    @property
    def _events(self) -> DayFiles:
        return DayFiles(Path(self.directory) / "events", ("device_id", *EVENT_VALUES))

    @property
    def _onsets(self) -> DayFiles:
        return DayFiles(Path(self.directory) / "onsets", ("device_id", *BIN_VALUES), cure=ONSETS_LOST)

    def write_day(
        self,
        day: int,
        daily: DailyLedger,
        events: EventLog,
        now_s: float,
        *,
        complete: bool = True,
        bins: OnsetBins = OnsetBins(),
    ) -> None:
        """Add one day: `daily` has that one column, `events` and `bins` the rows of `daily.gpus`.

        GPUs that the day has already are replaced, their events and bins too; the others stay, so shards and retries
        just follow one another. `complete=False` while shards are still to come: the day is listed by
        `incomplete_days` until a write says otherwise. What is stale of the others is dropped, never relabelled.
        """
        self._check(day, daily, events, bins)
        table, happened, drawn = daily_table(daily), event_table(daily.gpus, events), bin_table(daily.gpus, bins)
        facts = DayFacts(self.definitions, now_s, complete and not daily.unfinished)
        ids = table["device_id"]
        old, old_events, old_bins = self._daily.read(day), self._events.read(day), self._onsets.read(day)
        if old is not None:
            stale = set(DayFacts.decode(old.schema).stale(self.definitions))
            table = replaced(old.select([n for n in old.column_names if n not in stale]), table, ids)
        if old_events is not None:
            happened = replaced(old_events, happened, ids)
        if old_bins is not None and same_onsets(old_bins.schema):
            drawn = replaced(old_bins, drawn, ids)
        # The ledger last: a day counts once it has it and its events, so a kill in between leaves a day to be retried.
        self._onsets.write(day, drawn.sort_by([("start_s", "ascending"), ("device_id", "ascending")]), ONSET_FACTS)
        self._events.write(day, happened.sort_by([("start_s", "ascending"), ("device_id", "ascending")]), {})
        self._daily.write(day, table.sort_by("device_id"), facts.encode())

    def read(self, first_day: int, last_day: int) -> tuple[DailyLedger, EventLog]:
        """Every GPU seen in [first_day, last_day] (sorted by device_id, its newest labels), and what happened.

        Features are [gpu, day] for each name in `definitions` and each day of the span: NaN where the GPU, the day or
        the column is absent or stale; exposure and completeness are 0 there. Events are merged, the newest report of
        an episode winning.
        """
        span = range(first_day, last_day + 1)
        gpus = self._union(span)
        ids = pa.array([gpu.device_id for gpu in gpus], pa.string())
        shape = (len(gpus), len(span))
        numbers: dict[str, Floats] = {name: np.full(shape, np.nan, np.float32) for name in self.definitions}
        numbers |= {name: np.zeros(shape, np.float32) for name in COVERAGE}
        for column, day in enumerate(span):
            table = self._daily.read(day, ("device_id", *numbers))
            if table is None:
                continue
            rows, known = rows_of(table, ids)
            stale = DayFacts.decode(table.schema).stale(self.definitions)
            for name in numbers.keys() & set(table.column_names) - set(stale):
                values = table[name].to_numpy()[known]
                numbers[name] = numbers[name].astype(np.promote_types(numbers[name].dtype, values.dtype), copy=False)
                numbers[name][rows, column] = values
        exposure_h, completeness = (numbers.pop(name) for name in COVERAGE)
        days = np.array(span, np.int64)
        return DailyLedger(gpus, days, numbers, exposure_h, completeness), self._happened(span, ids)

    def events_of(self, gpus: Sequence[GpuId], first_day: int, last_day: int) -> EventLog:
        """What happened to these GPUs in [first_day, last_day], in their rows; much less to read than whole days."""
        return self._happened(range(first_day, last_day + 1), pa.array([gpu.device_id for gpu in gpus], pa.string()))

    def onset_bins(self, gpus: Sequence[GpuId], first_day: int, last_day: int) -> tuple[OnsetBins, ...]:
        """The bins of these GPUs in [first_day, last_day], in their rows: one part a day, in order, of days that have
        any. A day that was written before there were bins, or whose bins were worked out otherwise, has none."""
        ids = pa.array([gpu.device_id for gpu in gpus], pa.string())
        tables = (self._onsets.read(day) for day in range(first_day, last_day + 1))
        parts = (bins_in(table, ids) for table in tables if table is not None and same_onsets(table.schema))
        return tuple(part for part in parts if len(part))

    def status(self) -> list[DayStatus]:
        """Every day on disk, in order."""
        found = []
        for day in self.days():
            table = self._daily.read(day, ("completeness",))
            if table is None:
                continue
            facts = DayFacts.decode(table.schema)
            share = float(np.mean(table["completeness"].to_numpy())) if len(table) else 0.0
            stale = facts.stale(self.definitions)
            found.append(DayStatus(day, len(table), share, facts.complete, stale, facts.written_at_s))
        return found

    def days(self) -> list[int]:
        """Days that both files hold."""
        return sorted(set(self._daily.days()) & set(self._events.days()))

    def missing_days(self, first_day: int, last_day: int) -> list[int]:
        """Days of [first_day, last_day] that are not on disk."""
        return sorted(set(range(first_day, last_day + 1)) - set(self.days()))

    def incomplete_days(self, now_s: float, within_s: float = 48 * 3600.0, below: float = 0.98) -> list[int]:
        """Days to read again: those never completed, whatever their age, and those that ended in the last `within_s`
        with less than `below` of their samples (late ones may have arrived since)."""
        return [
            s.day
            for s in self.status()
            if not s.complete or (now_s - (s.day + 1) * DAY_S <= within_s and s.completeness_ratio < below)
        ]

    def partial_days(self, first_day: int, last_day: int) -> frozenset[int]:
        """Days of [first_day, last_day] on disk that were never complete: not to be learned from."""
        schemas = {day: self._daily.schema(day) for day in self.days() if first_day <= day <= last_day}
        return frozenset(d for d, schema in schemas.items() if schema and not DayFacts.decode(schema).complete)

    def stale_days(self) -> list[int]:
        """Days with a column computed by another definition than today's."""
        schemas = {day: self._daily.schema(day) for day in self.days()}
        return [d for d, schema in schemas.items() if schema and DayFacts.decode(schema).stale(self.definitions)]

    def quarantined(self) -> list[Path]:
        """Damaged files that were set aside, in this run or an earlier one."""
        return self._daily.quarantined() + self._events.quarantined() + self._onsets.quarantined()

    def drop_before(self, day: int) -> None:
        """Forget the days before `day`, damaged files included."""
        self._daily.drop_before(day)
        self._events.drop_before(day)
        self._onsets.drop_before(day)

    def _check(self, day: int, daily: DailyLedger, events: EventLog, bins: OnsetBins) -> None:
        """Mistakes of the caller; ValueError, because no operator can cure them."""
        if daily.days.tolist() != [day]:
            raise ValueError(f"ledger {day_name(day)}: daily.days is {daily.days.tolist()}; give that one day, [{day}]")
        undefined = daily.features.keys() - self.definitions.keys()
        if undefined:
            raise ValueError(f"ledger {day_name(day)}: no definition of {sorted(undefined)}; add them to definitions")
        if len({gpu.device_id for gpu in daily.gpus}) < len(daily.gpus):
            raise ValueError(f"ledger {day_name(day)}: a device_id occurs twice; merge its rows first")
        for name, row in (("events", events.row), ("bins", bins.row)):
            if len(row) and not 0 <= row.min() <= row.max() < len(daily.gpus):
                last = len(daily.gpus) - 1
                raise ValueError(f"ledger {day_name(day)}: {name}.row leaves 0..{last}, the rows of daily")

    def _union(self, span: range) -> tuple[GpuId, ...]:
        """Every GPU of the span once, with the labels of its newest day."""
        gpus: list[GpuId] = []
        known: Any = pa.array([], pa.string())
        for day in reversed(span):
            table = self._daily.read(day, IDENTITY)
            if table is not None:
                fresh = pc.invert(pc.is_in(table["device_id"], value_set=known))
                gpus += identities(table.filter(fresh))
                known = pa.array([gpu.device_id for gpu in gpus], pa.string())
        return tuple(sorted(gpus, key=lambda gpu: gpu.device_id))

    def _happened(self, span: range, ids: Any) -> EventLog:
        """Events of the span, rows as in `ids`."""
        logs = []
        for day in reversed(span):
            table = self._events.read(day)
            if table is not None:
                rows, known = rows_of(table, ids)
                values = {n: table[n].to_numpy()[known].astype(kind) for n, kind in EVENT_VALUES.items()}
                logs.append(EventLog(rows.astype(np.int32), **values))
        if not logs:
            return EventLog()
        # Newest day first, merged with nothing: the merge keeps the first report of an episode, in one sort for all.
        newest_first = EventLog(*(np.concatenate([getattr(log, n) for log in logs]) for n in ("row", *EVENT_VALUES)))
        return EventLog().merged(newest_first)
