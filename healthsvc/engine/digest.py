"""A stretch of history becomes ten-minute summaries and episodes; a finished day becomes a row of the ledger."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.daily import daily_row
from healthsvc.features.events import LEAD_IN_S, detect_events
from healthsvc.features.windows import WINDOW_S, Summaries, inlet_by_gpu, summarise
from healthsvc.fleet import (
    DAY_S,
    GPU_SIGNALS,
    DailyLedger,
    EventLog,
    FleetWindow,
    GpuId,
    Placement,
    Signal,
    build_topology,
    first_rows,
)
from healthsvc.store.ledger import Ledger
from healthsvc.telemetry.grid import CounterCarry, frame, uniform_times
from healthsvc.telemetry.source import RawGrid, Source

BYTES_A_COLUMN = len(GPU_SIGNALS) * (8 + 8 + 4)  # raw, merged and framed copies of one GPU's column


@dataclass(frozen=True)
class Digest:
    """What a stretch left behind; all rows are `gpus`. last_seen_s: newest sample of each GPU, -inf if none."""

    gpus: tuple[GpuId, ...]
    summaries: Summaries
    events: EventLog
    last_seen_s: NDArray[np.float64]


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
    tail: FleetWindow | None = None
    lead_columns = int(np.ceil(LEAD_IN_S / step_s))
    for number, (raw, window) in enumerate(read_span(source, start_s, end_s, step_s, chunk_s)):
        on_read(raw)
        gpus, rows = union_of(gpus, raw.gpus)
        back = inverse(rows, len(gpus))
        window = window.take(gpus, back)
        topology = build_topology(gpus, placement)
        old = np.arange(len(gpus), dtype=np.intp)
        old[len(seen) :] = -1
        seen = np.concatenate([seen, np.full(len(gpus) - len(seen), -np.inf)])
        joined = window if tail is None else join_columns(tail.take(gpus, old), window)
        if number > 0:
            inlet = inlet_by_gpu(raw.environment, topology, gpus, len(window.times_s))
            unseen = np.full((len(gpus), len(joined.times_s) - len(window.times_s)), np.nan, np.float32)
            # With the tail of the chunk before, so that energy over a missed sample at the seam has its beginning.
            began_s = float(window.times_s[0]) - step_s
            fresh = summarise(joined, np.concatenate([unseen, inlet], axis=1)).within(began_s, np.inf)
            summaries = fresh if summaries is None or not summaries.columns else summaries.take(gpus, old).joined(fresh)
            seen = np.maximum(seen, newest_sample_s(window))
            events = events.merged(detect_events(joined, topology.group("node", len(gpus)), began_s))
        tail = joined.columns(slice(-lead_columns, None))
    return Digest(gpus, summaries or Summaries(gpus, np.zeros(0), {}), events, seen)


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
    """Read one finished UTC day and write it to the ledger; None if nobody reported. Raises SourceError, StoreError."""
    gpus = source.discover(day * DAY_S, (day + 1) * DAY_S)
    if not gpus:
        return None
    chunk_s = chunk_seconds(len(gpus), step_s, memory_mib)
    digest = digest_span(source, day * DAY_S, (day + 1) * DAY_S, step_s, chunk_s, placement, on_read)
    if not digest.summaries.columns:
        return None
    row = daily_row(digest.summaries, build_topology(digest.gpus, placement), step_s, day, unfinished=False)
    ledger.write_day(day, row, digest.events, now_s)
    return row


def days_to_walk(ledger: Ledger, now_s: float, train_days: int, history_starts_s: float | None) -> list[int]:
    """Finished days that the ledger lacks or should read again, newest first, not before the source's history."""
    today = int(now_s // DAY_S)
    first = today - train_days
    if history_starts_s is not None:
        first = max(first, int(history_starts_s // DAY_S))
    again = {*ledger.stale_days(), *ledger.incomplete_days(now_s)}
    wanted = again | {*ledger.missing_days(first, today - 1)}  # last: a look into a damaged file sets it aside
    return sorted((day for day in wanted if first <= day < today), reverse=True)
