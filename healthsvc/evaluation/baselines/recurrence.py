"""b4: what failed will fail again."""

from dataclasses import dataclass

import numpy as np

from healthsvc.evaluation.baselines.base import Flags, alarms_of
from healthsvc.features.facts import class_events, domain_throttling, newest_s
from healthsvc.fleet import DAY_S, HOUR_S, THROTTLE_DOSE, FleetHistory


@dataclass(frozen=True)
class Recurrence:
    """Any service event of the class within the last 30 days.

    Memory and device_loss by their events. The event log holds no thermal service events: a day with at least the
    throttle dose of one hour (18 minutes) stands for one, unless its domain throttled that day.
    Source: the strongest single predictor of double-bit errors and off-the-bus events on Titan (18,688 GPUs).
    Blind to: every first event.
    """

    span_days: float = 30.0

    @property
    def name(self) -> str:
        return "b4 recurrence within 30 d"

    def alarms(self, history: FleetHistory) -> Flags:
        """See the class."""
        since_s, count = history.now_s - self.span_days * DAY_S, len(history.gpus)
        events = history.events.known_at(history.now_s)
        again = {name: newest_s(class_events(events, name), count) > since_s for name in ("memory", "device_loss")}
        days = history.daily.days
        chosen = (days * DAY_S >= since_s) & (days * DAY_S < history.now_s)
        hot = history.daily.get("thermal_throttle_s")[:, chosen] >= THROTTLE_DOSE * HOUR_S
        return alarms_of(count, thermal=np.any(hot & ~domain_throttling(hot, history.topology), axis=1), **again)
