"""What the forecasters have learned: taken from the shelf where it still suits them, else learned from the history."""

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import structlog

from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.scoring import Scorer
from healthsvc.fleet import HOUR_S, Arrays, day_name
from healthsvc.publish.self_metrics import SelfMetrics
from healthsvc.store import Shelf, StoreError

log = structlog.get_logger()
AGAIN_AFTER_S = HOUR_S  # data time after a training that failed: the history has hardly changed before


@dataclass
class Training:
    """state: {forecaster: arrays}, as of `as_of_s`; empty and None until the first `load` or `train` that succeeds."""

    scorer: Scorer
    shelf: Shelf
    every_s: float
    self_metrics: SelfMetrics
    state: dict[str, Arrays] = field(default_factory=dict, init=False)
    as_of_s: float | None = field(default=None, init=False)
    _not_before_s: float = field(default=-float("inf"), init=False)

    def load(self, now_s: float) -> bool:
        """Arrays of an earlier run, if all are there and made by the forecasters as they are; True if also fresh.

        Raises StoreError.
        """
        found: dict[str, Arrays] = {}
        oldest_s = now_s
        for name, spec in self._specs().items():
            kept = self.shelf.load_latest(name, not_after_s=now_s)
            if kept is None or kept[2] != spec:
                return False
            found[name], oldest_s = kept[0], min(oldest_s, kept[1])
        self.state, self.as_of_s = found, oldest_s
        return oldest_s > now_s - self.every_s

    def due(self, now_s: float) -> bool:
        """Whether it is time to learn anew; after a failure not at once."""
        return now_s >= self._not_before_s and (self.as_of_s is None or now_s - self.as_of_s >= self.every_s)

    def attempt(self, memory: FleetMemory) -> bool:
        """Train; False if a forecaster fails at it. What was learned before then stays in service."""
        try:
            self.train(memory)
        except Exception:
            # A history that one forecaster cannot digest must not end the judgement of the fleet.
            self.self_metrics.failed("train")
            log.exception("training failed", trained_at_s=self.as_of_s)
            self._not_before_s = memory.now_s + AGAIN_AFTER_S
            return False
        return True

    def train(self, memory: FleetMemory) -> None:
        """Fit every forecaster and put the arrays on the shelf; a disk that refuses costs only the next start.

        Of an empty fleet nothing is learned: no shelf keeps it, and whoever appears is learned in the next cycle. Days
        of which the source said that something was missing are left out, and that is said.
        """
        began_s = time.monotonic()
        if memory.partial_days:
            left_out = [day_name(day) for day in sorted(memory.partial_days)]
            cure = "mend what the source warns of; the days are read again at the next start, recent ones every night"
            log.warning("days left out of training: the source gave only a part of them", days=left_out, cure=cure)
        self.state = self.scorer.train(memory.trusted())
        if not memory.gpus:
            return
        self.as_of_s = memory.now_s
        self.self_metrics.stage_took("train", time.monotonic() - began_s)
        for name, spec in self._specs().items():
            try:
                self.shelf.save(name, self.state[name], memory.now_s, spec)
            except StoreError as failure:
                self.self_metrics.failed("shelf")
                log.error("trained arrays not saved", error=str(failure))
        seen = (memory.finished.exposure_h > 0).any(axis=0)  # with a sample in them
        partial = seen & np.isin(memory.finished.days, list(memory.partial_days))
        self.self_metrics.training_left_out(float(partial.sum()) / max(int(seen.sum()), 1))
        days = int((seen & ~partial).sum())
        log.info("trained", gpus=len(memory.gpus), days=days, events=len(memory.events))

    def _specs(self) -> dict[str, Any]:
        """{forecaster: its hyper-parameters, as the shelf gives them back}."""
        every: tuple[Any, ...] = (*self.scorer.forecasters, *self.scorer.domain_forecasters)
        return {forecaster.name: json.loads(json.dumps(asdict(forecaster))) for forecaster in every}
