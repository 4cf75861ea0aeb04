"""Evidence in words: plain, complete, and never more than is known."""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.fleet import CLASSES, Band, EventKind, FleetHistory, RiskReport
from healthsvc.fleet.causes import ThermalCause
from healthsvc.fleet.xids import DEVICE_LOSS_XIDS, MEMORY_XIDS
from healthsvc.guidance import WATCH_IT, XIDS, advise, counted, duration, percent
from healthsvc.guidance.words import few
from tests.histories import make_events
from tests.reports import DAY_S, HOUR_S, NOW_S, calm_report, changed, snapshot_of, unknown, with_probability

NAN = np.nan
THERMAL, MEMORY, DEVICE = range(3)
DEGRADING = dict.fromkeys(CLASSES, 1e-6)
RMA = re.compile(r"\bRMA\b|replace", re.IGNORECASE)
EVIDENCE = {
    "thermal": (
        "slope_ratio_per_day",
        "excess_ratio",
        "headroom_at_q95_load_celsius",
        "memory_headroom_at_q95_load_celsius",
        "node_excess_ratio",
        "loop_excess_ratio",
        "inlet_rise_celsius",
        "cause_code",
        "observed_days",
        "steady_windows",
        "reset_days",
    ),
    "memory": (
        "uncorrectable_remaps_30d_rows",
        "uncorrectable_episodes_90d_episodes",
        "correctable_errors_7d_errors",
        "correctable_errors_1h_errors",
        "sibling_errors_1h_errors",
        "correctable_rate_per_h",
        "correctable_error_days",
        "growth_exponent",
        "growth_exponent_low",
        "spares_at_worst_rows",
        "sram_threshold_exceeded_bool",
        "remap_pending_bool",
        "remap_failure_bool",
    ),
    "device_loss": ("device_episodes_30d_episodes",),
}


def with_evidence(report: RiskReport, **evidence: Mapping[str, float]) -> RiskReport:
    """The same numbers for every GPU: class -> name -> value."""
    columns = {
        name: {key: np.full(len(report.gpus), value, np.float32) for key, value in values.items()}
        for name, values in evidence.items()
    }
    return replace(report, evidence={**report.evidence, **columns})


def history_of(report: RiskReport, *events: tuple[int, float, EventKind, float]) -> FleetHistory:
    return replace(snapshot_of(report).history, events=make_events(*events))


def said(report: RiskReport, *events: tuple[int, float, EventKind, float]) -> tuple[tuple[str, ...], str]:
    """Reasons and action for the first GPU."""
    advised = advise(report, history_of(report, *events), DEGRADING)
    return advised.reasons[0], advised.actions[0]


def at_watch(name: str, week: float = 0.05, band: Band = Band.WATCH) -> RiskReport:
    """One GPU whose only trouble is of this class."""
    report = with_probability(calm_report(1), 0, name, week=week)
    report = changed(report, "share", (0, CLASSES.index(name)), 0.9)
    report = changed(report, "class_band", (0, CLASSES.index(name)), band)
    return changed(report, "band", 0, band)


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0, "under 0.1 %"),
        (0.0009, "under 0.1 %"),
        (0.0012, "0.12 %"),
        (0.0456, "4.6 %"),
        (0.3, "30 %"),
        (0.994, "99 %"),
        (0.999, "over 99 %"),
        (NAN, "unknown"),
    ],
)
def test_a_probability_is_said_as_people_say_it(p: float, text: str) -> None:
    assert percent(p) == text


@given(st.floats(0, 1, allow_nan=False))
def test_no_probability_is_said_in_scientific_notation(p: float) -> None:
    assert re.fullmatch(r"(under |over )?\d+(\.\d+)? %", percent(p))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 min"),
        (600.0, "10 min"),
        (2 * HOUR_S, "2 h"),
        (47 * HOUR_S, "47 h"),
        (2 * DAY_S, "2 days"),
        (9.6 * DAY_S, "10 days"),
        (NAN, "an unknown time"),
    ],
)
def test_a_length_of_time_is_said_as_people_say_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_agree_with_their_nouns() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 12345, NAN)] == [
        "0 rows",
        "1 row",
        "2 rows",
        "12,345 rows",
        "an unknown number of rows",
    ]


# -- sentences --------------------------------------------------------------------------------------------------------


def test_a_drifting_gpu_is_told_with_its_slope_its_room_and_its_time() -> None:
    report = changed(at_watch("thermal"), "time_to_limit_s", (0, THERMAL), [6 * DAY_S, 9 * DAY_S, 21 * DAY_S])
    evidence = {"slope_ratio_per_day": 0.012, "excess_ratio": 0.21, "headroom_at_q95_load_celsius": 4.0}
    assert said(with_evidence(report, thermal=evidence)) == (
        (
            "Thermal resistance rises 1.20 % a day against its node, +21 % so far",
            "At the load it meets it runs 4 C below the limit",
            "Time to the limit: 9 days (80 % interval 6 days to 21 days)",
            "Thermal throttling that costs work within 7 days: 5 % (calibrated)",
        ),
        "Plan an inspection of its thermal interface and cold plate or heat sink; cap its power until then.",
    )


def test_a_gpu_that_throttles_now_is_told_that_first() -> None:
    report = changed(at_watch("thermal", 0.6, Band.DEGRADED), "open_events", (0, THERMAL), True)
    reasons, action = said(with_evidence(report, thermal={"headroom_at_q95_load_celsius": -2.0}))
    assert reasons[:2] == (
        "Throttled by heat for at least 30 % of the last hour",
        "At the load it meets it runs 2 C above the limit",
    )
    assert action.startswith("Move load away or cap its power now")


@pytest.mark.parametrize(
    ("cause", "sign", "action"),
    [
        (ThermalCause.NONE, None, "Plan an inspection of its thermal interface and cold plate or heat sink"),
        (ThermalCause.THERMAL_PATH, None, "Plan an inspection of its thermal interface and cold plate or heat sink"),
        (ThermalCause.INTERFACE, "Its memory does not follow", "Plan to renew its thermal interface material"),
        (ThermalCause.COLD_PLATE, "Its memory resists more too", "Plan to clean its cold plate or heat sink"),
        (ThermalCause.NODE_AIRFLOW, "All GPUs of its node resist 12 % more", "Check the node's fans and filter"),
        (ThermalCause.LOOP_FLOW, "All nodes of its loop resist 30 % more", "Check the pump, the flow"),
        (ThermalCause.SUPPLY_WARM, "Its inlet is 6 C warmer", "Lower the supply temperature"),
        (ThermalCause.SENSOR, "It came in one step", "Reset it and compare it with its neighbours"),
    ],
)
def test_each_cause_of_heat_has_its_sign_and_its_action(cause: ThermalCause, sign: str | None, action: str) -> None:
    evidence = {
        "cause_code": float(cause),
        "node_excess_ratio": 0.12,
        "loop_excess_ratio": 0.3,
        "inlet_rise_celsius": 6.0,
    }
    reasons, advice = said(with_evidence(at_watch("thermal"), thermal=evidence))
    assert advice.startswith(action)
    assert (len(reasons) == 1) if sign is None else reasons[0].startswith(sign)


def test_memory_that_meets_its_limit_first_is_told() -> None:
    evidence = {"headroom_at_q95_load_celsius": 12.0, "memory_headroom_at_q95_load_celsius": 3.0}
    reasons, _ = said(with_evidence(at_watch("thermal"), thermal=evidence))
    assert "Its memory comes first, 3 C below its limit" in reasons


@pytest.mark.parametrize(
    ("grounds", "told"),
    [
        ({"observed_days": 3.0, "steady_windows": 12.0, "reset_days": NAN}, "3 of 7 days with steady load; its days"),
        ({"observed_days": 0.0, "steady_windows": NAN, "reset_days": NAN}, "0 of 7 days with steady load"),
        ({"observed_days": 2.0, "steady_windows": 90.0, "reset_days": 3.0}, "began anew 3 days ago"),
        ({"observed_days": 30.0, "steady_windows": 90.0, "reset_days": NAN}, None),
    ],
)
def test_why_there_is_no_thermal_trend_is_said(grounds: dict[str, float], told: str | None) -> None:
    reasons, _ = said(with_evidence(unknown(calm_report(1), [0]), thermal=grounds))
    assert (len(reasons) == 1) if told is None else told in reasons[1]


def test_an_open_memory_event_is_told_with_its_xid_and_its_remaps() -> None:
    report = changed(at_watch("memory", 0.45, Band.DEGRADED), "open_events", (0, MEMORY), True)
    report = changed(report, "calibrated", (0, MEMORY), False)
    evidence = {
        "uncorrectable_episodes_90d_episodes": 2.0,
        "uncorrectable_remaps_30d_rows": 1.0,
        "remap_pending_bool": 1.0,
        "correctable_errors_7d_errors": 5.0,
    }
    assert said(with_evidence(report, memory=evidence), (0, NOW_S - 3 * HOUR_S, EventKind.XID, 48.0)) == (
        (
            "XID 48 (double-bit ECC error) 3 h ago",
            "2 uncorrectable memory episodes in 90 days, 1 row remapped in 30",
            "A row remap waits for a reset",
            "Uncorrectable memory error within 7 days: 45 % (prior)",
        ),
        "Drain the node and reset the GPU, which applies pending remaps; run the field diagnostic if it recurs.",
    )


def test_a_failed_remap_is_a_case_for_the_vendor() -> None:
    report = changed(at_watch("memory", 0.999, Band.CRITICAL), "terminal", (0, MEMORY), True)
    reasons, action = said(with_evidence(report, memory={"remap_failure_bool": 1.0}))
    assert reasons[0] == "A row remap has failed: its memory can no longer repair itself"
    assert action == "Drain the node, confirm with the field diagnostic and open an RMA case."


def test_no_failed_remap_is_claimed_where_another_fact_is_terminal() -> None:
    report = changed(at_watch("memory", 0.999, Band.CRITICAL), "terminal", (0, MEMORY), True)
    reasons, _ = said(report, (0, NOW_S - 1200, EventKind.XID, 161.0))
    assert reasons[:2] == (
        "Its memory can no longer repair itself",
        "XID 161 (HBM channel repair failed) 20 min ago",
    )


def test_a_lost_gpu_is_told_since_when_and_what_to_restart() -> None:
    report = changed(at_watch("device_loss", 0.999, Band.CRITICAL), "open_events", (0, DEVICE), True)
    report = changed(report, "lost_s", 0, NOW_S - 40 * 60)
    report = with_evidence(report, device_loss={"device_episodes_30d_episodes": 1.0})
    assert said(report, (0, NOW_S - 41 * 60, EventKind.XID, 79.0)) == (
        (
            "Lost: no sample for 40 min while other GPUs of its node answer",
            "XID 79 (GPU has fallen off the bus) 41 min ago",
            "1 device episode in 30 days",
            "Device loss within 7 days: over 99 % (calibrated)",
        ),
        "Drain the node and restart it; if the GPU does not return or is lost again within 14 days, RMA.",
    )


def test_a_worn_sram_is_told_as_such() -> None:
    report = changed(at_watch("memory", 0.999, Band.CRITICAL), "terminal", (0, MEMORY), True)
    reasons, action = said(with_evidence(report, memory={"sram_threshold_exceeded_bool": 1.0}))
    assert reasons[0] == "Uncorrectable errors of its on-chip memory have passed the limit that NVIDIA sets (SRAM)"
    assert "RMA" in action


def test_a_storm_is_told_with_its_rate_and_its_siblings() -> None:
    evidence = {
        "correctable_errors_1h_errors": 17_700.0 * HOUR_S,
        "sibling_errors_1h_errors": 0.0,
        "correctable_rate_per_h": 0.02,
    }
    report = changed(at_watch("memory", 0.001), "change_p", (0, MEMORY), 1e-9)
    reasons, action = said(with_evidence(report, memory=evidence))
    assert reasons[0] == (
        "63,720,000 correctable errors in the last whole hour (17,700 a second), 0 on all of its siblings together; "
        "usual are 0.02 an hour"
    )
    assert action == WATCH_IT
    few = {**evidence, "correctable_errors_1h_errors": 1200.0, "sibling_errors_1h_errors": NAN}
    assert said(with_evidence(report, memory=few))[0][0] == (
        "1,200 correctable errors in the last whole hour; usual are 0.02 an hour"
    )


def test_errors_that_may_be_coming_faster_are_told_only_if_the_interval_says_so() -> None:
    evidence = {"growth_exponent": 2.3, "growth_exponent_low": 1.2, "correctable_error_days": 9.0}
    told = "Correctable errors may be coming faster (exponent 2.3 on 9 days with errors)"
    assert told in said(with_evidence(at_watch("memory", 0.1), memory=evidence))[0]
    for low in (0.9, NAN):
        assert (
            told not in said(with_evidence(at_watch("memory", 0.1), memory={**evidence, "growth_exponent_low": low}))[0]
        )


@pytest.mark.parametrize(
    ("number", "told"), [(4200.0, "4,200"), (120.4, "120"), (3.14, "3.1"), (0.02, "0.02"), (0.00003, "0.00003")]
)
def test_small_and_large_numbers_are_written_out(number: float, told: str) -> None:
    assert few(number) == told


def test_spare_rows_that_may_run_out_are_told_with_their_time() -> None:
    report = with_evidence(at_watch("memory", 0.3, Band.DEGRADED), memory={"spares_at_worst_rows": 3.0})
    dated = changed(report, "time_to_limit_s", (0, MEMORY), [10 * DAY_S, 30 * DAY_S, NAN])
    reasons, _ = said(dated)
    assert (
        "At worst one bank has 3 spare rows left; it would be used up in 30 days, 80 % interval 10 days to "
        "beyond 180 days"
    ) in reasons
    assert "At worst one bank has 3 spare rows left" in said(report)[0]
    assert not any("spare row" in each for each in said(with_evidence(report, memory={"spares_at_worst_rows": 8.0}))[0])


def test_correctable_errors_alone_never_ask_for_a_replacement() -> None:
    report = with_evidence(at_watch("memory", 0.3, Band.DEGRADED), memory={"correctable_errors_7d_errors": 17_700.0})
    reasons, action = said(report, (0, NOW_S - HOUR_S, EventKind.XID, 92.0))
    assert "17,700 correctable errors in 7 days; alone they do not predict a failure" in reasons
    assert action == WATCH_IT
    assert not any(RMA.search(text) for text in (*reasons, action))


def test_the_gravest_class_speaks_first_and_its_action_is_the_action() -> None:
    report = with_probability(at_watch("thermal", 0.5, Band.CRITICAL), 0, "memory", week=0.1)
    report = changed(report, "terminal", (0, MEMORY), True)
    reasons, action = said(report)
    assert reasons[0] == "Its memory can no longer repair itself"
    assert reasons[-1].startswith("Thermal throttling that costs work within 7 days: 50 %")
    assert "RMA" in action


def test_a_gpu_held_at_watch_by_hysteresis_is_told_of_the_class_that_holds_it() -> None:
    reasons, action = said(at_watch("memory", 0.004))
    assert reasons == ("Uncorrectable memory error within 7 days: 0.4 % (calibrated)",)
    assert action == WATCH_IT


def test_a_band_that_no_class_explains_still_gets_a_reason() -> None:
    reasons, action = said(changed(with_probability(calm_report(1), 0, "memory", week=0.004), "band", 0, Band.WATCH))
    assert reasons == ("Its risk stands above the fleet's",)
    assert action == WATCH_IT


def test_of_an_unknown_gpu_what_is_missing_is_said_and_nothing_else() -> None:
    report = changed(unknown(calm_report(2), [0, 1]), "observed", (1, THERMAL), True)
    advised = advise(report, history_of(report), DEGRADING)
    assert advised.reasons == {
        0: ("Too little telemetry to judge it: nothing observed for thermal, memory, device loss",),
        1: ("Too little telemetry to judge it: nothing observed for memory, device loss",),
    }
    assert all("enable the missing fields" in action for action in advised.actions.values())


def test_an_open_event_of_a_silent_gpu_claims_no_probability() -> None:
    """Nothing is observed, so P is NaN; it must not be read as a large number."""
    report = changed(unknown(calm_report(1), [0]), "band", 0, Band.DEGRADED)
    report = changed(changed(report, "probability", 0, NAN), "open_events", (0, MEMORY), True)
    reasons, _ = said(report, (0, NOW_S - 5 * HOUR_S, EventKind.XID, 48.0))
    assert reasons == (
        "XID 48 (double-bit ECC error) 5 h ago",
        "Uncorrectable memory error within 7 days: unknown, nothing is observed",
    )


def test_healthy_gpus_get_no_words() -> None:
    report = calm_report(3)
    advised = advise(report, history_of(report), DEGRADING)
    assert (dict(advised.reasons), dict(advised.actions)) == ({}, {})


def test_every_hardware_xid_has_its_words() -> None:
    assert set(XIDS) >= {*MEMORY_XIDS, *DEVICE_LOSS_XIDS}


maybe = st.one_of(st.just(NAN), st.floats(-1e6, 1e9, allow_subnormal=False))
flags = st.lists(st.booleans(), min_size=3, max_size=3)


@given(
    evidence=st.fixed_dictionaries({n: st.fixed_dictionaries(dict.fromkeys(k, maybe)) for n, k in EVIDENCE.items()}),
    times=st.lists(st.one_of(st.just(NAN), st.floats(0, 1e8)), min_size=9, max_size=9),
    chances=st.lists(st.one_of(st.just(NAN), st.floats(0, 0.999)), min_size=3, max_size=3),
    share=st.lists(st.one_of(st.just(NAN), st.floats(0, 1)), min_size=3, max_size=3),
    seen=flags,
    open_=flags,
    terminal=flags,
    lost_s=st.one_of(st.just(NAN), st.floats(NOW_S - 1e6, NOW_S + 10)),
    band=st.sampled_from(Band),
    xid=st.sampled_from([*MEMORY_XIDS, *DEVICE_LOSS_XIDS, 31]),
)
@settings(max_examples=120, deadline=None)
def test_whatever_is_known_or_not_every_band_has_its_words_and_none_says_nan(
    evidence: dict[str, dict[str, float]],
    times: list[float],
    chances: list[float],
    share: list[float],
    seen: list[bool],
    open_: list[bool],
    terminal: list[bool],
    lost_s: float,
    band: Band,
    xid: int,
) -> None:
    report = changed(calm_report(1), "time_to_limit_s", 0, np.array(times).reshape(3, 3))
    report = changed(report, "probability", 0, np.array(chances)[:, None, None])
    for name, value in (("share", share), ("observed", seen), ("open_events", open_), ("terminal", terminal)):
        report = changed(report, name, 0, value)
    report = changed(changed(report, "lost_s", 0, lost_s), "band", 0, band)
    report = with_evidence(report, **evidence)
    advised = advise(report, history_of(report, (0, NOW_S - 60, EventKind.XID, float(xid))), DEGRADING)
    if band == Band.HEALTHY:
        assert not advised.reasons
        return
    reasons, action = advised.reasons[0], advised.actions[0]
    assert reasons
    assert action
    for text in (*reasons, action):
        assert not re.search(r"\b(nan|inf|none)\b", text, re.IGNORECASE), text
    if RMA.search(action):
        assert any(terminal) or not np.isnan(lost_s)
