"""Metrics and episodes as plain rows: for a table, for JSON, for a DataFrame. Words only; nothing is counted here."""

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from healthsvc.evaluation.episodes import Episode, Episodes
from healthsvc.evaluation.exact import Rate
from healthsvc.evaluation.matching import Matching, Outcome
from healthsvc.evaluation.metrics import AlertMetrics
from healthsvc.fleet import rfc3339

RATES = ("precision", "recall", "recall_with_precursor", "precursor", "late", "detected", "natural_precision")


def flat_row(metrics: AlertMetrics) -> dict[str, Any]:
    """One level deep, a column a figure: every rate with its bounds and its n."""
    row: dict[str, Any] = {"alerts": metrics.alerts}
    row |= {f"alerts_{outcome.value}": metrics.outcomes[outcome.value] for outcome in Outcome}
    row["alerts_wrong_class"] = metrics.wrong_class
    for name in RATES:
        figure: Rate = getattr(metrics, name)
        row |= {f"{name}_ratio": figure.value, f"{name}_lower_ratio": figure.lower}
        row |= {f"{name}_upper_ratio": figure.upper, f"{name}_n": figure.n}
    lead, false = metrics.lead, metrics.false_alerts
    row |= {"lead_p10_s": lead.p10_s, "lead_p50_s": lead.p50_s, "lead_p90_s": lead.p90_s, "lead_n": lead.n}
    row |= {
        "false_alerts_per_1000_gpu_months": false.per_1000_gpu_months,
        "false_alerts_upper_per_1000_gpu_months": false.upper_per_1000_gpu_months,
        "exposure_gpu_months": false.exposure_gpu_months,
        "false_on_decoys": sum(metrics.false_by_decoy.values()),
    }
    return row


def incident_id(event: Episode) -> str:
    """What an incident is called in a document: scope, class and start."""
    return f"{event.scope} {event.failure_class} {rfc3339(event.start_s)}"


def alert_rows(grade: str, matching: Matching, window: tuple[float, float]) -> list[dict[str, Any]]:
    """Every alert raised in the window, with what became of it."""
    return [
        {
            "scope": alert.scope,
            "members": sorted(alert.members),
            "class": alert.failure_class,
            "grade": grade,
            "raised_at": rfc3339(alert.raised_s),
            "cleared_at": rfc3339(alert.cleared_s) or None,
            "probability": json_able(alert.probability),
            "horizon_s": json_able(alert.horizon_s),
            "reason": alert.reason,
            "outcome": outcome.value,
            "matched_incident": None if alert.matched is None else incident_id(matching.events[alert.matched]),
            "decoy": decoy or None,
            "wrong_class": wrong,
        }
        for alert, outcome, decoy, wrong in zip(
            matching.alerts, matching.outcomes, matching.decoy, matching.wrong_class.tolist(), strict=True
        )
        if window[0] < alert.raised_s <= window[1]
    ]


def event_rows(alert_grade: str, matching: Matching, window: tuple[float, float]) -> list[dict[str, Any]]:
    """Every incident begun in the window, with what the alerts of this grade made of it."""
    return [
        {
            "id": incident_id(event),
            "scope": event.scope,
            "members": sorted(event.members),
            "class": event.failure_class,
            "grade": event.grade,
            "start": rfc3339(event.start_s),
            "end": rfc3339(event.end_s) or None,
            "precursor": event.precursor,
            "scenario": event.scenario,
            "lines": list(event.lines),
            "alert_grade": alert_grade,
            "fate": fate.value,
            "lead_s": json_able(lead),
        }
        for event, fate, lead in zip(matching.events, matching.fates, matching.lead_s.tolist(), strict=True)
        if window[0] < event.start_s <= window[1]
    ]


def dropped_rows(episodes: Episodes) -> list[dict[str, Any]]:
    """The labels that are no events, with the reason."""
    return [
        {
            "scope": label.scope,
            "class": label.failure_class,
            "start": rfc3339(label.start_s),
            "line": label.line,
            "reason": reason.value,
        }
        for label, reason in episodes.dropped
    ]


def json_able(value: Any) -> Any:
    """Plain Python all the way down; NaN and infinity, which JSON lacks, are null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): json_able(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_able(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value
