"""The loops: walk the history, train, score, publish; and what happens when one of them fails."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import structlog

from healthsvc.config import Settings
from healthsvc.engine.alerting import Alerting
from healthsvc.engine.clock import Clock
from healthsvc.engine.historian import NO_GPU_CURE, Historian
from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.partial import RETRIED_DAYS
from healthsvc.engine.progress import Progress
from healthsvc.engine.survey import SurveyKeeper
from healthsvc.engine.training import Training
from healthsvc.fleet import GPU_SIGNALS, HOUR_S, MINUTE_S, Arrays, Incident, Placement, Signal, Snapshot, day_name
from healthsvc.fleet.meaning import REMEMBERED_DAYS
from healthsvc.publish.board import MISSED_CYCLES, Board
from healthsvc.publish.exposition import MetricsPage
from healthsvc.publish.metrics import render_fleet
from healthsvc.publish.self_metrics import SelfMetrics
from healthsvc.store import Journal, Ledger, StoreError
from healthsvc.telemetry.source import RawGrid, Source, SourceError

log = structlog.get_logger()
RETRY_S = 10.0


@dataclass
class Service:
    """One running service. Its thread is the only writer of the board, the page and the state directory."""

    settings: Settings
    source: Source
    placement: Placement | None
    clock: Clock
    training: Training
    ledger: Ledger
    journal: Journal
    alerting: Alerting
    board: Board
    page: MetricsPage
    self_metrics: SelfMetrics
    progress: Progress
    stop: Event = field(default_factory=Event)
    replaying: bool = False
    _historian: Historian = field(init=False)
    _surveyor: SurveyKeeper = field(init=False)
    _doubts: set[str] = field(default_factory=set, init=False)  # what made a read of this cycle incomplete
    _late_days: list[int] = field(default_factory=list, init=False)  # to read again, the last one next
    _late_from_s: float = field(default=-float("inf"), init=False)
    _incidents: tuple[Incident, ...] = field(default=(), init=False)  # of the run before, for the first cycle

    def __post_init__(self) -> None:
        scorer = self.training.scorer
        self._surveyor = SurveyKeeper((*scorer.forecasters, *scorer.domain_forecasters))
        self._historian = Historian(
            self.settings,
            self.source,
            self.placement,
            self.ledger,
            self.progress,
            self._on_read,
            self._on_walk,
            self.stop.is_set,
        )

    def run(self) -> None:
        """Until `stop`; a replay that has ended keeps its last report up until then."""
        now_s = self.clock.first_s()
        self.alerting.resume(now_s)
        self._incidents = self._standing_incidents(now_s)
        memory = self._begin(now_s)
        missed = 0
        while memory is not None and not self.stop.is_set():
            missed = 0 if self._attempt(memory, now_s, missed) else missed + 1
            following_s = self._wait(now_s)
            if following_s is None:
                break
            now_s = following_s
            if now_s - memory.now_s > self.settings.cycle.window_s / 2:
                memory = self._begin(now_s)  # a long outage: today has to be read again
        if self.replaying and not self.stop.is_set():
            log.info("replay finished", at_s=now_s)
            self._hold()

    def _attempt(self, memory: FleetMemory, now_s: float, missed: int) -> bool:
        """One cycle; False if it failed. The last snapshot then stays and says how old it is: nothing is invented."""
        self._doubts.clear()
        try:
            with self._timed("read"):
                memory.advance(self.source, now_s, self._on_read)
            self._maintain(memory)
            self._cycle(memory)
            self._read_late_day(memory)
        except SourceError as failure:
            self.self_metrics.failed("read")
            log.error("cycle missed", missed=missed + 1, where=failure.where, what=failure.what, cure=failure.cure)
            self._miss(str(failure), missed + 1, source_ok=False)
            if missed + 1 >= MISSED_CYCLES:
                self.board.decision = self.alerting.source_is_down(self.source.name, str(failure), memory.now_s)
            return False
        except Exception as failure:
            # Whatever went wrong, a monitoring service must go on and say so; the traceback is for its developers.
            self.self_metrics.failed("cycle")
            log.exception("cycle failed", missed=missed + 1)
            self._miss(f"cycle failed: {failure!r}; the log has the traceback", missed + 1, source_ok=True)
            return False
        return True

    def _miss(self, message: str, missed: int, *, source_ok: bool) -> None:
        reasons = () if missed < MISSED_CYCLES else (f"{missed} cycles missed: {message}",)
        self._status(missed_cycles=missed, source_ok=source_ok, source_message=message, reasons=reasons)
        if missed >= MISSED_CYCLES:
            self.page.drop()

    def train_once(self, now_s: float) -> dict[str, Arrays]:
        """Walk the history, train, put the arrays on the shelf. Raises SourceError."""
        self.training.train(self._historian.recall(now_s))
        return self.training.state

    def score_once(self, now_s: float) -> Snapshot:
        """One report as of `now_s`, trained on what the shelf or the history holds. Raises SourceError."""
        memory = self._historian.recall(now_s)
        if not self.training.load(memory.now_s):
            self.training.train(memory)
        return self.training.scorer.score(self.training.state, memory.history(), None, self.training.as_of_s)

    # -- the stages of a run ------------------------------------------------------------------------------------------

    def _begin(self, now_s: float) -> FleetMemory | None:
        """Walk, recall and train, retrying while the source or the disk refuses or there is nothing to score with;
        None on `stop`."""
        tries = 0
        while not self.stop.is_set():
            tries += 1
            self._beat()
            try:
                memory = self._historian.recall(now_s)
                if self.training.load(memory.now_s) or self.training.attempt(memory) or self.training.state:
                    return memory
                reason = "the first training failed, so there is nothing to score with; the log has the traceback"
                self._status(source_ok=True, source_message="", reasons=(reason,))
            except (SourceError, StoreError) as failure:
                source_ok = isinstance(failure, StoreError)
                self.self_metrics.failed("ledger" if source_ok else "read")
                log.error("cannot begin yet", where=failure.where, what=failure.what, cure=failure.cure)
                self._status(source_ok=source_ok, source_message=str(failure), reasons=(str(failure),))
                if tries >= MISSED_CYCLES and not source_ok:
                    self.board.decision = self.alerting.source_is_down(self.source.name, str(failure), now_s)
            if self.stop.wait(RETRY_S):
                break
        return None

    def _maintain(self, memory: FleetMemory) -> None:
        """Finished days to the ledger; one late day read again; training when it is due."""
        try:
            for day in memory.finish_days(self.ledger):
                log.info("day written", day=day_name(day))
                late = self.ledger.incomplete_days(memory.now_s)
                self._late_days = [each for each in late if day - RETRIED_DAYS <= each < day]
                self.ledger.drop_before(day - REMEMBERED_DAYS)
        except StoreError as failure:
            self.self_metrics.failed("ledger")
            log.error("day not written; it stays in memory and is tried again", error=str(failure))
        if self.training.due(memory.now_s):
            self.training.attempt(memory)

    def _read_late_day(self, memory: FleetMemory) -> None:
        """The newest late day, one a cycle and after its report; if it is refused, the one before it in an hour."""
        if not self._late_days or memory.now_s < self._late_from_s:
            return
        day = self._late_days.pop()
        try:
            with self._timed("late_day"):
                self._historian.read_again(day, memory)
        except (SourceError, StoreError) as failure:
            self.self_metrics.failed("late_day")
            log.warning("late day not read again yet", where=failure.where, what=failure.what, cure=failure.cure)
            self._late_days.insert(0, day)
            self._late_from_s = memory.now_s + HOUR_S
            return
        log.info("late day read again", day=day_name(day))

    def _cycle(self, memory: FleetMemory) -> None:
        """Score, decide, publish."""
        with self._timed("score"):
            learned = self.training
            snapshot = learned.scorer.score(
                learned.state, memory.history(), self.board.snapshot, learned.as_of_s, self._incidents
            )
        with self._timed("decide"):
            decision = self.alerting.decide(snapshot.report)
        with self._timed("publish"):
            fleet = render_fleet(snapshot, self.settings.metrics.detail)
            self.board.snapshot, self.board.decision = snapshot, decision
            self.board.survey = self._surveyor.survey(memory.recent, memory.environment)
            self.page.publish(fleet, time.monotonic() + MISSED_CYCLES * self._cycle_wall_s())
        self._keep_incidents(snapshot)
        self._measure(memory)
        self._status(
            ready=bool(memory.gpus),
            last_cycle_s=time.monotonic(),
            missed_cycles=0,
            source_ok=True,
            source_message=self._what_is_missing(memory),
            reasons=() if memory.gpus else (f"{self.source.name} has no GPU in its history; {NO_GPU_CURE}",),
            replay_s=memory.now_s if self.replaying else None,
        )

    def _what_is_missing(self, memory: FleetMemory) -> str:
        """What this cycle's reads lack by the source's own word, and which days are not learned from; "" if nothing."""
        lacks = [f"incomplete: {'; '.join(sorted(self._doubts))}"] if self._doubts else []
        if memory.partial_days:
            days = ", ".join(day_name(day) for day in sorted(memory.partial_days)[-3:])
            lacks.append(f"{len(memory.partial_days)} incomplete days are not learned from, the newest {days}")
        return ". ".join(lacks)

    # -- small things --------------------------------------------------------------------------------------

    def _cycle_wall_s(self) -> float:
        """Wall seconds between two cycles, for the page to tell how many are missed: a step, but a minute at least, so
        that a short step or a fast replay does not empty the page while one cycle takes long."""
        return max(self.settings.cycle.step_s, MINUTE_S)

    def _wait(self, now_s: float) -> float | None:
        """The next step's time, beating meanwhile."""
        self._beat()
        following_s = self.clock.next_s(now_s, self.stop)
        self._beat()
        return following_s

    def _hold(self) -> None:
        """A finished replay: its last report stays up, its alerts are kept alive."""
        if self.board.snapshot is not None:
            self.page.publish(render_fleet(self.board.snapshot, self.settings.metrics.detail), float("inf"))
        while not self.stop.wait(5.0):
            self._status(last_cycle_s=time.monotonic())
            self.alerting.resend()

    def _standing_incidents(self, now_s: float) -> tuple[Incident, ...]:
        """What the run before had opened and not closed; none of a later data time, which a replay does not know."""
        try:
            return self.journal.standing(now_s)
        except StoreError as failure:
            self.self_metrics.failed("journal")
            log.error("incidents not restored", error=str(failure))
            return ()

    def _keep_incidents(self, snapshot: Snapshot) -> None:
        try:
            self.journal.save_incidents(snapshot.report.incidents)
        except StoreError as failure:
            self.self_metrics.failed("journal")
            log.error("incidents not saved", error=str(failure))

    def _measure(self, memory: FleetMemory) -> None:
        self.self_metrics.report_made(memory.now_s)
        survey = self.board.survey
        reporting = {facts.signal: facts.count for facts in survey.signals} if survey else {}
        for signal in GPU_SIGNALS:
            if signal is not Signal.DRIVER_RELOADS:  # derived, not read
                ratio = reporting.get(signal, 0) / max(len(memory.gpus), 1)
                self.self_metrics.signal_missing(signal.value, 1.0 - ratio)

    def _on_walk(self, done: int, total: int) -> None:
        self._status(backfill_days=(done, total) if done < total else None)

    def _on_read(self, raw: RawGrid) -> None:
        self._surveyor.hear(raw)
        self.self_metrics.samples_read(raw.samples, len(raw.warnings))
        for (_, reason), count in raw.rejected.items():
            self.self_metrics.samples_rejected(reason, count)
        if raw.incomplete:
            self.self_metrics.read_was_incomplete()
            self._doubts.update(raw.warnings)
        for warning in raw.warnings:
            log.warning("source warning", source=self.source.name, warning=warning)
        self._beat()

    def _status(self, **changes: Any) -> None:
        self.board.status = replace(self.board.status, heartbeat_s=time.monotonic(), **changes)

    def _beat(self) -> None:
        """Alive, whatever takes long; and so are the alerts that stand, as long as they can be vouched for."""
        self._status()
        decision = self.alerting.beat()
        if decision is not None:
            self.board.decision = decision

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.self_metrics.stage_took(stage, time.monotonic() - began_s)


def history_end_s(source: Source, now_s: float) -> float:
    """The newest moment that the source can answer for; `now_s` where it does not say."""
    span = source.span()
    return now_s if span is None else min(now_s, span[1])
