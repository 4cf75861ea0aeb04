"""From decisions to alert episodes, with the real alert stages."""

from dataclasses import replace

import numpy as np
import pytest

from healthsvc.alerts import AlertPolicy, AlertState, decide
from healthsvc.evaluation.alert_episodes import AlertEpisode, AlertRecorder, from_columns, of_grade
from healthsvc.evaluation.places import Places
from healthsvc.fleet import DAY_S, Incident, RiskReport
from tests import reports

STEP_S = 600.0
PLACES = Places(
    frozenset(gpu.device_id for gpu in reports.fleet(4)),
    {"cooling_loop:loop-a": frozenset(gpu.device_id for gpu in reports.fleet(4))},
)
CALM = reports.calm_report(4)
FAILING = reports.with_probability(CALM, 1, "device_loss", week=0.4, month=0.6)
DEGRADING = reports.with_probability(CALM, 1, "device_loss", week=0.01, month=0.06)


def recorded(*spans: tuple[RiskReport, float], with_report: bool = True) -> tuple[AlertEpisode, ...]:
    """Episodes of a run through these reports, each for so many hours."""
    policy, recorder = AlertPolicy(cycle_s=STEP_S), AlertRecorder(PLACES)
    now_s = reports.NOW_S
    state = AlertState(started_s=now_s - 1e6, last_s=now_s - STEP_S)
    for report, hours in spans:
        for _ in range(round(hours * 3600 / STEP_S)):
            at = replace(report, as_of_s=now_s)
            decision = decide(state, at, now_s, policy)
            recorder.record(now_s, decision, at if with_report else None)
            state, now_s = decision.state, now_s + STEP_S
    return recorder.episodes()


def test_an_alert_begins_when_it_fires_and_ends_when_it_no_longer_does() -> None:
    (found,) = recorded((CALM, 1), (FAILING, 5), (CALM, 10))
    assert (found.scope, found.members, found.failure_class) == ("GPU-0001", frozenset({"GPU-0001"}), "device_loss")
    assert (found.grade, found.horizon_s) == ("failure", 7 * DAY_S)
    assert found.raised_s == reports.NOW_S + 3600 + 2 * STEP_S  # held for two cycles
    assert found.cleared_s == reports.NOW_S + 6 * 3600 + 6 * 3600  # calm for six hours
    assert found.probability == pytest.approx(0.4)
    assert found.reason


def test_an_escalation_goes_on_with_the_episode_and_is_judged_by_grade() -> None:
    (found,) = recorded((DEGRADING, 5), (FAILING, 5))
    began_s = reports.NOW_S + 2 * STEP_S
    assert (found.grade, found.raised_s, found.cleared_s) == ("failure", began_s, np.inf)
    (claimed,), (warned,) = of_grade([found], "failure"), of_grade([found], "degrading")
    assert claimed.raised_s == found.failure_s == reports.NOW_S + 5 * 3600 + 2 * STEP_S
    assert (warned.raised_s, warned.grade) == (began_s, "degrading")


def test_an_alert_that_begins_as_failure_is_none_of_the_degrading_ones() -> None:
    (found,) = recorded((FAILING, 1))
    assert of_grade([found], "degrading") == ()
    assert of_grade([found], "failure") == (found,)


def test_a_domain_alert_has_its_members_and_folded_members_are_no_episodes() -> None:
    members = tuple(gpu.device_id for gpu in reports.fleet(3))
    incident = reports.cooling_incident(members)
    hot = reports.with_probability(CALM, 1, "thermal", week=0.4, month=0.6)
    (found,) = recorded((replace(hot, incidents=(incident,)), 8))
    assert (found.scope, found.failure_class) == ("cooling_loop:loop-a", "throttling")
    assert (found.grade, found.members) == ("failure", frozenset(members))
    (blind,) = recorded((replace(hot, incidents=(incident,)), 8), with_report=False)
    assert blind.members == PLACES.of("cooling_loop:loop-a")


def test_a_domain_alert_states_the_chance_that_three_members_throttle() -> None:
    report = reports.five_gpu_report()
    found = recorded((report, 1))
    (domain,) = (episode for episode in found if episode.failure_class == "throttling")
    assert domain.probability == pytest.approx(0.55)
    assert domain.horizon_s == 7200


def test_alerts_about_missing_telemetry_are_no_episodes() -> None:
    assert recorded((reports.unknown(CALM, [0, 1]), 3)) == ()


def test_a_predicted_incident_that_comes_true_is_one_episode() -> None:
    members = tuple(gpu.device_id for gpu in reports.fleet(3))
    predicted = reports.cooling_incident(members, "predicted")
    active: Incident = replace(predicted, state="active")
    (found,) = recorded((replace(CALM, incidents=(predicted,)), 1), (replace(CALM, incidents=(active,)), 1))
    assert found.raised_s == reports.NOW_S + 2 * STEP_S


def test_columns_of_a_rule_become_episodes() -> None:
    (found,) = from_columns(
        reports.fleet(4), np.array([2]), np.array([1]), np.array([5.0]), np.array([np.inf]), reason="b1"
    )
    assert (found.scope, found.failure_class, found.raised_s) == ("GPU-0002", "memory", 5.0)
    assert np.isnan(found.probability)
    assert repr(of_grade([found], "failure")) == repr((found,))  # NaN equals nothing
