"""Hysteresis: when an alert fires, climbs, clears and comes back."""

from dataclasses import replace

import numpy as np
import pytest

from healthsvc.alerts import Held
from tests.alerts.cycles import STEP_S, Cycles, endings, names, reasons
from tests.reports import DAY_S, HOUR_S, calm_report, changed, fleet, with_probability

CALM = calm_report()
MEMORY, DEVICE_LOSS = 1, 2
PREDICTED = with_probability(CALM, 0, "memory", week=0.3)
HALF_WAY = with_probability(CALM, 0, "memory", week=0.06)  # below the threshold of 0.1, above half of it
TERMINAL = changed(CALM, "terminal", (0, MEMORY), True)
LOST = changed(CALM, "lost_s", 0, CALM.as_of_s - 60)
LIKELY_LOST = with_probability(CALM, 0, "device_loss", week=0.3)


def fires(decision: object) -> bool:
    return bool(decision.firing)  # type: ignore[attr-defined]


def ends(decision: object) -> bool:
    return bool(decision.resolved)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["thermal", "memory"])
def test_a_predicted_thermal_or_memory_failure_is_held_for_three_hours(name: str) -> None:
    cycles = Cycles()
    report = with_probability(CALM, 0, name, week=0.3)
    assert reasons(cycles.once(report)) == {Held.HOLD}
    assert cycles.until(report, fires, DAY_S) == 3 * HOUR_S - STEP_S
    assert names(cycles.once(report)) == [("GpuFailurePredicted", name, "T2")]


def test_a_predicted_device_loss_is_held_for_two_cycles() -> None:
    assert Cycles().until(LIKELY_LOST, fires, DAY_S) == 2 * STEP_S


def test_a_break_in_the_condition_starts_the_hold_anew() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 2 * HOUR_S)
    cycles.once(CALM)
    assert cycles.until(PREDICTED, fires, DAY_S) == 3 * HOUR_S


def test_a_terminal_fact_fires_at_once_as_critical() -> None:
    (alert,) = Cycles().once(TERMINAL).firing
    assert (alert.alertname, alert.labels["grade"], alert.severity) == ("GpuFailurePredicted", "T1", "critical")


def test_a_gpu_lost_beside_a_live_node_fires_at_once_as_critical() -> None:
    (alert,) = Cycles().once(LOST).firing
    assert (alert.labels["class"], alert.labels["grade"], alert.severity) == ("device_loss", "T2", "critical")


def test_an_alert_clears_after_six_hours_below_half_its_threshold() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    assert not ends(cycles.run(HALF_WAY, DAY_S))
    assert cycles.until(CALM, ends, DAY_S) == 6 * HOUR_S
    assert endings(cycles.last) == ["cleared"]  # type: ignore[arg-type]


def test_an_open_event_keeps_its_alert() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    assert fires(cycles.run(changed(CALM, "open_events", (0, MEMORY), True), DAY_S))


def test_the_same_class_stays_quiet_for_seven_days_after_it_cleared() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    cycles.run(CALM, 6 * HOUR_S)
    assert reasons(cycles.run(PREDICTED, 3 * HOUR_S)) == {Held.COOLDOWN}
    elapsed_s = cycles.until(PREDICTED, fires, 8 * DAY_S)
    assert elapsed_s == pytest.approx(7 * DAY_S - 3 * HOUR_S, abs=3 * STEP_S)


def test_a_graver_prediction_passes_the_cooldown() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    cycles.run(CALM, 6 * HOUR_S)
    assert names(cycles.run(with_probability(CALM, 0, "memory", 0.3, terminal_week=0.2), 3 * HOUR_S)) == [
        ("GpuFailurePredicted", "memory", "T1")
    ]


def test_a_fact_passes_the_cooldown() -> None:
    cycles = Cycles()
    cycles.once(LOST)
    assert endings(cycles.run(CALM, 6 * HOUR_S)) == ["cleared"]
    assert fires(cycles.once(LOST))


def test_an_escalation_replaces_the_milder_alert() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    decision = cycles.once(TERMINAL)
    assert names(decision) == [("GpuFailurePredicted", "memory", "T1")]
    assert endings(decision) == ["escalated"]


def test_a_standing_alert_never_steps_down() -> None:
    cycles = Cycles()
    cycles.once(TERMINAL)
    assert names(cycles.run(PREDICTED, DAY_S)) == [("GpuFailurePredicted", "memory", "T1")]


def test_the_report_says_from_which_probability_on_a_gpu_is_at_watch() -> None:
    report = with_probability(CALM, 0, "memory", week=0.001, month=0.02)
    assert names(Cycles().run(report, 3 * HOUR_S)) == [("GpuDegrading", "memory", "")]
    assert not Cycles().run(replace(report, watch_p_30d=(0.01, 0.03, 0.01)), 3 * HOUR_S).firing


def test_watch_probability_makes_a_degrading_alert() -> None:
    (alert,) = Cycles().run(with_probability(CALM, 0, "thermal", week=0.001, month=0.02), 3 * HOUR_S).firing
    assert (alert.alertname, alert.severity, "grade" in alert.labels) == ("GpuDegrading", "info", False)


def test_a_change_that_is_tested_once_in_hours_still_fires() -> None:
    drifting = changed(CALM, "change_p", (0, 0), 1e-6)
    cycles = Cycles()
    cycles.once(drifting)
    assert names(cycles.run(CALM, 3 * HOUR_S)) == [("GpuDegrading", "thermal", "")]
    assert endings(cycles.run(changed(CALM, "change_p", (0, 0), 0.5), 6 * HOUR_S)) == ["cleared"]


def test_a_failure_alert_replaces_the_degrading_one_of_its_class() -> None:
    cycles = Cycles()
    cycles.run(with_probability(CALM, 0, "memory", week=0.01, month=0.05), 3 * HOUR_S)
    assert names(cycles.run(PREDICTED, 3 * HOUR_S)) == [("GpuFailurePredicted", "memory", "T2")]


def test_labels_stay_and_annotations_follow_the_numbers() -> None:
    cycles = Cycles()
    (first,) = cycles.run(PREDICTED, 3 * HOUR_S).firing
    (second,) = cycles.once(with_probability(CALM, 0, "memory", week=0.4)).firing
    assert (first.labels, first.raised_s) == (second.labels, second.raised_s)
    assert "0.3 within 7d" in first.annotations["description"]
    assert "0.4 within 7d" in second.annotations["description"]


def test_silence_is_no_recovery_for_six_hours() -> None:
    silent = changed(CALM, "observed", (0, MEMORY), False)
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    elapsed_s = cycles.until(silent, ends, DAY_S)
    assert elapsed_s == 6 * HOUR_S - STEP_S
    assert endings(cycles.last) == ["taken_over"]  # type: ignore[arg-type]
    (alert,) = cycles.run(silent, HOUR_S).firing
    assert alert.alertname == "GpuTelemetryUnknown"
    assert "GPU-0000" in alert.annotations["took_over"]


def test_a_swapped_gpu_ends_its_alert_at_once_and_its_successor_starts_clean() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    old = fleet(4)
    newcomer = type(old[0])("GPU-new", old[0].hostname, old[0].index, old[0].product, old[0].slot)
    decision = cycles.once(calm_report((newcomer, *old[1:])))
    assert (names(decision), endings(decision)) == ([], ["swapped"])


def test_a_lost_gpu_whose_socket_holds_another_is_swapped_and_not_lost() -> None:
    old = fleet(4)
    newcomer = type(old[0])("GPU-new", old[0].hostname, old[0].index, old[0].product, old[0].slot)
    both = changed(calm_report((*old, newcomer)), "lost_s", 0, CALM.as_of_s)
    assert not fires(Cycles().once(both))


def test_a_gpu_that_left_keeps_its_alert_for_six_hours_and_is_then_forgotten() -> None:
    cycles = Cycles()
    cycles.run(PREDICTED, 3 * HOUR_S)
    rest = calm_report(fleet(4)[1:])
    assert cycles.until(rest, ends, DAY_S) == 6 * HOUR_S - STEP_S
    assert cycles.last is not None
    assert endings(cycles.last) == ["departed"]
    assert not cycles.last.state.cases
    assert not fires(cycles.run(rest, HOUR_S))


def test_a_quiet_fleet_leaves_nothing_to_remember() -> None:
    decision = Cycles().once(calm_report(64))
    assert (decision.firing, decision.held, dict(decision.state.cases)) == ((), (), {})


def test_unknown_probabilities_want_nothing() -> None:
    blank = changed(CALM, "probability", slice(None), np.nan)
    assert not Cycles().run(blank, DAY_S).firing
