"""From a risk report to the alerts that should stand, as pure stages: no I/O and no clock."""

from healthsvc.alerts.alert import Alert, Held, Rank, Resolution
from healthsvc.alerts.decide import STAGES, Decision, decide
from healthsvc.alerts.policy import AlertPolicy
from healthsvc.alerts.silence import source_down, take_over
from healthsvc.alerts.state import AlertState, Case

__all__ = [
    "STAGES",
    "Alert",
    "AlertPolicy",
    "AlertState",
    "Case",
    "Decision",
    "Held",
    "Rank",
    "Resolution",
    "decide",
    "source_down",
    "take_over",
]
