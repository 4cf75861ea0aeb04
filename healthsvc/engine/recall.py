"""The memory as of a moment: finished days from the ledger, today and the recent window from the source."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.config import Settings
from healthsvc.engine.days import DayReader
from healthsvc.engine.digest import chunk_seconds, digest_span, newest_sample_s, reported, rows_in
from healthsvc.engine.identities import Registry, identities_in
from healthsvc.engine.joins import day_by_day
from healthsvc.engine.memory import FleetMemory, OnRead
from healthsvc.engine.placing import at_known_nodes, placed
from healthsvc.engine.roster import Roster
from healthsvc.features.events import detect_events
from healthsvc.features.facts import remembered
from healthsvc.features.identity_events import as_log
from healthsvc.features.windows import WINDOW_S
from healthsvc.fleet import DAY_S, GpuId, Placement, build_topology, first_rows
from healthsvc.fleet.meaning import REMEMBERED_DAYS
from healthsvc.telemetry.framing.grid import CounterCarry, frame, uniform_times
from healthsvc.telemetry.source import RawGrid, Source


def recall(
    source: Source, ledger: DayReader, now_s: float, settings: Settings, placement: Placement | None, on_read: OnRead
) -> FleetMemory:
    """Memory as of `now_s`: the ledger's finished days, today and the recent window from the source.

    Raises SourceError if the source does not answer.
    """
    step_s, today = settings.cycle.step_s, int(now_s // DAY_S)
    first_day = today - settings.history.train_days
    finished, events = ledger.read(first_day, today - 1)
    bins = ledger.onset_bins(finished.gpus, first_day, today - 1)
    past = remembered(ledger.events_of(finished.gpus, today - REMEMBERED_DAYS, first_day - 1))
    events = past.merged(events)
    partial: set[int] = set(ledger.partial_days(first_day, today - 1))

    def hear(raw: RawGrid) -> None:
        on_read(raw)
        if raw.incomplete:  # also that of a lead-in: it carries what the discovery of today's GPUs was told
            partial.add(today)

    whole_s = float(np.floor(now_s / WINDOW_S) * WINDOW_S)
    gpus = len(source.discover(today * DAY_S, now_s))  # the ledger of a first start knows of nobody
    chunk_s = chunk_seconds(gpus, step_s, settings.history.backfill_memory_mib)
    digest = digest_span(source, today * DAY_S, whole_s, step_s, chunk_s, placement, hear)

    start_s = now_s - settings.cycle.window_s
    lead = source.read(uniform_times(start_s - WINDOW_S, start_s, step_s))
    hear(lead)
    _, carry = frame(lead, CounterCarry())
    raw = source.read(uniform_times(start_s, now_s, step_s))
    hear(raw)
    recent, carry = frame(raw, carry)
    changes, known = identities_in(digest.known, raw, recent, whole_s)

    exposed = finished.exposure_h > 0
    newest_day = np.where(
        exposed.any(axis=1), finished.days[exposed.shape[1] - 1 - np.argmax(exposed[:, ::-1], axis=1)], -np.inf
    )
    roster = Roster(finished.gpus, (newest_day + 1) * DAY_S)
    roster = roster.seen(digest.gpus, digest.last_seen_s).seen(recent.gpus, newest_sample_s(recent))

    def rows(gpus: tuple[GpuId, ...]) -> NDArray[np.intp]:
        return rows_in(gpus, roster.gpus)

    all_events = events.take(rows(finished.gpus)).merged(digest.events.take(rows(digest.gpus)))
    where = placed(placement, source)
    topology = build_topology(roster.gpus, where)
    framed = recent.take(roster.gpus, rows(recent.gpus))
    late = detect_events(framed, topology.group("node", len(roster.gpus)), whole_s)
    late = late.merged(as_log(changes, first_rows(roster.gpus)))
    memory = FleetMemory(
        settings=settings,
        placement=placement,
        where=where,
        roster=roster,
        recent=framed,
        carry=carry,
        environment=at_known_nodes(raw.environment, roster.gpus, where),
        today=digest.summaries.take(roster.gpus, rows(digest.gpus)),
        finished=day_by_day(finished.take(roster.gpus, rows(finished.gpus))),
        events=all_events.merged(late),
        topology=topology,
        digested_s=whole_s,
        registry=Registry(known, reported(finished), raw.workloads),
        partial_days=frozenset(partial),
        onset_bins=tuple(part.take(rows(finished.gpus)) for part in bins),
    )
    memory.dismiss()
    return memory
