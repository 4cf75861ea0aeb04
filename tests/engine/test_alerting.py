"""Alerts outlive the cycle that raised them, but never the time that they can be vouched for."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthsvc.alerts import AlertPolicy
from healthsvc.alerts.decide import Decision
from healthsvc.engine.alerting import Alerting
from healthsvc.store import Journal, sqlite_url
from tests.reports import calm_report, changed

LOST = changed(calm_report(4), "lost_s", 2, calm_report(4).as_of_s - 600.0)
SILENCE_S = 0.3


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(sqlite_url(tmp_path)) as journal:
        yield journal


def alerting_of(journal: Journal, silence_s: float) -> Alerting:
    return Alerting(AlertPolicy(cycle_s=60.0, silence_s=silence_s), journal, None, 60.0)


def names(decision: Decision | None) -> list[str]:
    assert decision is not None
    return sorted(alert.labels["alertname"] for alert in decision.firing)


def test_what_stands_is_kept_between_cycles_and_while_the_source_is_down(journal: Journal) -> None:
    alerting = alerting_of(journal, 60.0)
    assert names(alerting.decide(LOST)) == ["GpuFailurePredicted"]
    assert alerting.beat() is None
    down = alerting.source_is_down("a server", "refused", LOST.as_of_s)
    assert names(down) == ["GpuFailurePredicted", "HealthsvcSourceDown"]
    assert down.resolved == ()


@pytest.mark.parametrize("down", [True, False])
def test_what_nobody_has_judged_for_too_long_is_taken_over(down: bool, journal: Journal) -> None:
    """Whether a source is down or the service itself cannot judge: a cycle that fails, a beginning that hangs."""
    alerting = alerting_of(journal, SILENCE_S)
    standing = alerting.decide(LOST).firing
    time.sleep(SILENCE_S * 1.2)
    found = alerting.source_is_down("a server", "refused", LOST.as_of_s) if down else alerting.beat()
    assert names(found) == (["GpuTelemetryUnknown", "HealthsvcSourceDown"] if down else ["GpuTelemetryUnknown"])
    assert found is not None
    assert [alert.labels for alert in found.resolved] == [alert.labels for alert in standing]
    (unknown,) = (a for a in found.firing if a.labels["alertname"] == "GpuTelemetryUnknown")
    assert ("a server" if down else "has judged nothing for hours") in unknown.annotations["summary"]


def test_a_judgement_begins_the_time_anew(journal: Journal) -> None:
    alerting = alerting_of(journal, SILENCE_S)
    for _ in range(4):
        standing = alerting.decide(LOST).firing
        time.sleep(SILENCE_S / 3)
        assert alerting.beat() is None
    assert alerting.decide(LOST).firing == standing


def test_a_service_with_nothing_to_say_says_nothing_however_long(journal: Journal) -> None:
    alerting = alerting_of(journal, 0.01)
    alerting.decide(calm_report(4))
    time.sleep(0.02)
    assert alerting.beat() is None
