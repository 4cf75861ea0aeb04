"""Many effects of one cause are one alert."""

from dataclasses import replace

from healthsvc.alerts import Held, source_down, take_over
from healthsvc.fleet import RiskReport
from tests.alerts.cycles import STEP_S, Cycles, endings, names, reasons
from tests.reports import DAY_S, HOUR_S, calm_report, changed, cooling_incident, unknown, with_probability

CALM = calm_report(32)
MINUTE_S = 60.0


def lost(report: RiskReport, count: int) -> RiskReport:
    return changed(report, "lost_s", slice(0, count), report.as_of_s - 60)


def test_members_of_an_open_incident_fold_under_it_for_the_thermal_class_only() -> None:
    hot = with_probability(with_probability(CALM, 0, "thermal", week=0.3), 0, "memory", week=0.3)
    decision = Cycles().run(replace(hot, incidents=(cooling_incident(("GPU-0000",)),)), 3 * HOUR_S)
    assert names(decision) == [("CoolingIncident", "", ""), ("GpuFailurePredicted", "memory", "T2")]
    assert reasons(decision) == {Held.UNDER_INCIDENT}


def test_a_member_that_degrades_by_heat_folds_too() -> None:
    watched = with_probability(CALM, 0, "thermal", week=0.001, month=0.02)
    alone = Cycles().run(watched, 3 * HOUR_S)
    assert names(alone) == [("GpuDegrading", "thermal", "")]
    decision = Cycles().run(replace(watched, incidents=(cooling_incident(("GPU-0000",)),)), 3 * HOUR_S)
    assert (names(decision), reasons(decision)) == ([("CoolingIncident", "", "")], {Held.UNDER_INCIDENT})


def test_nothing_folds_under_an_incident_at_watch_and_it_alerts_nobody() -> None:
    watch = replace(cooling_incident(("GPU-0000",)), state="watch", alertname="")
    hot = with_probability(CALM, 0, "thermal", week=0.3)
    decision = Cycles().run(replace(hot, incidents=(watch,)), 3 * HOUR_S)
    assert names(decision) == [("GpuFailurePredicted", "thermal", "T2")]
    assert Cycles().run(replace(CALM, incidents=(watch,)), HOUR_S).firing == ()


def test_a_member_that_does_not_calm_down_with_its_domain_gets_its_own_alert_then() -> None:
    cycles = Cycles()
    both = with_probability(with_probability(CALM, 0, "thermal", week=0.3), 1, "thermal", week=0.3)
    members = ("GPU-0000", "GPU-0001")
    cycles.run(replace(both, incidents=(cooling_incident(members),)), 4 * HOUR_S)
    one_left = with_probability(CALM, 0, "thermal", week=0.3)
    decision = cycles.once(replace(one_left, incidents=(cooling_incident(members, "cleared"),)))
    assert [(a.alertname, a.labels.get("UUID")) for a in decision.firing] == [("GpuFailurePredicted", "GPU-0000")]
    assert endings(decision) == ["cleared"]


def test_an_incident_that_moves_to_a_wider_place_keeps_its_alert_and_tells_of_the_place_in_words() -> None:
    cycles = Cycles()
    opened = cooling_incident(("GPU-0000",))
    (before,) = cycles.once(replace(CALM, incidents=(opened,))).firing
    wider = replace(opened, layer="row", domain="row-7", members=("GPU-0000", "GPU-0001"), cause="warm supply")
    decision = cycles.once(replace(CALM, incidents=(wider,)))
    (after,) = decision.firing
    assert (decision.resolved, after.key, dict(after.labels)) == ((), before.key, dict(before.labels))
    assert after.annotations["summary"] == "2 GPUs of row row-7 are affected together."
    assert after.annotations["description"] == "Common cause: warm supply."


def test_an_incident_that_ends_in_another_one_ends_its_alert_and_the_other_goes_on() -> None:
    cycles = Cycles()
    node = replace(cooling_incident(("GPU-0000",)), id="inc-2", layer="node", domain="node0")
    loop = cooling_incident(("GPU-0001",))
    assert len(cycles.once(replace(CALM, incidents=(loop, node))).firing) == 2
    ended = replace(node, state="cleared", cleared_s=cycles.now_s)
    decision = cycles.once(replace(CALM, incidents=(loop, ended)))
    assert endings(decision) == ["cleared"]
    assert [alert.labels["domain"] for alert in decision.firing] == ["loop-a"]


def test_a_power_brake_is_one_alert_of_the_facility_at_once() -> None:
    power = replace(cooling_incident(("GPU-0000",)), alertname="FacilityPowerIncident", kind="power")
    assert names(Cycles().once(replace(CALM, incidents=(power,)))) == [("FacilityPowerIncident", "", "")]


def test_a_terminal_thermal_fact_does_not_fold_under_an_incident() -> None:
    failed = changed(CALM, "terminal", (0, 0), True)
    decision = Cycles().once(replace(failed, incidents=(cooling_incident(("GPU-0000",)),)))
    assert ("GpuFailurePredicted", "thermal", "T1") in names(decision)


def test_an_observed_incident_fires_at_once_and_a_predicted_one_after_two_cycles() -> None:
    observed = replace(CALM, incidents=(cooling_incident(("GPU-0000",), "active"),))
    predicted = replace(CALM, incidents=(cooling_incident(("GPU-0000",), "predicted"),))
    assert names(Cycles().once(observed)) == [("CoolingIncident", "", "")]
    assert Cycles().until(predicted, lambda d: bool(d.firing), DAY_S) == 2 * STEP_S


def test_the_alert_of_an_incident_ends_when_the_incident_is_cleared() -> None:
    cycles = Cycles()
    cycles.once(replace(CALM, incidents=(cooling_incident(("GPU-0000",)),)))
    decision = cycles.once(replace(CALM, incidents=(cooling_incident(("GPU-0000",), "cleared"),)))
    assert (endings(decision), dict(decision.state.cases)) == (["cleared"], {})


def test_an_incident_that_is_missing_after_a_restart_keeps_its_alert_for_half_an_hour() -> None:
    cycles = Cycles()
    cycles.once(replace(CALM, incidents=(cooling_incident(("GPU-0000",)),)))
    assert cycles.until(CALM, lambda d: bool(d.resolved), DAY_S) == 30 * MINUTE_S


def test_unknown_gpus_of_a_host_are_one_alert_after_fifteen_minutes() -> None:
    cycles = Cycles()
    silent = unknown(CALM, range(8))
    assert reasons(cycles.once(silent)) == {Held.HOLD}
    (alert,) = cycles.run(silent, 20 * MINUTE_S).firing
    assert (alert.alertname, alert.labels["hostname"], alert.severity) == ("GpuTelemetryUnknown", "node0", "warning")
    assert endings(cycles.once(CALM)) == ["cleared"]


def test_nothing_is_called_unknown_in_the_first_fifteen_minutes() -> None:
    cycles = Cycles()
    silent = unknown(CALM, range(8))
    cycles.once(silent)
    cycles.now_s += DAY_S  # the service was down for a day, and its clock of silence with it
    assert reasons(cycles.once(silent)) == {Held.WARM_UP}
    assert cycles.until(silent, lambda d: bool(d.firing), HOUR_S) == 20 * MINUTE_S - STEP_S


def test_many_unknown_hosts_are_one_alert() -> None:
    everybody = calm_report(160)  # 20 hosts
    (alert,) = Cycles().run(unknown(everybody, range(160)), HOUR_S).firing
    assert alert.alertname == "GpuTelemetryUnknown"
    assert "hostname" not in alert.labels
    assert "20 hosts" in alert.annotations["summary"]


def test_a_flood_of_new_alerts_is_one_alert_with_the_list() -> None:
    decision = Cycles().once(lost(CALM, 12))
    (alert,) = decision.firing
    assert (alert.alertname, reasons(decision)) == ("HealthsvcAlertFlood", {Held.FLOOD})
    assert "GPU-0011" in alert.annotations["description"]


def test_alerts_below_the_limit_are_no_flood() -> None:
    assert len(Cycles().once(lost(CALM, 10)).firing) == 10


def test_alerts_of_the_last_ten_minutes_count_towards_the_flood() -> None:
    cycles = Cycles()
    cycles.once(lost(CALM, 8))
    cycles.now_s -= STEP_S - 60  # the next cycle comes a minute later
    assert len(cycles.once(lost(CALM, 11)).firing) == 8 + 1


def test_the_flood_guard_never_holds_back_terminal_facts_incidents_or_escalations() -> None:
    cycles = Cycles()
    cycles.run(with_probability(CALM, 31, "memory", week=0.3), 3 * HOUR_S)
    flood = changed(lost(CALM, 20), "terminal", ([30, 31], 1), True)
    decision = cycles.once(replace(flood, incidents=(cooling_incident(("GPU-0000",)),)))
    assert sorted(names(decision)) == [
        ("CoolingIncident", "", ""),
        ("GpuFailurePredicted", "memory", "T1"),
        ("GpuFailurePredicted", "memory", "T1"),
        ("HealthsvcAlertFlood", "", ""),
    ]


def test_a_predicted_escalation_passes_a_flood() -> None:
    cycles = Cycles()
    worse = with_probability(CALM, 31, "memory", week=0.3, terminal_week=0.2)
    cycles.run(with_probability(CALM, 31, "memory", week=0.3), 3 * HOUR_S)
    cycles.run(worse, 3 * HOUR_S - STEP_S)
    assert sorted(names(cycles.once(lost(worse, 20)))) == [
        ("GpuFailurePredicted", "memory", "T1"),
        ("HealthsvcAlertFlood", "", ""),
    ]


def test_a_flood_alert_ends_ten_minutes_after_the_last_folded_one() -> None:
    cycles = Cycles()
    cycles.once(lost(CALM, 12))
    assert cycles.until(CALM, lambda d: bool(d.resolved), DAY_S) == 10 * MINUTE_S
    assert not cycles.state.cases


def test_what_is_few_enough_fires_once_the_flood_window_has_passed() -> None:
    cycles = Cycles()
    cycles.once(lost(CALM, 12))
    decision = cycles.run(lost(CALM, 5), 20 * MINUTE_S)
    assert names(decision) == [("GpuFailurePredicted", "device_loss", "T2")] * 5


def lasting(count: int, first: int = 0) -> RiskReport:
    """GPUs of a hundred that have been at watch from the start and stay there."""
    report = calm_report(100)
    for row in range(first, first + count):
        report = with_probability(report, row, "thermal", week=0.001, month=0.02)
    return report


def test_a_flood_that_lasts_keeps_no_later_alert_waiting() -> None:
    cycles = Cycles()
    watched = lasting(12)
    cycles.run(watched, 5 * HOUR_S)
    later = changed(watched, "lost_s", 50, watched.as_of_s - 60)
    assert ("GpuFailurePredicted", "device_loss", "T2") in names(cycles.once(later))
    assert reasons(cycles.once(later)) == set()


def test_folded_alerts_follow_after_a_window_and_no_more_than_the_limit_in_each() -> None:
    cycles = Cycles()
    watched = lasting(23)
    decision = cycles.run(watched, 3 * HOUR_S)
    counts = [len(decision.firing)]
    for _ in range(4):
        decision = cycles.once(watched)  # a cycle is as long as the window
        counts.append(names(decision).count(("GpuDegrading", "thermal", "")))
    assert counts == [1, 10, 20, 23, 23]
    assert not decision.held
    assert all(case.folded_s is None for case in decision.state.cases.values())


def test_of_the_folded_the_gravest_follow_first() -> None:
    cycles = Cycles()
    watched = lasting(11)
    cycles.run(watched, 3 * HOUR_S)
    cycles.now_s -= STEP_S / 2
    both = changed(watched, "lost_s", slice(40, 60), watched.as_of_s - 60)
    cycles.once(both)
    cycles.now_s += STEP_S / 2
    assert names(cycles.once(both)).count(("GpuFailurePredicted", "device_loss", "T2")) == 10


def test_between_two_windows_a_folded_alert_waits() -> None:
    cycles = Cycles()
    cycles.once(lost(CALM, 12))
    for _ in range(9):
        cycles.now_s -= STEP_S - 60  # a cycle a minute
        (alert,) = cycles.once(lost(CALM, 12)).firing
        assert alert.alertname == "HealthsvcAlertFlood"
    cycles.now_s -= STEP_S - 60
    assert len(cycles.once(lost(CALM, 12)).firing) == 10 + 1
    cycles.now_s -= STEP_S - 60
    assert len(cycles.once(lost(CALM, 12)).firing) == 10 + 1
    assert "GPU-0011" in cycles.state.cases["flood"].alert.annotations["description"]  # type: ignore[union-attr]


def test_a_folded_condition_that_ends_is_new_when_it_comes_back() -> None:
    cycles = Cycles()
    cycles.once(lost(CALM, 12))
    cycles.once(CALM)
    assert reasons(cycles.once(lost(CALM, 12))) == {Held.FLOOD}


def test_a_folded_alert_that_turns_into_a_terminal_fact_fires_at_once() -> None:
    cycles = Cycles()
    cycles.once(lost(CALM, 12))
    cycles.now_s -= STEP_S - 60
    worse = changed(lost(CALM, 12), "terminal", (3, 2), True)
    assert ("GpuFailurePredicted", "device_loss", "T1") in names(cycles.once(worse))


def test_what_stood_before_an_outage_is_no_flood_after_it() -> None:
    cycles = Cycles()
    watched = lasting(25)
    before = cycles.run(watched, 4 * HOUR_S)
    assert len(before.firing) == 25
    cycles.state = take_over(cycles.state, cycles.now_s, "prometheus").state
    cycles.now_s += DAY_S
    after = cycles.once(watched)
    assert names(after) == names(before)
    assert Held.FLOOD not in reasons(after)


def test_after_hours_without_cycles_one_unknown_alert_takes_over_and_names_what_stood() -> None:
    cycles = Cycles()
    cycles.once(lost(CALM, 2))
    decision = take_over(cycles.state, cycles.now_s, "prometheus")
    (alert,) = decision.firing
    assert endings(decision) == ["taken_over", "taken_over"]
    assert "GPU-0001" in alert.annotations["took_over"]
    again = take_over(decision.state, cycles.now_s + 60, "prometheus")
    assert (again.firing, again.resolved) == (decision.firing, ())


def test_what_is_still_true_after_the_outage_fires_again_at_once() -> None:
    cycles = Cycles()
    cycles.run(with_probability(CALM, 0, "memory", week=0.3), 3 * HOUR_S)
    cycles.state = take_over(cycles.state, cycles.now_s, "prometheus").state
    cycles.now_s += DAY_S
    decision = cycles.once(with_probability(CALM, 0, "memory", week=0.3))
    assert names(decision) == [("GpuFailurePredicted", "memory", "T2")]


def test_a_source_outage_is_one_alert_about_the_source() -> None:
    alert = source_down("prometheus", "connection refused", 1.0)
    assert dict(alert.labels) == {"alertname": "HealthsvcSourceDown", "source": "prometheus", "severity": "warning"}
