"""When an alert is due, how long it is held, when it clears and how often it may come back; all in data time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from healthsvc.fleet import CLASSES, DAY_S, HOUR_S, MINUTE_S

DOMAIN = "domain"
UNKNOWN = "unknown"  # per host
WIDE_UNKNOWN = "wide_unknown"  # one for many hosts
FLOOD = "flood"


def _every(value: float) -> Mapping[str, float]:
    return MappingProxyType(dict.fromkeys(CLASSES, value))


@dataclass(frozen=True)
class AlertPolicy:
    """failure: P(grade, 7 d) per class; degrading_p: change_p per class. From which P(T2, 30 d) on a class is at watch,
    the report says.

    The thresholds here are for tests: the service is given those of its priors, or trained ones. The methods tell what
    holds for a group: a class, or `domain`, `unknown`, `wide_unknown`, `flood`.
    """

    failure: Mapping[str, float] = field(default_factory=lambda: _every(0.1))
    degrading_p: Mapping[str, float] = field(default_factory=lambda: _every(1e-4))
    cycle_s: float = MINUTE_S
    trend_hold_s: float = 3 * HOUR_S  # thermal and memory move slowly: one warm afternoon is no trend
    hold_cycles: int = 2  # device_loss and domains
    unknown_hold_s: float = 15 * MINUTE_S
    warm_up_s: float = 15 * MINUTE_S
    class_clear_s: float = 6 * HOUR_S
    domain_clear_s: float = 30 * MINUTE_S  # of an incident that is missing; a cleared one has been calm for as long
    unknown_clear_s: float = 0.0  # one sample proves that telemetry is back
    class_cooldown_s: float = 7 * DAY_S
    silence_s: float = 6 * HOUR_S  # an alert without news is kept this long: the only place that says so
    flood_window_s: float = 10 * MINUTE_S
    flood_least: int = 10
    flood_share: float = 0.01
    unknown_host_share: float = 0.01
    clear_ratio: float = 0.5  # of the threshold, so that a value beside it does not flap

    def hold_s(self, group: str) -> float:
        """How long a condition that is no fact must last. What wide_unknown is made of has waited already."""
        if group in ("thermal", "memory"):
            return self.trend_hold_s
        if group in ("device_loss", DOMAIN):
            return self.hold_cycles * self.cycle_s
        return self.unknown_hold_s if group == UNKNOWN else 0.0

    def clear_after_s(self, group: str) -> float:
        """How long a condition must be calm before its alert ends; of a flood, one more window."""
        if group in CLASSES:
            return self.class_clear_s
        if group in (UNKNOWN, WIDE_UNKNOWN):
            return self.unknown_clear_s
        return self.domain_clear_s if group == DOMAIN else self.flood_window_s

    def cooldown_s(self, group: str) -> float:
        """How long after its end a class stays quiet at the same or a lower rank; 0 for all other groups."""
        return self.class_cooldown_s if group in CLASSES else 0.0

    def flood_limit(self, gpus: int) -> int:
        """Subjects that may be due for the first time in one flood window, and folded ones that may follow in one."""
        return max(self.flood_least, int(self.flood_share * gpus))

    def unknown_hosts_limit(self, hosts: int) -> int:
        """Unknown hosts that still get an alert each."""
        return max(self.flood_least, int(self.unknown_host_share * hosts))
