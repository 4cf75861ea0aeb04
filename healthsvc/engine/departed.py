"""GPUs that have left the fleet during a day which is not written yet: their part of it still belongs to the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.digest import union_of
from healthsvc.features.events import begun_in
from healthsvc.features.windows import WINDOW_S, Summaries, flow_by_gpu, inlet_by_gpu, summarise
from healthsvc.fleet import EventLog, FleetWindow, Floats, PlaceSeries, Signal, Topology, join_places
from healthsvc.telemetry.framing.grid import uniform_times


@dataclass(frozen=True)
class Departed:
    """What those that left had done until they left; rows of `events` are `summaries.gpus`. No GPU is in it twice."""

    summaries: Summaries
    events: EventLog

    def with_more(self, later: "Departed") -> "Departed":
        """Both; a GPU that came back and left again is one."""
        summaries, first, second = _united(self.summaries, later.summaries)
        events = _renumbered(self.events, first).merged(_renumbered(later.events, second))
        return Departed(summaries, events)

    def after(self, start_s: float) -> "Departed | None":
        """What has not been written, once everything up to `start_s` has; None if that is nothing."""
        rest = self.summaries.within(start_s, np.inf)
        return Departed(rest, begun_in(self.events, start_s)) if len(rest.ends_s) else None


def whole_day(
    left: Departed | None, today: Summaries, events: EventLog, start_s: float, end_s: float
) -> tuple[Summaries, EventLog]:
    """One day of those that stay and of those that left; rows of the events are the GPUs of the summaries."""
    today, events = today.within(start_s, end_s), begun_in(events, start_s, end_s)
    gone = None if left is None else left.summaries.within(start_s, end_s)
    if left is None or gone is None or not len(gone.ends_s):
        return today, events
    summaries, leaves, stays = _united(gone, today)
    told = _renumbered(begun_in(left.events, start_s, end_s), leaves)
    return summaries, told.merged(_renumbered(events, stays))


def departing(
    rows: NDArray[np.intp],
    today: Summaries,
    events: EventLog,
    recent: FleetWindow,
    environment: Mapping[Signal, PlaceSeries],
    topology: Topology,
    digested_s: float,
) -> Departed | None:
    """The part of the GPUs in `rows` that no ledger has yet; None if they gave no sample in it.

    Their last ten minutes may not be over: it is summarised as it will be, without a further sample.
    """
    gpus = tuple(recent.gpus[int(row)] for row in rows)
    until_s = float(np.ceil(recent.now_s / WINDOW_S) * WINDOW_S)
    first = int(np.searchsorted(recent.times_s, digested_s - WINDOW_S, "right"))
    window = recent.columns(slice(first, None)).take(gpus, rows)
    to_come = uniform_times(recent.now_s, until_s, recent.step_s)
    unseen = np.full((len(gpus), len(to_come)), np.nan, np.float32)
    values = {signal: np.concatenate([known, unseen], axis=1) for signal, known in window.values.items()}
    columns = len(window.times_s)
    cut = {s: replace(p, values=p.values[:, -columns:]) for s, p in environment.items()}
    places, theirs = join_places([(cut, columns), ({}, len(to_come))]), topology.take(rows)
    padded = FleetWindow(gpus, np.concatenate([window.times_s, to_come]), values)
    inlet = inlet_by_gpu(places, theirs, gpus, len(padded.times_s))
    flow = flow_by_gpu(places, theirs, gpus, len(padded.times_s))
    summaries = today.take(gpus, rows).joined(summarise(padded, inlet, flow).within(digested_s, np.inf))
    if not len(summaries.ends_s):
        return None
    seen = np.flatnonzero((summaries.columns["samples"] > 0).any(axis=1))
    if not len(seen):
        return None
    kept = tuple(gpus[int(row)] for row in seen)
    began_s = float(summaries.ends_s[0]) - WINDOW_S
    return Departed(summaries.take(kept, seen), begun_in(events.take(rows[seen]), began_s))


def _united(first: Summaries, second: Summaries) -> tuple[Summaries, NDArray[np.intp], NDArray[np.intp]]:
    """Both in one, and the rows of each in it; where both know something of a GPU, `second` is right."""
    gpus, rows = union_of(first.gpus, second.gpus)
    own = np.arange(len(first.gpus), dtype=np.intp)
    ends = np.union1d(first.ends_s, second.ends_s)

    def laid(part: Summaries, name: str, where: NDArray[np.intp]) -> Floats:
        values = part.columns.get(name)
        kind = np.float32 if values is None else values.dtype
        full: Floats = np.full((len(gpus), len(ends)), np.nan, kind)
        if values is not None:
            full[where[:, None], np.searchsorted(ends, part.ends_s)] = values
        return full

    columns = {}
    for name in {**first.columns, **second.columns}:
        one, other = laid(first, name, own), laid(second, name, rows)
        columns[name] = np.where(np.isnan(other), one, other)
    return Summaries(gpus, ends, columns), own, rows


def _renumbered(events: EventLog, rows: NDArray[np.intp]) -> EventLog:
    """The events with the row that each GPU has elsewhere."""
    return replace(events, row=rows[events.row].astype(np.int32)) if len(events) else events
