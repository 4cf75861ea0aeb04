"""What the running service remembers of the fleet: the recent window, today's summaries, the ledger, the events.

Mutable, and touched by the engine's own thread only; `history()` gives the immutable view that everything else reads.
Every part has the roster's GPUs in the roster's rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.config import Settings
from healthsvc.engine.days import DayWriter
from healthsvc.engine.departed import Departed, departing, whole_day
from healthsvc.engine.digest import inverse, newest_sample_s, reported, rows_in, with_gone
from healthsvc.engine.identities import Registry
from healthsvc.engine.joins import day_by_day, day_of, days_since, joined_days
from healthsvc.engine.partial import partial_days, without_days
from healthsvc.engine.placing import at_known_nodes, placed
from healthsvc.engine.roster import Roster
from healthsvc.engine.trail import Trail
from healthsvc.features.daily import daily_row
from healthsvc.features.events import LEAD_IN_S, ONSET_BIN_S, begun_in, detect_events
from healthsvc.features.facts import remembered
from healthsvc.features.identity_events import as_log
from healthsvc.features.onset_bins import bins_of_day
from healthsvc.features.windows import WINDOW_S, Summaries, flow_by_gpu, inlet_by_gpu, summarise
from healthsvc.fleet import (
    DAY_S,
    DailyLedger,
    EventLog,
    FleetHistory,
    FleetWindow,
    GpuId,
    OnsetBins,
    Placement,
    PlaceSeries,
    Signal,
    Topology,
    build_topology,
    first_rows,
    join_places,
)
from healthsvc.fleet.meaning import REMEMBERED_DAYS
from healthsvc.telemetry.framing.grid import CounterCarry, frame, uniform_times
from healthsvc.telemetry.source import RawGrid, Source

OnRead = Callable[[RawGrid], None]
REFRESH_S = 3600.0  # how often today's unfinished row is computed again


@dataclass
class FleetMemory:
    """See the module. `now_s`: data time of the newest column; `digested_s`: end of the newest ten-minute summary.

    What is derived from the columns says how far it has come (`digested_s`, `events_until_s`): a step that breaks off
    half-way is caught up with at the next one. registry: who the GPUs are, those that left included;
    placement: topology.csv, and where: with what the source's labels told beyond that;
    partial_days: those of which the source has said that something was missing; onset_bins: one part a finished day
    that has any, in order.
    """

    settings: Settings
    placement: Placement | None
    roster: Roster
    recent: FleetWindow
    carry: CounterCarry
    environment: dict[Signal, PlaceSeries]
    today: Summaries
    finished: DailyLedger
    events: EventLog
    topology: Topology
    digested_s: float
    where: Placement | None = None
    registry: Registry = field(default_factory=Registry)
    partial_days: frozenset[int] = frozenset()
    onset_bins: tuple[OnsetBins, ...] = ()
    events_until_s: float = field(init=False)
    left: Departed | None = field(default=None, init=False)
    _trail: Trail | None = field(default=None, init=False, repr=False)
    _daily: DailyLedger | None = field(default=None, init=False)
    _row_of: Summaries | None = field(default=None, init=False, repr=False)
    _refreshed_s: float = field(default=-np.inf, init=False)

    def __post_init__(self) -> None:
        self.events_until_s = self.now_s
        self.where = self.where or self.placement

    @property
    def now_s(self) -> float:
        return self.recent.now_s

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        return self.roster.gpus

    def history(self) -> FleetHistory:
        """The immutable view as of now; today's row is renewed every hour, and after new events."""
        due = self.now_s - self._refreshed_s >= REFRESH_S
        # Between two ten-minute summaries the row would come out the same.
        if self._daily is None or (due and self._row_of is not self.today):
            self._daily, self._row_of = self._with_today(), self.today
        if due:
            self._refreshed_s = self.now_s
        return FleetHistory(
            self.recent,
            self._daily,
            self.events,
            self.topology,
            dict(self.environment),
            self.registry.workloads,
            self.onset_bins,
        )

    def trusted(self) -> FleetHistory:
        """The history without its partial days: what is learned from."""
        return without_days(self.history(), self.partial_days)

    def _with_today(self) -> DailyLedger:
        if not self.today.columns or not len(self.today.ends_s):
            return self.finished
        day = int((self.today.ends_s[-1] - 1) // DAY_S)
        row = daily_row(self.today, self.topology, self.settings.cycle.step_s, day, unfinished=True)
        return joined_days(self.finished, row)

    def advance(self, source: Source, now_s: float, on_read: OnRead) -> None:
        """Read what has come since the last column, up to `now_s`. Raises SourceError; nothing changes then."""
        step_s = self.settings.cycle.step_s
        times = uniform_times(self.now_s, now_s, step_s)
        if not len(times):
            return
        raw = source.read(times, step_s=step_s)
        on_read(raw)
        self.partial_days |= partial_days(raw)
        window, carry = frame(raw, self.carry)
        changes, registry = self.registry.after(raw, window)
        self._admit(window)
        self._place(source)
        window = window.take(self.gpus, self._rows_in(raw.gpus))
        keep = round(self.settings.cycle.window_s / step_s)
        if self._trail is None or self._trail.window is not self.recent:
            self._trail = Trail(self.recent, keep)
        surroundings = at_known_nodes(raw.environment, self.gpus, self.where)
        joined = join_places([(self.environment, len(self.recent.times_s)), (surroundings, len(times))])
        environment = {s: replace(series, values=series.values[:, -keep:]) for s, series in joined.items()}
        # Last and together: a counter that is further on than its column would look reset at the next read.
        self.recent, self.carry, self.environment = self._trail.append(window), carry, environment
        self.registry = registry
        if changes:
            self.events, self._refreshed_s = self.events.merged(as_log(changes, first_rows(self.gpus))), -np.inf
        self.dismiss()
        self._note_events()
        self._summarise()

    def _note_events(self) -> None:
        """What has begun since the last look."""
        since_s, step_s = self.events_until_s, self.recent.step_s
        lead = round(LEAD_IN_S / step_s) + round((self.now_s - since_s) / step_s)
        node = self.topology.group("node", len(self.gpus))
        # The bin that was not full yet is looked at again: an onset shows only once there is enough of it.
        found = self.events.merged(detect_events(self.recent.columns(slice(-lead, None)), node, since_s - ONSET_BIN_S))
        if len(found) > len(self.events):
            self._refreshed_s = -np.inf
        self.events, self.events_until_s = found, self.now_s

    def _rows_in(self, gpus: tuple[GpuId, ...]) -> NDArray[np.intp]:
        """Row in `gpus` of each GPU of the roster, -1 where it is not in it."""
        return inverse(self.roster.rows_of(gpus), len(self.gpus))

    def _admit(self, window: FleetWindow) -> None:
        """Let the window's GPUs join, with their newest labels."""
        before = self.roster
        self.roster = before.seen(window.gpus, newest_sample_s(window))
        if self.roster.gpus != before.gpus:
            old = np.arange(len(self.roster.gpus), dtype=np.intp)
            old[len(before.gpus) :] = -1
            self._renumber(old)

    def _place(self, source: Source) -> None:
        """Where everybody stands, if the source has learned more of it."""
        now = placed(self.placement, source)
        if now is not self.where and now != self.where:
            self.where, self._daily = now, None
            self.topology = build_topology(self.gpus, now)

    def dismiss(self) -> None:
        """Let departed and swapped GPUs leave; what they did on a day that is not written yet is kept apart."""
        history = self.settings.history
        keep = self.roster.staying(self.now_s, history.departed_after_s, history.lost_for_s)
        if keep.all():
            return
        gone = departing(
            np.flatnonzero(~keep),
            self.today,
            self.events,
            self.recent,
            self.environment,
            self.topology,
            self.digested_s,
        )
        self.left = gone if self.left is None else self.left if gone is None else self.left.with_more(gone)
        rows = np.flatnonzero(keep)
        self.roster = self.roster.take(rows)
        self._renumber(rows)

    def _renumber(self, old: NDArray[np.intp]) -> None:
        """Every part in the roster's rows; `old` gives the previous row of each, -1 for a newcomer."""
        gpus = self.roster.gpus
        self.recent = self.recent.take(gpus, old)
        self.today = self.today.take(gpus, old)
        self.finished = day_by_day(self.finished.take(gpus, old))
        self.events = self.events.take(old)
        self.onset_bins = _with_any(part.take(old) for part in self.onset_bins)
        self.topology = build_topology(gpus, self.where)
        self._daily = None

    def _summarise(self) -> None:
        """Add the ten-minute windows that have become whole."""
        whole_s = float(np.floor(self.now_s / WINDOW_S) * WINDOW_S)
        if whole_s <= self.digested_s:
            return
        start_s = max(self.digested_s, float(self.recent.times_s[0]) - self.recent.step_s)
        # One window more than is new: energy over a missed sample at the seam has its beginning there.
        first = int(np.searchsorted(self.recent.times_s, start_s - WINDOW_S, "right"))
        window = self.recent.columns(slice(first, None))
        columns = len(window.times_s)
        environment = {s: replace(p, values=p.values[:, -columns:]) for s, p in self.environment.items()}
        inlet = inlet_by_gpu(environment, self.topology, self.gpus, columns)
        fresh = summarise(window, inlet, flow_by_gpu(environment, self.topology, self.gpus, columns))
        self.today = self.today.joined(fresh.within(start_s, np.inf))
        self.digested_s = whole_s

    def finish_days(self, ledger: DayWriter) -> list[int]:
        """Write every day that has ended to the ledger, and begin the next. Raises StoreError; the day then stays in
        memory and is written at the next call."""
        done: list[int] = []
        current = int(self.now_s // DAY_S)
        while len(self.today.ends_s) and (day := int((self.today.ends_s[0] - 1) // DAY_S)) < current:
            start_s, end_s = day * DAY_S, (day + 1) * DAY_S
            whole, events = whole_day(self.left, self.today, self.events, start_s, end_s)
            topology = self.topology if whole.gpus is self.today.gpus else build_topology(whole.gpus, self.where)
            row = daily_row(whole, topology, self.settings.cycle.step_s, day, unfinished=False)
            bins, complete = bins_of_day(whole, row, topology), day not in self.partial_days
            written = with_gone(row, events, self.registry.yesterday)
            ledger.write_day(day, *written, self.now_s, complete=complete, bins=bins)
            self._keep_day(row, bins)
            since = np.flatnonzero(self.roster.last_seen_s > end_s)
            self.registry = self.registry.after_day(reported(row), (self.gpus[int(i)].device_id for i in since))
            self.today = self.today.within(end_s, np.inf)
            self.left = None if self.left is None else self.left.after(end_s)
            done.append(day)
        if done:
            # As far back as a restart would read: what is older would never leave a service that never stops.
            first = current - self.settings.history.train_days
            past = remembered(begun_in(self.events, (current - REMEMBERED_DAYS) * DAY_S, first * DAY_S))
            self.events = past.merged(begun_in(self.events, first * DAY_S))
            self.partial_days = frozenset(day for day in self.partial_days if day >= first)
        return done

    def replace_day(self, day: int, written: DailyLedger, events: EventLog, bins: OnsetBins) -> None:
        """A finished day as it stands in the ledger now: late samples have been read into it since."""
        if not len(written.gpus):
            return
        self._keep_day(written, bins)
        start_s, end_s = day * DAY_S, (day + 1) * DAY_S
        before, after = begun_in(self.events, -np.inf, start_s), begun_in(self.events, end_s)
        told = events.take(rows_in(written.gpus, self.gpus))
        self.events = before.merged(told).merged(after)

    def _keep_day(self, row: DailyLedger, bins: OnsetBins) -> None:
        """Among the finished ones, as far back as training looks."""
        if row.gpus is not self.gpus:
            rows = rows_in(row.gpus, self.gpus)
            row, bins = row.take(self.gpus, rows), bins.take(rows)
        first, day = int(self.now_s // DAY_S) - self.settings.history.train_days, int(row.days[0])
        self.finished, self._daily = days_since(joined_days(self.finished, row), first), None
        others = [part for part in self.onset_bins if first <= day_of(part) != day]
        self.onset_bins = tuple(sorted(_with_any([*others, bins]), key=day_of))


def _with_any(parts: Iterable[OnsetBins]) -> tuple[OnsetBins, ...]:
    return tuple(part for part in parts if len(part))
