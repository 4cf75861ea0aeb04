"""Labels from the telemetry alone: what a site without an incident log has befallen, by the definitions of the classes.

Every label has source "auto" and leaves the precursor open. They are as good as the telemetry: blind to what the
exporter hides (an XID that repeats, work lost without a trace), to thermal shutdowns, and to which GPU of a broken
link was the first; and an episode whose reset nobody reported ends by rule, after seven days.
"""

from healthsvc.evaluation.auto_labels.domains import power_brake_labels, throttling_labels
from healthsvc.evaluation.auto_labels.dose import HourlyDose
from healthsvc.evaluation.auto_labels.gpus import device_loss_labels, memory_labels, thermal_labels
from healthsvc.evaluation.labels import Label
from healthsvc.fleet import FleetHistory

__all__ = ["HourlyDose", "auto_labels"]


def auto_labels(history: FleetHistory, dose: HourlyDose, until_s: float) -> tuple[Label, ...]:
    """All labels of what began by `until_s`, in order of start; nothing later is looked at.

    history: events, topology, daily ledger and recent window of every GPU that is to be labelled. dose: the throttling
    gathered over the same time; hours that end after `until_s` do not count. Service events of one GPU and class, and
    of one domain, that lie within a day of each other are one episode: a T2 row, a T1 row if it came to that, or both
    if the T2 came first.
    """
    heat = dose.matrix(history.gpus, until_s)
    labels = [
        *thermal_labels(heat, history.topology, until_s),
        *memory_labels(history, until_s),
        *device_loss_labels(history, until_s),
        *throttling_labels(heat, history.topology, until_s),
        *power_brake_labels(history, until_s),
    ]
    return tuple(sorted(labels, key=lambda label: (label.start_s, label.scope, label.failure_class, label.grade)))
