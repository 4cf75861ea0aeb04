"""The course of a fault: whom it hits, from when to when, how badly. What a kind's function is given to act on."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictInt, StrictStr

from healthsvc.simulator.series import Array
from healthsvc.simulator.spec import Spec


class Course(Spec):
    """Days count from the start of the run; a kind's own parameters are in `severity`."""

    kind: str
    target: StrictInt | StrictStr = Field(description="GPU row, name of a node, loop or feed, or fleet")
    start_day: float = Field(ge=0, description="when it strikes, in days after the start of the run")
    end_day: float | None = Field(None, description="repair; none: it lasts")
    severity: Mapping[str, float] = Field(default_factory=dict)

    @property
    def first_sign_day(self) -> float:
        """From when on the fault exists and may be noticed: hours before it strikes, if it has a precursor."""
        return self.start_day - self.severity.get("precursor_hours", 0.0) / 24.0

    @property
    def over_day(self) -> float:
        """When it is over: its repair, or the end of what takes `hours`; inf if it lasts or comes back."""
        if self.severity.get("again_after_days", 0.0) > 0:
            return np.inf
        if self.end_day is not None:
            return self.end_day
        return self.start_day + self.severity["hours"] / 24.0 if "hours" in self.severity else np.inf

    def active(self, days: Array) -> NDArray[np.bool_]:
        """Whether the fault is there, bool[time]."""
        return (days >= self.start_day) & (days < self.over_day)

    def age_days(self, days: Array) -> Array:
        """Days since the fault began [time]; 0 before it and after its repair."""
        return np.where(self.active(days), days - self.start_day, 0.0)

    def grown(self, days: Array, ramp_days: float) -> Array:
        """How much of its full strength the fault has reached [time], 0-1: a straight ramp, at once if it is 0."""
        rising = np.clip(self.age_days(days) / max(ramp_days, 1e-9), 0.0, 1.0)
        return np.where(self.active(days), rising if ramp_days > 0 else 1.0, 0.0)
