"""From cycles of alert decisions to alert episodes: each a claim that was made once, stood a while and ended."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts import Alert, Decision
from healthsvc.evaluation.labels import THROTTLING
from healthsvc.evaluation.places import Places
from healthsvc.fleet import CLASSES, DAY_S, GRADES, HORIZONS_S, HOUR_S, LEAST_MEMBERS, GpuId, RiskReport

AlertGrade = Literal["degrading", "failure"]
ALERT_GRADES: tuple[AlertGrade, ...] = ("failure", "degrading")
GPU_ALERTS: dict[str, AlertGrade] = {"GpuFailurePredicted": "failure", "GpuDegrading": "degrading"}
DOMAIN_ALERTS = ("ThrottlingCascadePredicted", "CoolingIncident", "FacilityPowerIncident")
# What each alert speaks of: the failure threshold is one on P(T2, 7 d), the watch rule one on P(T2, 30 d).
CLAIM_HORIZON_S: dict[AlertGrade, float] = {"failure": 7 * DAY_S, "degrading": 30 * DAY_S}
DOMAIN_HORIZON_S = 2 * HOUR_S


@dataclass(frozen=True)
class AlertEpisode:
    """One alert from its raising to its end. probability: what was claimed within horizon_s when it was raised, NaN
    if nothing was. cleared_s: inf while it stands. grade: the gravest it reached. failure_s: when it became
    failure-grade, None if never. matched: index of the event it was found to speak of, set by matching.
    """

    scope: str
    members: frozenset[str]
    failure_class: str
    grade: AlertGrade
    raised_s: float
    cleared_s: float = math.inf
    probability: float = math.nan
    horizon_s: float = math.nan
    reason: str = ""
    failure_s: float | None = None
    matched: int | None = None


def of_grade(alerts: Iterable[AlertEpisode], grade: AlertGrade) -> tuple[AlertEpisode, ...]:
    """The episodes as claims of one grade, each judged from the moment of its claim.

    `failure`: those that became failure-grade, raised when they did; `degrading`: those that began as degrading,
    raised at their beginning, whatever they grew into.
    """
    if grade == "failure":
        return tuple(replace(a, raised_s=_failure_s(a)) for a in alerts if a.grade == "failure")
    began = (a for a in alerts if a.grade == "degrading" or _failure_s(a) > a.raised_s)
    return tuple(replace(a, grade="degrading", failure_s=None) for a in began)


def _failure_s(alert: AlertEpisode) -> float:
    """When a failure-grade episode made that claim; one built by hand made it when it was raised."""
    return alert.raised_s if alert.failure_s is None else alert.failure_s


def from_columns(
    gpus: Sequence[GpuId],
    row: NDArray[np.integer[Any]],
    failure_class: NDArray[np.integer[Any]],
    raised_s: NDArray[np.float64],
    cleared_s: NDArray[np.float64],
    grade: AlertGrade = "failure",
    reason: str = "",
) -> tuple[AlertEpisode, ...]:
    """The alerts of a rule that states no probability, from columns [alert]; failure_class: position in CLASSES."""
    columns = (row.tolist(), failure_class.tolist(), raised_s.tolist(), cleared_s.tolist())
    return tuple(
        AlertEpisode(
            gpus[gpu].device_id,
            frozenset({gpus[gpu].device_id}),
            CLASSES[name],
            grade,
            raised,
            cleared,
            horizon_s=CLAIM_HORIZON_S[grade],
            reason=reason,
            failure_s=raised if grade == "failure" else None,
        )
        for gpu, name, raised, cleared in zip(*columns, strict=True)
    )


class AlertRecorder:
    """Watches decisions go by, in order of time, and keeps their episodes.

    An escalation of the same scope and class goes on with the episode. Alerts that are held back, folded into an
    incident or about missing telemetry are no episodes. Blind to what happens between two cycles.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._standing: dict[tuple[str, str], AlertEpisode] = {}
        self._ended: list[AlertEpisode] = []

    def record(self, now_s: float, decision: Decision, report: RiskReport | None = None) -> None:
        """Take in one cycle. report: the one that was decided on, for the probabilities claimed; NaN without it."""
        firing: set[tuple[str, str]] = set()
        for alert in decision.firing:
            subject = _subject(alert)
            if subject is None:
                continue
            grade = GPU_ALERTS.get(alert.alertname, "failure")
            standing = self._standing.get(subject)
            firing.add(subject)
            if standing is None:
                self._standing[subject] = self._opened(alert, subject, grade, report)
            elif standing.grade == "degrading" and grade == "failure":
                fresh = self._opened(alert, subject, grade, report)
                self._standing[subject] = replace(fresh, raised_s=standing.raised_s, failure_s=alert.raised_s)
        for subject in [subject for subject in self._standing if subject not in firing]:
            self._ended.append(replace(self._standing.pop(subject), cleared_s=now_s))

    def episodes(self) -> tuple[AlertEpisode, ...]:
        """All so far, by start; those that still stand have no end."""
        found = (*self._ended, *self._standing.values())
        return tuple(sorted(found, key=lambda a: (a.raised_s, a.scope, a.failure_class)))

    def _opened(
        self, alert: Alert, subject: tuple[str, str], grade: AlertGrade, report: RiskReport | None
    ) -> AlertEpisode:
        scope, failure_class = subject
        domain = failure_class == THROTTLING
        members = frozenset({scope}) if not domain else self._places.of(scope)
        if domain and report:
            named = (i.members for i in report.incidents if i.id == alert.annotations.get("incident"))
            members = frozenset(next(named, ())) or members
        return AlertEpisode(
            scope,
            members,
            failure_class,
            grade,
            alert.raised_s,
            probability=_probability(report, scope, failure_class, grade) if report else math.nan,
            horizon_s=DOMAIN_HORIZON_S if domain else CLAIM_HORIZON_S[grade],
            reason=alert.annotations.get("evidence", "") or alert.annotations.get("summary", ""),
            failure_s=alert.raised_s if grade == "failure" else None,
        )


def _subject(alert: Alert) -> tuple[str, str] | None:
    """(scope, class) of an alert that claims a failure; None for one about telemetry or about alerting itself."""
    labels = alert.labels
    if alert.alertname in GPU_ALERTS:
        return labels["UUID"], labels["class"]
    if alert.alertname in DOMAIN_ALERTS:
        return f"{labels['layer']}:{labels['domain']}", THROTTLING
    return None


def _probability(report: RiskReport, scope: str, failure_class: str, grade: AlertGrade) -> float:
    """P(T2 or worse within the claim's horizon), or P(at least 3 members throttle within 2 h); NaN if not stated."""
    if failure_class in CLASSES:
        row = next((i for i, gpu in enumerate(report.gpus) if gpu.device_id == scope), None)
        if row is None or failure_class not in report.classes:
            return math.nan
        horizon = HORIZONS_S.index(CLAIM_HORIZON_S[grade])
        return float(report.probability[row, report.classes.index(failure_class), GRADES.index("T2"), horizon])
    for forecast in report.domains:
        if DOMAIN_HORIZON_S in forecast.horizons_s and tuple(scope.split(":", 1)) in forecast.domains:
            domain = forecast.domains.index((scope.split(":", 1)[0], scope.split(":", 1)[1]))
            horizon = forecast.horizons_s.index(DOMAIN_HORIZON_S)
            return float(forecast.probability_at_least_k[domain, LEAST_MEMBERS - 1, horizon])
    return math.nan
