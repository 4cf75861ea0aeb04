"""The only clocks of the service: live, and a replay in which data time runs from a given moment at a given speed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

import numpy as np


class Clock(Protocol):
    """Data time, in whole steps."""

    def first_s(self) -> float:
        """The step to begin with."""
        ...

    def next_s(self, after_s: float, stop: Event) -> float | None:
        """Wait for the next step after `after_s` and give it; None when there is no more, or on `stop`."""
        ...


@dataclass(frozen=True)
class LiveClock:
    """Wall time, `delay_s` behind, so that late samples are in. A slow cycle skips to the newest step."""

    step_s: float
    delay_s: float

    def _due_s(self) -> float:
        return float(np.floor((time.time() - self.delay_s) / self.step_s) * self.step_s)

    def first_s(self) -> float:
        return self._due_s()

    def next_s(self, after_s: float, stop: Event) -> float | None:
        wait_s = after_s + self.step_s + self.delay_s - time.time()
        if stop.wait(max(wait_s, 0.0)):
            return None
        return max(self._due_s(), after_s + self.step_s)


@dataclass
class ReplayClock:
    """From `from_s` on, one step at a time and none skipped, `speed` times as fast as the wall clock at most.

    until_s: asked at each step for the end of what was recorded, until it is known; None: not known, or there is none.
    """

    from_s: float
    speed: float
    step_s: float
    until_s: Callable[[], float | None] = lambda: None
    _ends_s: float | None = field(default=None, init=False)
    _began_s: float = field(default=0.0, init=False)

    def first_s(self) -> float:
        self._began_s = time.monotonic()
        return float(np.floor(self.from_s / self.step_s) * self.step_s)

    def next_s(self, after_s: float, stop: Event) -> float | None:
        following_s = after_s + self.step_s
        if self._ends_s is None:
            self._ends_s = self.until_s()
        if self._ends_s is not None and following_s > self._ends_s:
            return None
        due_s = self._began_s + (following_s - self.from_s) / self.speed
        return None if stop.wait(max(due_s - time.monotonic(), 0.0)) else following_s
