"""Walks the source's history into the ledger, and remembers the fleet as of a moment."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from healthsvc.config import Settings
from healthsvc.engine.digest import days_to_walk, digest_day
from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.progress import Progress
from healthsvc.engine.recall import recall
from healthsvc.features.cadence import too_fine
from healthsvc.fleet import OnsetBins, Placement, day_name
from healthsvc.store import Ledger
from healthsvc.telemetry.source import RawGrid, Source, SourceError

log = structlog.get_logger()
NO_GPU_CURE = "check prometheus.url and prometheus.selector, and that the GPU exporter is scraped"


def _nothing(*_: object) -> None:
    """For those who do not listen."""


@dataclass
class Historian:
    """on_read hears of every read, on_walk(done, total) of every day; stopping() ends a walk between two days."""

    settings: Settings
    source: Source
    placement: Placement | None
    ledger: Ledger
    progress: Progress
    on_read: Callable[[RawGrid], None] = field(default=_nothing)
    on_walk: Callable[[int, int], None] = field(default=_nothing)
    stopping: Callable[[], bool] = field(default=lambda: False)

    def recall(self, now_s: float) -> FleetMemory:
        """Walk, then remember; once more if a damaged day came to light only as it was remembered.

        Raises SourceError, StoreError.
        """
        self.walk(now_s)
        damaged = len(self.ledger.quarantined())
        memory = recall(self.source, self.ledger, now_s, self.settings, self.placement, self.on_read)
        if len(self.ledger.quarantined()) > damaged:
            self.walk(now_s)
            memory = recall(self.source, self.ledger, now_s, self.settings, self.placement, self.on_read)
        self._check_cadence(memory)
        return memory

    def walk(self, now_s: float, days: int | None = None) -> None:
        """Backwards through the history, a day at a time; what is on disk stays there, so a restart resumes.

        days: how far back; by default as far as training looks.
        """
        span = self.source.span()
        if span is None:
            log.warning("no GPU history found", source=self.source.name, cure=NO_GPU_CURE)
            return
        todo = days_to_walk(self.ledger, now_s, days or self.settings.history.train_days, span[0])
        kept, refused = frozenset(self.ledger.days()), False
        with self.progress.task("reading history", len(todo), "days") as advance:
            for done, day in enumerate(todo):
                if self.stopping():
                    return
                self.on_walk(done, len(todo))
                refused = self._walk_day(day, now_s, kept, refused)
                advance()
        self.on_walk(len(todo), len(todo))

    def _walk_day(self, day: int, now_s: float, kept: frozenset[int], refused: bool) -> bool:
        """Read one day; whether the source has refused one that is in the ledger and was only to be read again.

        Such a day must not keep the service from its work, nor, each with its retries, those behind it.
        """
        if refused and day in kept:
            return True
        try:
            self.digest(day, now_s)
        except SourceError as failure:
            if day not in kept:
                raise
            log.warning("day not read again yet", day=day_name(day), what=failure.what, cure=failure.cure)
            return True
        return refused

    def digest(self, day: int, now_s: float) -> None:
        """Read one finished day into the ledger."""
        step_s, memory_mib = self.settings.cycle.step_s, self.settings.history.backfill_memory_mib
        digest_day(self.source, self.ledger, day, now_s, step_s, memory_mib, self.placement, self.on_read)

    def read_again(self, day: int, memory: FleetMemory) -> None:
        """A finished day once more, for samples that came late; the memory then holds what the ledger holds."""
        self.digest(day, memory.now_s)
        written, events = self.ledger.read(day, day)
        bins = OnsetBins.joined(self.ledger.onset_bins(written.gpus, day, day))
        memory.replace_day(day, written, events, bins)
        memory.partial_days = (memory.partial_days - {day}) | self.ledger.partial_days(day, day)

    def _check_cadence(self, memory: FleetMemory) -> None:
        """Say so when the grid is finer than the scrapes: every gap would look like an absence."""
        interval_s = too_fine(memory.recent)
        if interval_s is not None:
            step_s = self.settings.cycle.step_s
            cure = f"set cycle.step_s to {interval_s:.0f} (a divisor of 600) or scrape more often"
            log.warning("samples come less often than cycle.step_s", interval_s=interval_s, step_s=step_s, cure=cure)
