"""A stretch of history becomes ten-minute summaries and episodes; a finished day becomes a row of the ledger."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.identities import identities_in, known_before, known_of
from healthsvc.engine.placing import at_known_nodes, placed
from healthsvc.features.daily import daily_row
from healthsvc.features.events import LEAD_IN_S, detect_events
from healthsvc.features.identity_events import IdentityEvent, Known, as_log, decommissioned
from healthsvc.features.onset_bins import bins_of_day
from healthsvc.features.windows import WINDOW_S, Summaries, flow_by_gpu, inlet_by_gpu, summarise
from healthsvc.fleet import (
    DAY_S,
    GPU_SIGNALS,
    DailyLedger,
    EventKind,
    EventLog,
    FleetWindow,
    GpuId,
    Placement,
    Signal,
    build_topology,
    first_rows,
    join_places,
)
from healthsvc.store.ledger import Ledger
from healthsvc.telemetry.framing.grid import CounterCarry, frame, uniform_times
from healthsvc.telemetry.source import RawGrid, Source

BYTES_A_COLUMN = len(GPU_SIGNALS) * (8 + 8 + 4)  # raw, merged and framed copies of one GPU's column


@dataclass(frozen=True)
class Digest:
    """What a stretch left behind; all rows are `gpus`. last_seen_s: newest sample of each GPU, -inf if none.

    before: who reported in the day before it; known: who is known at its end.
    """

    gpus: tuple[GpuId, ...]
    summaries: Summaries
    events: EventLog
    last_seen_s: NDArray[np.float64]
    before: tuple[GpuId, ...] = ()
    known: Known = field(default_factory=Known)


def union_of(first: Sequence[GpuId], second: Sequence[GpuId]) -> tuple[tuple[GpuId, ...], NDArray[np.intp]]:
    """`first` followed by the newcomers of `second` (whose labels win), and the row of each of `second` in it."""
    merged = {gpu.device_id: gpu for gpu in (*first, *second)}  # a key keeps its place, whatever comes later
    gpus = tuple(merged.values())
    return gpus, rows_in(gpus, second)


def rows_in(gpus: Sequence[GpuId], wanted: Sequence[GpuId]) -> NDArray[np.intp]:
    """The row in `gpus` of each of `wanted`, -1 where it is not among them."""
    known = first_rows(gpus)
    return np.fromiter((known.get(gpu.device_id, -1) for gpu in wanted), np.intp, len(wanted))


def inverse(rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """old row of each new row, -1 where there was none; `rows` gives the new row of each old one."""
    back = np.full(count, -1, np.intp)
    back[rows] = np.arange(len(rows))
    return back


def newest_sample_s(window: FleetWindow) -> NDArray[np.float64]:
    """Time of each GPU's newest sample of any signal [gpu]; -inf if there is none."""
    alive = window.alive(frozenset(window.values))
    column = alive.shape[1] - 1 - np.argmax(alive[:, ::-1], axis=1) if alive.shape[1] else np.zeros(len(alive), int)
    return np.where(alive.any(axis=1), window.times_s[column] if alive.shape[1] else -np.inf, -np.inf)


def chunk_seconds(gpu_count: int, step_s: float, memory_mib: int) -> float:
    """Seconds of history that fit into the memory bound at once: whole ten-minute windows, a day at most."""
    columns = memory_mib * 2**20 / (max(gpu_count, 1) * BYTES_A_COLUMN)
    return float(np.clip(np.floor(columns * step_s / WINDOW_S), 1, DAY_S / WINDOW_S) * WINDOW_S)


def read_span(
    source: Source, start_s: float, end_s: float, step_s: float, chunk_s: float
) -> Iterator[tuple[RawGrid, FleetWindow]]:
    """The span in chunks, counters carried across their seams; the first is preceded by a lead-in of its own."""
    lead = source.read(uniform_times(start_s - LEAD_IN_S, start_s, step_s))
    window, carry = frame(lead, CounterCarry())
    yield lead, window
    at = start_s
    while at < end_s:
        until = min(at + chunk_s, end_s)
        raw = source.read(uniform_times(at, until, step_s))
        window, carry = frame(raw, carry)
        yield raw, window
        at = until


def digest_span(
    source: Source,
    start_s: float,
    end_s: float,
    step_s: float,
    chunk_s: float,
    placement: Placement | None,
    on_read: Callable[[RawGrid], None] = lambda raw: None,
) -> Digest:
    """Summaries and episodes of (start, end]; start is on a ten-minute boundary. Raises SourceError."""
    gpus: tuple[GpuId, ...] = ()
    summaries: Summaries | None = None
    events, seen = EventLog(), np.zeros(0)
    before = known_before(source, start_s)
    known = known_of(before)
    tail: FleetWindow | None = None
    lead_columns = int(np.ceil(LEAD_IN_S / step_s))
    for number, (raw, window) in enumerate(read_span(source, start_s, end_s, step_s, chunk_s)):
        on_read(raw)
        changes, known = identities_in(known, raw, window)
        gpus, rows = union_of(gpus, raw.gpus)
        back = inverse(rows, len(gpus))
        window = window.take(gpus, back)
        where = placed(placement, source)  # the labels that came with this part tell of it too
        topology = build_topology(gpus, where)
        old = np.arange(len(gpus), dtype=np.intp)
        old[len(seen) :] = -1
        seen = np.concatenate([seen, np.full(len(gpus) - len(seen), -np.inf)])
        joined = window if tail is None else join_columns(tail.take(gpus, old), window)
        if number > 0:
            columns = len(joined.times_s)
            known_places = (at_known_nodes(raw.environment, gpus, where), len(window.times_s))
            environment = join_places([({}, columns - len(window.times_s)), known_places])
            inlet = inlet_by_gpu(environment, topology, gpus, columns)
            flow = flow_by_gpu(environment, topology, gpus, columns)
            # With the tail of the chunk before, so that energy over a missed sample at the seam has its beginning.
            began_s = float(window.times_s[0]) - step_s
            fresh = summarise(joined, inlet, flow).within(began_s, np.inf)
            summaries = fresh if summaries is None or not summaries.columns else summaries.take(gpus, old).joined(fresh)
            seen = np.maximum(seen, newest_sample_s(window))
            events = events.merged(detect_events(joined, topology.group("node", len(gpus)), began_s))
            events = events.merged(as_log(changes, first_rows(gpus)))
        tail = joined.columns(slice(-lead_columns, None))
    return Digest(gpus, summaries or Summaries(gpus, np.zeros(0), {}), events, seen, before, known)


def join_columns(before: FleetWindow, after: FleetWindow) -> FleetWindow:
    """Two windows of the same GPUs, one behind the other; a signal that one lacks is NaN there."""
    signals: set[Signal] = {*before.values, *after.values}
    values = {s: np.concatenate([before.get(s), after.get(s)], axis=1) for s in signals}
    return FleetWindow(after.gpus, np.concatenate([before.times_s, after.times_s]), values)


def digest_day(
    source: Source,
    ledger: Ledger,
    day: int,
    now_s: float,
    step_s: float,
    memory_mib: int,
    placement: Placement | None,
    on_read: Callable[[RawGrid], None] = lambda raw: None,
) -> DailyLedger | None:
    """Read one finished UTC day and write it to the ledger; None if nobody reported. Raises SourceError, StoreError.

    If the source says that something is missing, the day is marked as not complete: it will be read again.
    """
    gpus = source.discover(day * DAY_S, (day + 1) * DAY_S)
    if not gpus:
        return None
    chunk_s = chunk_seconds(len(gpus), step_s, memory_mib)
    incomplete: list[RawGrid] = []

    def hear(raw: RawGrid) -> None:
        incomplete.extend([raw] if raw.incomplete else [])
        on_read(raw)

    digest = digest_span(source, day * DAY_S, (day + 1) * DAY_S, step_s, chunk_s, placement, hear)
    if not digest.summaries.columns:
        return None
    topology = build_topology(digest.gpus, placed(placement, source))
    row = daily_row(digest.summaries, topology, step_s, day, unfinished=False)
    bins = bins_of_day(digest.summaries, row, topology)
    ledger.write_day(day, *with_gone(row, digest.events, digest.before), now_s, complete=not incomplete, bins=bins)
    return row


def reported(row: DailyLedger) -> tuple[GpuId, ...]:
    """Those who gave a sample on the last day of `row`."""
    there = row.exposure_h[:, -1] > 0 if row.exposure_h.shape[1] else np.zeros(len(row.gpus), bool)
    return tuple(gpu for gpu, seen in zip(row.gpus, there.tolist(), strict=True) if seen)


def with_gone(row: DailyLedger, events: EventLog, before: Sequence[GpuId]) -> tuple[DailyLedger, EventLog]:
    """A finished day with those who reported on the day before and are decommissioned, as of its end.

    They have no features and no exposure. Their completeness is 1: nothing was expected, so nothing is read again.
    """
    day = int(row.days[-1])
    gone = decommissioned(before, reported(row))
    known = first_rows(row.gpus)
    new = tuple(gpu for gpu in gone if gpu.device_id not in known)
    if not gone:
        return row, events
    gpus = (*row.gpus, *new)
    old = np.concatenate([np.arange(len(row.gpus)), np.full(len(new), -1)]).astype(np.intp)
    wider = row.take(gpus, old)
    completeness = wider.completeness.copy()
    completeness[len(row.gpus) :] = 1.0
    told = [IdentityEvent(gpu.device_id, (day + 1) * DAY_S, EventKind.DECOMMISSION) for gpu in gone]
    return replace(wider, completeness=completeness), events.merged(as_log(told, first_rows(gpus)))


def days_to_walk(ledger: Ledger, now_s: float, train_days: int, history_starts_s: float | None) -> list[int]:
    """Finished days that the ledger lacks or should read again, newest first, not before the source's history."""
    today = int(now_s // DAY_S)
    first = today - train_days
    if history_starts_s is not None:
        first = max(first, int(history_starts_s // DAY_S))
    again = {*ledger.stale_days(), *ledger.incomplete_days(now_s)}
    wanted = again | {*ledger.missing_days(first, today - 1)}  # last: a look into a damaged file sets it aside
    return sorted((day for day in wanted if first <= day < today), reverse=True)
