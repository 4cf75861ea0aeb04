"""The memory as of a moment: finished days from the ledger, today and the recent window from the source."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.config import Settings
from healthsvc.engine.digest import chunk_seconds, digest_span, newest_sample_s
from healthsvc.engine.joins import day_by_day
from healthsvc.engine.memory import DayReader, FleetMemory, OnRead
from healthsvc.engine.roster import Roster
from healthsvc.features.events import detect_events
from healthsvc.features.windows import WINDOW_S
from healthsvc.fleet import DAY_S, GpuId, Placement, build_topology
from healthsvc.telemetry.grid import CounterCarry, frame, uniform_times
from healthsvc.telemetry.source import Source


def recall(
    source: Source, ledger: DayReader, now_s: float, settings: Settings, placement: Placement | None, on_read: OnRead
) -> FleetMemory:
    """Memory as of `now_s`: the ledger's finished days, today and the recent window from the source.

    Raises SourceError if the source does not answer.
    """
    step_s, today = settings.cycle.step_s, int(now_s // DAY_S)
    finished, events = ledger.read(today - settings.history.train_days, today - 1)
    whole_s = np.floor(now_s / WINDOW_S) * WINDOW_S
    chunk_s = chunk_seconds(max(len(finished.gpus), 64), step_s, settings.history.backfill_memory_mib)
    digest = digest_span(source, today * DAY_S, float(whole_s), step_s, chunk_s, placement, on_read)

    start_s = now_s - settings.cycle.window_s
    lead = source.read(uniform_times(start_s - 600.0, start_s, step_s))
    _, carry = frame(lead, CounterCarry())
    raw = source.read(uniform_times(start_s, now_s, step_s))
    on_read(raw)
    recent, carry = frame(raw, carry)

    exposed = finished.exposure_h > 0
    newest_day = np.where(
        exposed.any(axis=1), finished.days[exposed.shape[1] - 1 - np.argmax(exposed[:, ::-1], axis=1)], -np.inf
    )
    roster = Roster(finished.gpus, (newest_day + 1) * DAY_S)
    roster = roster.seen(digest.gpus, digest.last_seen_s).seen(recent.gpus, newest_sample_s(recent))
    history = settings.history
    roster = roster.take(np.flatnonzero(roster.staying(now_s, history.departed_after_s, history.lost_for_s)))

    def rows(gpus: tuple[GpuId, ...]) -> NDArray[np.intp]:
        known = {gpu.device_id: row for row, gpu in enumerate(gpus)}
        return np.fromiter((known.get(gpu.device_id, -1) for gpu in roster.gpus), np.intp, len(roster.gpus))

    all_events = events.take(rows(finished.gpus)).merged(digest.events.take(rows(digest.gpus)))
    topology = build_topology(roster.gpus, placement)
    framed = recent.take(roster.gpus, rows(recent.gpus))
    late = detect_events(framed, topology.group("node", len(roster.gpus)), float(whole_s))
    return FleetMemory(
        settings=settings,
        placement=placement,
        roster=roster,
        recent=framed,
        carry=carry,
        environment=dict(raw.environment),
        today=digest.summaries.take(roster.gpus, rows(digest.gpus)),
        finished=day_by_day(finished.take(roster.gpus, rows(finished.gpus))),
        events=all_events.merged(late),
        topology=topology,
        digested_s=float(whole_s),
    )
