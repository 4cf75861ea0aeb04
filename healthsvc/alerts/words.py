"""What alerts say: labels that identify, annotations that explain. Words only; nothing is decided here."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from healthsvc.alerts.alert import Alert, Rank
from healthsvc.fleet import DAY_S, GRADES, HORIZON_NAMES, Incident, RiskReport
from healthsvc.guidance.incidents import incident_action, incident_summary

LISTED = 20  # names in one annotation; the rest is counted
EVIDENCE_LISTED = 6

ALERTNAMES = {
    Rank.DEGRADING: ("GpuDegrading", "", "info"),
    Rank.FAILURE: ("GpuFailurePredicted", "T2", "warning"),
    Rank.LOST: ("GpuFailurePredicted", "T2", "critical"),
    Rank.TERMINAL: ("GpuFailurePredicted", "T1", "critical"),
}


def listing(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    kept = sorted(names)
    rest = f" and {len(kept) - LISTED} more" if len(kept) > LISTED else ""
    return ", ".join(kept[:LISTED]) + rest


def duration(seconds: float) -> str:
    """3 significant digits in days, hours or minutes: for people, not for parsing."""
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / DAY_S:.3g} d" if seconds >= 2 * DAY_S else f"{seconds / 3600:.3g} h"


def gpu_alert(report: RiskReport, row: int, column: int, rank: Rank, raised_s: float) -> Alert:
    """The alert of one GPU and class at one rank."""
    gpu, name = report.gpus[row], report.classes[column]
    alertname, grade, severity = ALERTNAMES[rank]
    labels = {
        "alertname": alertname,
        "UUID": gpu.device_id,
        "gpu": gpu.index,
        "hostname": gpu.hostname,
        "class": name,
        "grade": grade,
        "severity": severity,
    }
    annotations = {
        "summary": _summary(report, row, column, rank),
        "description": _fact(report, row, column, rank) or _probabilities(report, row, column, grade or GRADES[0]),
        "time_to_limit": _time_to_limit(report.time_to_limit_s[row, column]),
        "evidence": _evidence(report, row, column),
        "action": report.actions.get(row, ""),
    }
    return Alert(labels, annotations, raised_s)


def _summary(report: RiskReport, row: int, column: int, rank: Rank) -> str:
    gpu, name = report.gpus[row], report.classes[column].replace("_", " ")
    who = f"GPU {gpu.index or gpu.device_id} on {gpu.hostname or 'an unnamed host'}"
    match rank:
        case Rank.TERMINAL if report.facts.terminal[row, column]:
            return f"{who} has a terminal {name} failure and needs replacement."
        case Rank.TERMINAL:
            return f"{who} is predicted to reach a terminal {name} failure within 7 days."
        case Rank.LOST:
            return f"{who} is gone although its node answers."
        case Rank.FAILURE:
            return f"{who} is predicted to need service within 7 days ({name})."
        case _:
            return f"{who} is degrading ({name})."


def _fact(report: RiskReport, row: int, column: int, rank: Rank) -> str:
    """What has happened needs no probability; "" where nothing has."""
    if rank is Rank.LOST and not np.isnan(lost_s := float(report.facts.lost_s[row])):
        return f"Observed, not forecast: last seen {duration(report.as_of_s - lost_s)} ago."
    return "Observed, not forecast." if rank is Rank.TERMINAL and report.facts.terminal[row, column] else ""


def _probabilities(report: RiskReport, row: int, column: int, grade: str) -> str:
    chance = report.probability[row, column, GRADES.index(grade)]
    if np.isnan(chance).all():
        return "No probability: the class is not observed on this GPU."
    stated = ", ".join(f"{p:.2g} within {h}" for p, h in zip(chance, HORIZON_NAMES, strict=True) if not np.isnan(p))
    source = "calibrated" if report.calibrated[row, column] else "prior"
    return f"Probability of a {report.classes[column]} event of grade {grade} or worse: {stated} ({source})."


def _time_to_limit(quantiles: Any) -> str:
    if np.isnan(quantiles).any():
        return ""
    early, median, late = (duration(float(q)) for q in quantiles)
    return f"{median} (80 % interval {early} to {late})"


def _evidence(report: RiskReport, row: int, column: int) -> str:
    said = list(report.reasons.get(row, ()))
    values = report.evidence.get(report.classes[column], {})
    said += [f"{k} = {v[row]:.3g}" for k, v in sorted(values.items()) if not np.isnan(v[row])][:EVIDENCE_LISTED]
    return "; ".join(said)


def incident_alert(incident: Incident, told: Alert | None, _rank: Rank, raised_s: float) -> Alert:
    """The alert of a domain. told: the one that stands already; its labels are kept, as they are its identity, and only
    the annotations know of a wider place or another cause."""
    labels = {
        "alertname": incident.alertname,
        "layer": incident.layer,
        "domain": incident.domain,
        "severity": "critical",
    }
    annotations = {
        "summary": incident_summary(incident),
        "description": f"Common cause: {incident.cause}." if incident.cause else "The common cause is not known yet.",
        "evidence": "; ".join(filter(None, [_first_mover(incident), incident.evidence])),
        "members": listing(incident.members),
        "incident": incident.id,
        "action": incident_action(incident),
    }
    return Alert(told.labels if told else labels, annotations, raised_s)


def _first_mover(incident: Incident) -> str:
    if not incident.first_mover:
        return ""
    early_s = 0.0 if incident.began_s is None else incident.onset_s - incident.began_s
    return f"first mover {incident.first_mover}" + (f", {duration(early_s)} before it was seen" if early_s > 0 else "")


def host_unknown_alert(
    hostname: str, gpus: Sequence[str], took_over: Sequence[str], _rank: Rank, raised_s: float
) -> Alert:
    """One host whose GPUs cannot be judged."""
    where = hostname or "hosts without a name"
    annotations = {
        "summary": f"The health of {len(gpus)} GPUs on {where} is unknown for lack of telemetry.",
        "description": f"GPUs: {listing(gpus)}.",
        "took_over": listing(took_over),
        "action": "Check dcgm-exporter and its scrape on this host; `healthsvc doctor` tells what is missing.",
    }
    labels = {"alertname": "GpuTelemetryUnknown", "hostname": hostname, "severity": "warning"}
    return Alert(labels, annotations, raised_s)


def wide_unknown_alert(
    what: str, hosts: Sequence[str], took_over: Sequence[str], _rank: Rank, raised_s: float
) -> Alert:
    """Many hosts at once: one cause is likelier than many."""
    annotations = {
        "summary": f"GPU health is unknown {what}.",
        "description": f"Hosts: {listing(hosts)}." if hosts else "",
        "took_over": listing(took_over),
        "action": "Look for one cause first: Prometheus, service discovery, the network, an exporter roll-out.",
    }
    return Alert({"alertname": "GpuTelemetryUnknown", "severity": "warning"}, annotations, raised_s)


def flood_alert(folded: Sequence[Alert], _rank: Rank, raised_s: float) -> Alert:
    """One alert in place of many that came at once."""
    by_kind: dict[str, list[str]] = {}
    for alert in folded:
        kind = " ".join(filter(None, (alert.alertname, alert.labels.get("class"), alert.labels.get("grade"))))
        by_kind.setdefault(kind, []).append(alert.labels.get("UUID") or alert.labels.get("hostname", ""))
    annotations = {
        "summary": f"{len(folded)} alerts of a flood are folded into this one and follow a few at a time.",
        "description": ". ".join(f"{kind}: {listing(names)}" for kind, names in sorted(by_kind.items())) + ".",
        "action": "Look for one cause: a roll-out, a power or cooling event, a changed exporter.",
    }
    return Alert({"alertname": "HealthsvcAlertFlood", "severity": "critical"}, annotations, raised_s)


def subject_name(alert: Alert) -> str:
    """An ended alert in a few words, for the alert that takes it over."""
    labels = alert.labels
    who = labels.get("UUID") or labels.get("domain") or labels.get("hostname", "")
    return " ".join(filter(None, (alert.alertname, labels.get("class"), labels.get("grade"), who)))
