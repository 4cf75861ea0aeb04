"""Alerts about our own blindness: a source that does not answer, and what took over when it stayed away."""

from dataclasses import replace

from healthsvc.alerts.alert import Alert, Rank, Resolution
from healthsvc.alerts.decide import Decision
from healthsvc.alerts.policy import WIDE_UNKNOWN
from healthsvc.alerts.propose import WIDE
from healthsvc.alerts.state import NEVER, AlertState, Case
from healthsvc.alerts.words import subject_name, wide_unknown_alert


def source_down(source: str, reason: str, since_s: float) -> Alert:
    """One alert about one source; the GPUs behind it get none while their last alerts are resent."""
    labels = {"alertname": "HealthsvcSourceDown", "source": source, "severity": "warning"}
    annotations = {
        "summary": f"{source} gives no telemetry, so no GPU is being judged.",
        "description": reason,
        "action": "Bring the source back; the description has its last answer, and `healthsvc doctor` asks again.",
    }
    return Alert(labels, annotations, since_s)


def take_over(state: AlertState, now_s: float, source: str) -> Decision:
    """After too many hours without a cycle: every standing alert ends, and one GpuTelemetryUnknown names them.

    The ended cases are remembered: the first cycle with data raises again, without hold, what is still true. Calling
    it again changes nothing.
    """
    cases, resolved = dict(state.cases), []
    for subject, case in state.cases.items():
        if case.firing is not None and case.alert and subject != WIDE:
            resolved.append(case.alert.ended(Resolution.TAKEN_OVER, "no data; see GpuTelemetryUnknown"))
            cases[subject] = replace(case, firing=None, calm_since_s=None, taken_over=True)
    wide = cases.get(WIDE)
    if wide is None or wide.firing is None or resolved:
        names = [subject_name(alert) for alert in resolved]
        raised_s = wide.alert.raised_s if wide and wide.alert else now_s
        alert = wide_unknown_alert(f"because {source} gives no telemetry", [], names, Rank.DEGRADING, raised_s)
        cases[WIDE] = Case(WIDE, WIDE_UNKNOWN, "", "", NEVER, Rank.DEGRADING, alert, informed_s=now_s)
    after = replace(state, cases=cases)
    return Decision(after, after.firing(), tuple(resolved))
