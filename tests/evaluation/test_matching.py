"""The rules of matching, one at a time."""

import numpy as np
import pytest

from healthsvc.evaluation.alert_episodes import AlertEpisode
from healthsvc.evaluation.episodes import Episodes
from healthsvc.evaluation.matching import Fate, Matching, MatchRule, Outcome, match_alerts
from tests.evaluation.cases import ALERTS, DAY_S, KNOWN_UNTIL_S, LABELS, LOOP, MINUTE_S, alert, day, episodes, label

MINUTE = MINUTE_S / DAY_S


def judged(found: Episodes, *alerts: AlertEpisode, known_until_s: float = KNOWN_UNTIL_S) -> Matching:
    return match_alerts(alerts, found, known_until_s)


def outcome(found: Episodes, one: AlertEpisode) -> Outcome:
    return judged(found, one).outcomes[0]


MEMORY = episodes(label("GPU-a", "memory", 50, 51))
THROTTLING = episodes(label(LOOP, "throttling", 50, 50.1))


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (19.99, Outcome.FALSE),  # earlier than the horizon of 30 days
        (20.0, Outcome.TRUE),
        (50 - 15 * MINUTE, Outcome.TRUE),
        (50 - 14 * MINUTE, Outcome.LATE),  # nobody can save work in that time
        (50.0, Outcome.LATE),
        (51.9, Outcome.LATE),  # an event goes on for the day within which labels are merged
        (52.1, Outcome.FALSE),
    ],
)
def test_an_alert_is_true_from_the_horizon_to_the_least_lead(raised: float, expected: Outcome) -> None:
    assert outcome(MEMORY, alert("GPU-a", "memory", raised)) is expected


def test_a_domain_has_a_horizon_of_a_day() -> None:
    assert outcome(THROTTLING, alert(LOOP, "throttling", 48.9)) is Outcome.FALSE
    assert outcome(THROTTLING, alert(LOOP, "throttling", 49.1)) is Outcome.TRUE


def test_a_domain_alert_matches_by_scope_or_by_half_of_the_labels_members() -> None:
    assert outcome(THROTTLING, alert("node:n1", "throttling", 49.5)) is Outcome.TRUE  # 2 of 3 GPUs
    assert outcome(THROTTLING, alert("node:n2", "throttling", 49.5)) is Outcome.FALSE  # 1 of 3
    node = episodes(label("node:n2", "throttling", 50, 50.1))
    assert outcome(node, alert(LOOP, "throttling", 49.5)) is Outcome.TRUE  # all of its one
    unplaced = AlertEpisode(LOOP, frozenset(), "throttling", "failure", day(49.5))
    assert outcome(THROTTLING, unplaced) is Outcome.TRUE


def test_several_alerts_may_match_one_event_and_the_first_counts_for_the_lead() -> None:
    found = judged(MEMORY, alert("GPU-a", "memory", 48), alert("GPU-a", "memory", 44))
    assert found.outcomes == (Outcome.TRUE, Outcome.TRUE)
    assert [a.matched for a in found.alerts] == [0, 0]
    assert found.lead_s.tolist() == [6 * DAY_S]


def test_one_alert_that_stands_through_a_series_foresees_each_of_its_events() -> None:
    two = episodes(label("GPU-a", "memory", 50, 51), label("GPU-a", "memory", 60, 61))
    found = judged(two, alert("GPU-a", "memory", 45))
    assert found.fates == (Fate.PREDICTED, Fate.PREDICTED)


def test_an_alert_between_two_events_speaks_of_the_one_to_come() -> None:
    two = episodes(label("GPU-a", "memory", 50, 51), label("GPU-a", "memory", 60, 61))
    found = judged(two, alert("GPU-a", "memory", 51.5))
    assert found.fates == (Fate.LATE, Fate.PREDICTED)
    assert found.alerts[0].matched == 1


def test_an_unmatched_alert_with_an_open_horizon_is_censored() -> None:
    assert outcome(MEMORY, alert("GPU-c", "memory", 71)) is Outcome.CENSORED
    assert outcome(MEMORY, alert("GPU-c", "memory", 69)) is Outcome.FALSE
    assert outcome(THROTTLING, alert(LOOP, "throttling", 98.9)) is Outcome.FALSE  # its horizon is a day


def test_an_alert_on_a_decoy_is_false_and_says_for_what_it_fell() -> None:
    hot = episodes(label("GPU-b", "none", 30, 35, scenario="constant_hot"), label("node:n2", "none", 80, 90))
    found = judged(hot, alert("GPU-b", "thermal", 31), alert("GPU-c", "memory", 85), alert("GPU-b", "thermal", 50))
    assert found.outcomes == (Outcome.FALSE, Outcome.FALSE, Outcome.FALSE)  # the second although its horizon is open
    assert found.decoy == ("constant_hot", "", "unnamed")


def test_a_real_event_outranks_a_decoy() -> None:
    both = episodes(label("GPU-b", "none", 30, 60, scenario="constant_hot"), label("GPU-b", "thermal", 50, 51))
    found = judged(both, alert("GPU-b", "thermal", 45))
    assert (found.outcomes, found.decoy) == ((Outcome.TRUE,), ("",))


def test_alerts_during_maintenance_are_not_judged() -> None:
    work = episodes(label("node:n1", "maintenance", 30, 35), label("GPU-a", "memory", 40, 41))
    assert outcome(work, alert("GPU-a", "memory", 31)) is Outcome.IN_MAINTENANCE
    assert outcome(work, alert("GPU-a", "memory", 36)) is Outcome.TRUE
    assert outcome(work, alert("GPU-c", "memory", 31)) is Outcome.FALSE


def test_an_alert_of_the_wrong_class_on_a_failing_gpu_is_false_and_counted() -> None:
    found = judged(MEMORY, alert("GPU-a", "thermal", 45), alert("GPU-b", "thermal", 45), known_until_s=day(60))
    assert found.outcomes == (Outcome.FALSE, Outcome.CENSORED)
    assert found.wrong_class.tolist() == [True, False]


def test_an_alert_on_a_gpu_known_to_be_dead_is_no_prediction() -> None:
    dead = episodes(label("GPU-a", "memory", 50, grade="T1"))
    assert outcome(dead, alert("GPU-a", "memory", 69)) is Outcome.LATE


def test_the_rule_is_an_argument() -> None:
    strict = MatchRule(lead_min_s=3600.0, tail_s=0.0)
    found = match_alerts([alert("GPU-a", "memory", 50 - 30 * MINUTE)], MEMORY, KNOWN_UNTIL_S, strict)
    assert found.fates == (Fate.LATE,)


def test_a_window_is_cut_out_after_matching() -> None:
    found = match_alerts(ALERTS, episodes(*LABELS), KNOWN_UNTIL_S)
    early, late = found.within(day(0), day(9)), found.within(day(9), day(100))
    assert early.outcomes == (Outcome.TRUE, Outcome.TRUE)
    assert early.events == ()
    assert early.alerts[0].matched is None  # its incident lies outside
    assert late.fates[0] is Fate.PREDICTED
    assert late.lead_s[0] == 7 * DAY_S  # by the alert that came before the window


def test_a_selection_of_classes_renumbers_what_was_matched() -> None:
    found = match_alerts(ALERTS, episodes(*LABELS), KNOWN_UNTIL_S).of_classes("throttling")
    assert [a.matched for a in found.alerts] == [0]
    assert found.events[0].scope == LOOP
    assert np.array_equal(found.lead_s, [DAY_S / 2])
