"""The rules that users have today: each fires on what it is made for, and is silent or fooled where it says so."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.evaluation.baselines import (
    AlarmSpans,
    Baseline,
    DcgmHealth,
    PeerTemperature,
    PredictLinear,
    PredictLinearDaily,
    Recurrence,
    StaticRules,
    draw_spans,
    episodes_of,
    standard_baselines,
)
from healthsvc.evaluation.baselines.base import carried, held, summed
from healthsvc.evaluation.baselines.linear import extrapolated
from healthsvc.evaluation.baselines.spans import CLEAR_S
from healthsvc.evaluation.baselines.static_rules import correctable_errors
from healthsvc.fleet import CLASSES, DAY_S, HOUR_S, EventKind, FleetHistory, FleetWindow, Floats, GpuId, Signal
from tests.histories import NOW_S, flat_window, make_daily, make_events, make_gpus, make_history, make_window

THERMAL, MEMORY, DEVICE = range(3)
WARN = DcgmHealth(warnings=True)


def changed(window: FleetWindow, signal: Signal, row: int, columns: slice, value: float) -> FleetWindow:
    """`signal` (0 everywhere if it was absent) with one stretch of one GPU changed."""
    array = np.array(window.values.get(signal, np.zeros((len(window.gpus), len(window.times_s)), np.float32)))
    array[row, columns] = value
    return FleetWindow(window.gpus, window.times_s, {**window.values, signal: array})


def alarmed(baseline: Baseline, history: FleetHistory) -> set[tuple[int, str]]:
    rows, columns = np.nonzero(baseline.alarms(history))
    return {(int(row), CLASSES[column]) for row, column in zip(rows, columns, strict=True)}


def with_event(kind: EventKind, value: float = 1.0, ago_s: float = 60.0) -> FleetHistory:
    return make_history(flat_window(4), events=make_events((1, NOW_S - ago_s, kind, value)))


def with_daily(days: int = 20, **features: Floats) -> FleetHistory:
    count = len(next(iter(features.values())))
    return make_history(flat_window(count), make_daily(make_gpus(count), days, features))


@pytest.mark.parametrize("baseline", standard_baselines(300.0), ids=lambda b: b.name)
def test_a_healthy_fleet_alarms_nobody(baseline: Baseline) -> None:
    days = np.full((8, 20), 0.0)
    daily = make_daily(make_gpus(8), 20, {"sbe_errors": days, "gpu_temperature_q95_celsius": days + 60})
    alarms = baseline.alarms(make_history(flat_window(8), daily))
    assert alarms.shape == (8, len(CLASSES))
    assert alarms.dtype == bool
    assert not alarms.any()


@pytest.mark.parametrize("baseline", standard_baselines(3600.0), ids=lambda b: b.name)
def test_a_fleet_without_samples_alarms_nobody(baseline: Baseline) -> None:
    window = make_window({Signal.GPU_TEMPERATURE: np.full((4, 120), np.nan)})
    assert not baseline.alarms(make_history(window)).any()


@pytest.mark.parametrize("baseline", standard_baselines(300.0), ids=lambda b: b.name)
def test_permuting_gpus_permutes_alarms(baseline: Baseline) -> None:
    window = changed(flat_window(8), Signal.GPU_TEMPERATURE, 2, slice(-60, None), 91.0)
    window = changed(window, Signal.PCIE_REPLAYS, 5, slice(-3, None), 90.0)
    window = changed(window, Signal.SOFTWARE_THERMAL_THROTTLE, 6, slice(-3, None), 9.0)
    q95 = np.full((8, 20), 60.0)
    q95[4] += np.arange(20)
    daily = make_daily(make_gpus(8), 20, {"gpu_temperature_q95_celsius": q95, "thermal_throttle_s": q95 * 19})
    events = make_events((1, NOW_S - 60, EventKind.XID, 79.0), (7, NOW_S - DAY_S, EventKind.DOUBLE_BIT_ERROR, 1.0))
    history = make_history(window, daily, events)
    order = np.array([3, 1, 7, 0, 2, 6, 5, 4])
    np.testing.assert_array_equal(baseline.alarms(history.take(order)), baseline.alarms(history)[order])


def test_the_rows_of_the_table_are_named_apart() -> None:
    names = [baseline.name.split()[0] for baseline in standard_baselines(300.0)]
    assert names == ["b0", "b0w", "b1", "b2", "b2d", "b3", "b4"]


# --- b0: DCGM


@pytest.mark.parametrize(
    ("kind", "value", "fail", "warn"),
    [
        (EventKind.XID, 48.0, "memory", "memory"),
        (EventKind.XID, 64.0, "memory", "memory"),
        (EventKind.XID, 79.0, "device_loss", "device_loss"),
        (EventKind.XID, 120.0, "device_loss", "device_loss"),
        (EventKind.XID, 94.0, None, "memory"),
        (EventKind.XID, 31.0, None, "memory"),
        (EventKind.XID, 62.0, None, "thermal"),
        (EventKind.XID, 13.0, None, None),
        (EventKind.DOUBLE_BIT_ERROR, 1.0, "memory", "memory"),
    ],
)
def test_dcgm_fails_and_warns_by_event(kind: EventKind, value: float, fail: str | None, warn: str | None) -> None:
    history = with_event(kind, value)
    assert alarmed(DcgmHealth(), history) == ({(1, fail)} if fail else set())
    assert alarmed(WARN, history) == ({(1, warn)} if warn else set())


def test_an_xid_is_news_until_the_next_evaluation_only() -> None:
    history = with_event(EventKind.XID, 79.0, ago_s=1000.0)
    assert not alarmed(DcgmHealth(every_s=300.0), history)
    assert alarmed(DcgmHealth(every_s=3600.0), history) == {(1, "device_loss")}


def test_a_volatile_double_bit_error_stands_until_the_driver_is_reloaded() -> None:
    error, reload = (1, NOW_S - 9 * DAY_S, EventKind.DOUBLE_BIT_ERROR, 1.0), EventKind.DRIVER_RELOAD
    standing = make_history(flat_window(4), events=make_events(error, (1, NOW_S - 10 * DAY_S, reload, 1.0)))
    cleared = make_history(flat_window(4), events=make_events(error, (1, NOW_S - 8 * DAY_S, reload, 1.0)))
    for baseline in (DcgmHealth(), StaticRules()):
        assert alarmed(baseline, standing) == {(1, "memory")}
        assert not alarmed(baseline, cleared)


def test_a_failed_remap_is_a_failure() -> None:
    history = make_history(changed(flat_window(4), Signal.REMAP_FAILURE, 3, slice(None), 1.0))
    assert alarmed(DcgmHealth(), history) == alarmed(StaticRules(), history) == {(3, "memory")}


def test_retired_pages_fail_by_number_or_by_growth() -> None:
    pages = np.zeros((4, 20), np.float32)
    pages[0, 0] = 63
    pages[1, 0], pages[1, -1] = 14, 2
    pages[2, 0] = 16
    pages[3, -1] = 15
    assert alarmed(DcgmHealth(), with_daily(retired_pages_pages=pages)) == {(0, "memory"), (1, "memory")}


def test_512_remapped_rows_are_a_warning() -> None:
    rows = np.zeros((4, 20), np.float32)
    rows[2] = 26.0
    history = with_daily(uncorrectable_remaps_rows=rows)
    assert alarmed(WARN, history) == {(2, "memory")}
    assert not alarmed(DcgmHealth(), history)


@pytest.mark.parametrize(("step_s", "a_column"), [(10.0, 6.0), (60.0, 32.0), (300.0, 160.0)])
def test_pcie_replays_warn_above_31_a_minute_whatever_the_step(step_s: float, a_column: float) -> None:
    window = changed(flat_window(4, 120, step_s=step_s), Signal.PCIE_REPLAYS, 1, slice(-6, None), a_column)
    assert alarmed(WARN, make_history(window)) == {(1, "device_loss")}
    calm = changed(window, Signal.PCIE_REPLAYS, 1, slice(None), a_column * 0.8)
    assert not alarmed(WARN, make_history(calm))


def test_replays_that_a_gap_gathered_are_spread_over_it() -> None:
    window = changed(flat_window(4), Signal.PCIE_REPLAYS, 1, slice(-31, -1), np.nan)
    window = changed(window, Signal.PCIE_REPLAYS, 1, slice(-1, None), 300.0)
    assert not alarmed(WARN, make_history(window))


def test_a_millisecond_of_throttling_is_a_warning() -> None:
    history = make_history(changed(flat_window(4), Signal.SOFTWARE_THERMAL_THROTTLE, 1, slice(-2, -1), 0.001))
    assert alarmed(WARN, history) == {(1, "thermal")}
    assert not alarmed(DcgmHealth(), history)


# --- b1: static rules


@pytest.mark.parametrize(
    ("signal", "limit"), [(Signal.GPU_TEMPERATURE, 85.0), (Signal.MEMORY_TEMPERATURE, 95.0)], ids=["gpu", "memory"]
)
def test_a_fixed_limit_must_be_passed_for_five_minutes(signal: Signal, limit: float) -> None:
    base = changed(flat_window(4), signal, 1, slice(None), 50.0)

    def alarms(columns: slice, value: float, every_s: float = 300.0) -> set[tuple[int, str]]:
        return alarmed(StaticRules(every_s), make_history(changed(base, signal, 1, columns, value)))

    assert alarms(slice(-6, None), limit + 1) == {(1, "thermal")}
    assert not alarms(slice(-5, None), limit + 1)
    assert not alarms(slice(-60, None), limit)
    assert not alarms(slice(-30, -15), limit + 1)
    assert alarms(slice(-30, -15), limit + 1, every_s=3600.0) == {(1, "thermal")}


def test_one_missed_scrape_does_not_restart_the_hold() -> None:
    window = changed(flat_window(4), Signal.GPU_TEMPERATURE, 1, slice(-7, None), 90.0)
    window = changed(window, Signal.GPU_TEMPERATURE, 1, slice(-4, -3), np.nan)
    assert alarmed(StaticRules(), make_history(window)) == {(1, "thermal")}


def test_a_gpu_that_went_silent_while_hot_does_not_stay_hot() -> None:
    window = changed(flat_window(4), Signal.GPU_TEMPERATURE, 1, slice(0, -20), 90.0)
    window = changed(window, Signal.GPU_TEMPERATURE, 1, slice(-20, None), np.nan)
    assert not alarmed(StaticRules(), make_history(window))


def test_throttling_alarms_for_five_minutes_after_it() -> None:
    recent = changed(flat_window(4), Signal.SOFTWARE_THERMAL_THROTTLE, 1, slice(-9, -8), 1.0)
    older = changed(flat_window(4), Signal.SOFTWARE_THERMAL_THROTTLE, 1, slice(-12, -11), 1.0)
    assert alarmed(StaticRules(), make_history(recent)) == {(1, "thermal")}
    assert not alarmed(StaticRules(), make_history(older))


@pytest.mark.parametrize(("code", "failure_class"), [(48, "memory"), (62, "device_loss"), (79, "device_loss")])
def test_an_xid_of_the_list_alarms_its_class(code: int, failure_class: str) -> None:
    assert alarmed(StaticRules(), with_event(EventKind.XID, code)) == {(1, failure_class)}


@pytest.mark.parametrize("code", [13, 31, 43, 63, 94])
def test_an_xid_that_is_not_on_the_list_is_passed_over(code: int) -> None:
    assert not alarmed(StaticRules(), with_event(EventKind.XID, code))


def test_a_changed_xid_is_remembered_for_five_minutes_whatever_the_step() -> None:
    assert alarmed(StaticRules(every_s=60.0), with_event(EventKind.XID, 79.0, ago_s=290.0))
    assert not alarmed(StaticRules(every_s=60.0), with_event(EventKind.XID, 79.0, ago_s=310.0))


def test_a_pending_remap_alarms_the_memory() -> None:
    history = make_history(changed(flat_window(4), Signal.REMAP_PENDING, 2, slice(None), 1.0))
    assert alarmed(StaticRules(), history) == {(2, "memory")}


def test_more_than_a_hundred_correctable_errors_a_day_alarm() -> None:
    window = flat_window(2, extra={Signal.SBE_AGGREGATE: 0.0})
    quiet, loud = changed(window, Signal.SBE_AGGREGATE, 1, slice(-1, None), 100.0), 101.0
    assert not alarmed(StaticRules(), make_history(quiet))
    history = make_history(changed(window, Signal.SBE_AGGREGATE, 1, slice(-1, None), loud))
    assert alarmed(StaticRules(), history) == {(1, "memory")}


def test_yesterdays_errors_count_as_far_as_they_are_younger_than_a_day() -> None:
    errors = np.array([[500.0, 80.0, 30.0], [np.nan, 80.0, np.nan]])
    window = flat_window(2)
    daily = replace(make_daily(window.gpus, 3, {"sbe_errors": errors}), unfinished=True)
    now_s = NOW_S - DAY_S / 4  # three quarters of the last column's day
    at_six = FleetWindow(window.gpus, window.times_s - DAY_S / 4, window.values)
    assert at_six.now_s == now_s
    np.testing.assert_allclose(correctable_errors(make_history(at_six, daily)), [30 + 20, 20])


# --- b2: predict_linear


@pytest.mark.parametrize(("degrees_an_hour", "expected"), [(0.0, False), (0.1, False), (0.2, True), (-5.0, False)])
def test_a_slope_of_two_hours_is_drawn_on_for_a_week(degrees_an_hour: float, expected: bool) -> None:
    hours = np.arange(-119, 1) / 60.0
    window = make_window({Signal.GPU_TEMPERATURE: np.tile(60.0 + degrees_an_hour * hours, (2, 1))})
    assert PredictLinear().alarms(make_history(window))[:, THERMAL].tolist() == [expected] * 2


def test_a_job_that_starts_fools_the_straight_line() -> None:
    window = changed(flat_window(2), Signal.GPU_TEMPERATURE, 1, slice(0, 60), 45.0)
    assert alarmed(PredictLinear(), make_history(window)) == {(1, "thermal")}


def test_a_reported_limit_beats_the_boards() -> None:
    window = changed(flat_window(2), Signal.GPU_TEMPERATURE, 1, slice(0, 1), 60.5)  # falls a little
    window = changed(window, Signal.GPU_MAX_OPERATING_LIMIT, 1, slice(None), 50.0)
    window = changed(window, Signal.GPU_MAX_OPERATING_LIMIT, 0, slice(None), np.nan)
    assert alarmed(PredictLinear(), make_history(window)) == {(1, "thermal")}


def test_an_unknown_board_without_a_limit_has_nothing_to_reach() -> None:
    window = changed(flat_window(2), Signal.GPU_TEMPERATURE, 1, slice(0, 60), 45.0)
    nameless = tuple(replace(gpu, product="Elsewhere 1") for gpu in window.gpus)
    assert not alarmed(PredictLinear(), make_history(FleetWindow(nameless, window.times_s, window.values)))


def test_two_weeks_of_rising_days_reach_the_limit() -> None:
    q95 = np.tile(np.linspace(61.0, 80.0, 20), (3, 1))  # a degree a day, 7 below the limit
    q95[1] = 80.0
    q95[2, :-6] = np.nan  # six days are too few
    assert alarmed(PredictLinearDaily(), with_daily(gpu_temperature_q95_celsius=q95)) == {(0, "thermal")}


def test_the_day_that_is_not_over_bends_no_line() -> None:
    window = flat_window(1)
    q95 = np.array([[60.0] * 19 + [130.0]])
    daily = replace(make_daily(window.gpus, 20, {"gpu_temperature_q95_celsius": q95}), unfinished=True)
    at_noon = FleetWindow(window.gpus, window.times_s - DAY_S / 2, window.values)
    assert not alarmed(PredictLinearDaily(), make_history(at_noon, daily))
    assert alarmed(PredictLinearDaily(), make_history(window, daily)) == {(0, "thermal")}


@given(
    st.lists(st.one_of(st.none(), st.floats(20, 95)), min_size=3, max_size=30),
    st.floats(0, 7 * DAY_S),
)
def test_the_line_is_the_least_squares_one(samples: list[float | None], ahead_s: float) -> None:
    times = NOW_S + 60.0 * np.arange(float(len(samples)))
    values = np.array([[np.nan if v is None else v for v in samples]])
    found = extrapolated(times, values, float(times[-1]) + ahead_s)
    seen = ~np.isnan(values[0])
    if seen.sum() < 2:
        assert np.isnan(found[0])
        return
    slope, level = np.polyfit((times - times[-1])[seen] / HOUR_S, values[0, seen], 1)
    np.testing.assert_allclose(found[0], level + slope * ahead_s / HOUR_S, rtol=1e-6, atol=1e-4)


# --- b3: peers


def test_a_gpu_hotter_than_its_peers_for_half_an_hour_alarms() -> None:
    long = changed(flat_window(8), Signal.GPU_TEMPERATURE, 3, slice(-31, None), 64.0)
    short = changed(flat_window(8), Signal.GPU_TEMPERATURE, 3, slice(-30, None), 64.0)
    assert alarmed(PeerTemperature(), make_history(long)) == {(3, "thermal")}
    assert not alarmed(PeerTemperature(), make_history(short))


def test_three_degrees_above_a_calm_node_are_within_the_sensor() -> None:
    window = changed(flat_window(8), Signal.GPU_TEMPERATURE, 3, slice(None), 63.0)
    assert not alarmed(PeerTemperature(), make_history(window))


def test_a_cold_gpu_and_a_hot_node_are_no_outliers() -> None:
    window = changed(flat_window(16), Signal.GPU_TEMPERATURE, 3, slice(None), 30.0)
    for row in range(8, 16):
        window = changed(window, Signal.GPU_TEMPERATURE, row, slice(None), 90.0)
    assert not alarmed(PeerTemperature(), make_history(window))


def test_two_gpus_have_no_peers() -> None:
    window = changed(flat_window(4, per_node=2), Signal.GPU_TEMPERATURE, 3, slice(None), 90.0)
    assert not alarmed(PeerTemperature(), make_history(window))


# --- b4: recurrence


@pytest.mark.parametrize(("ago_days", "expected"), [(29.0, {(1, "memory")}), (31.0, set())])
def test_an_event_is_remembered_for_thirty_days(ago_days: float, expected: set[tuple[int, str]]) -> None:
    assert alarmed(Recurrence(), with_event(EventKind.XID, 94.0, ago_days * DAY_S)) == expected


def test_a_loss_is_remembered_as_one_and_a_precursor_is_not() -> None:
    assert alarmed(Recurrence(), with_event(EventKind.LOST)) == {(1, "device_loss")}
    assert not alarmed(Recurrence(), with_event(EventKind.XID, 63.0))


def test_a_day_with_the_dose_of_an_hour_is_remembered() -> None:
    throttled = np.zeros((8, 40), np.float32)
    throttled[1, -20], throttled[2, -35], throttled[3, -5] = 1080.0, 1080.0, 1000.0
    assert alarmed(Recurrence(), with_daily(40, thermal_throttle_s=throttled)) == {(1, "thermal")}


def test_a_day_on_which_the_whole_node_throttled_is_not_the_gpus_own() -> None:
    throttled = np.zeros((8, 20), np.float32)
    throttled[:3, -5] = 3000.0
    assert not alarmed(Recurrence(), with_daily(thermal_throttle_s=throttled))


# --- from flags to alerts


def spans_of(flags: str, step_s: float = HOUR_S, cooldown_s: float = 0.0) -> list[tuple[float, float]]:
    """Raised and cleared, in steps, of one GPU's flags."""
    steps = [(i * step_s, np.array([[c == "x", False, False]])) for i, c in enumerate(flags)]
    spans = episodes_of(steps, cooldown_s=cooldown_s)
    return list(zip((spans.raised_s / step_s).tolist(), (spans.cleared_s / step_s).tolist(), strict=True))


def test_flapping_is_one_alert() -> None:
    assert spans_of("x.x..x.x.....x.......") == [(0, 20)]


def test_six_calm_hours_end_an_alert() -> None:
    assert spans_of(".xx......x......") == [(1, np.inf)]
    assert spans_of(".xx.......x.....") == [(1, 9), (10, np.inf)]


def test_an_alert_that_never_calms_stands() -> None:
    assert spans_of("..xxxx") == [(2, np.inf)]


def test_an_alert_stays_away_while_it_cools_down() -> None:
    assert spans_of("x.......x..x......", cooldown_s=4 * HOUR_S) == [(0, 7), (11, np.inf)]


def test_a_gap_between_evaluations_is_no_calm() -> None:
    on = np.array([[True, False, False]])
    assert len(episodes_of([(0.0, on), (9 * HOUR_S, on)])) == 1


def test_steps_out_of_order_or_of_another_fleet_are_refused() -> None:
    with pytest.raises(ValueError, match="in order"):
        episodes_of([(60.0, np.zeros((2, 3), bool)), (0.0, np.zeros((2, 3), bool))])
    with pytest.raises(ValueError, match="align the rows"):
        episodes_of([(0.0, np.zeros((2, 3), bool)), (60.0, np.zeros((3, 3), bool))])


def test_no_steps_give_no_alerts() -> None:
    assert len(episodes_of([])) == 0


@given(
    st.lists(st.lists(st.booleans(), min_size=6, max_size=6), max_size=40),
    st.sampled_from([0.0, 3 * HOUR_S]),
)
def test_alerts_agree_with_the_slow_twin(flags: list[list[bool]], cooldown_s: float) -> None:
    steps = [(i * 2 * HOUR_S, np.array(row).reshape(2, 3)) for i, row in enumerate(flags)]
    found = episodes_of(steps, cooldown_s=cooldown_s)
    assert as_tuples(found) == sorted(slow_spans(steps, CLEAR_S, cooldown_s))


def as_tuples(spans: AlarmSpans) -> list[tuple[float, int, int, float]]:
    columns = (spans.raised_s, spans.row, spans.failure_class, spans.cleared_s)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def slow_spans(
    steps: list[tuple[float, NDArray[np.bool_]]], clear_s: float, cooldown_s: float
) -> list[tuple[float, int, int, float]]:
    spans = []
    for row in range(2):
        for column in range(3):
            raised: float | None = None
            calm: float | None = None
            ended = -np.inf
            for now_s, flags in steps:
                if flags[row, column]:
                    calm = None
                elif calm is None:
                    calm = now_s
                if raised is not None and calm is not None and now_s - calm >= clear_s:
                    spans.append((raised, row, column, now_s))
                    raised, ended = None, now_s
                if raised is None and flags[row, column] and now_s - ended >= cooldown_s:
                    raised = now_s
            if raised is not None:
                spans.append((raised, row, column, np.inf))
    return spans


def test_chance_draws_as_many_alerts_within_the_time_and_fleet() -> None:
    spans = draw_spans(500, 7, NOW_S, NOW_S + DAY_S, np.random.default_rng(1))
    assert len(spans) == 500
    assert set(spans.row.tolist()) == set(range(7))
    assert set(spans.failure_class.tolist()) == set(range(len(CLASSES)))
    assert spans.raised_s.min() >= NOW_S
    assert spans.raised_s.max() < NOW_S + DAY_S
    assert (np.diff(spans.raised_s) >= 0).all()
    again = draw_spans(500, 7, NOW_S, NOW_S + DAY_S, np.random.default_rng(1))
    assert as_tuples(again) == as_tuples(spans)


# --- the operations of a rule


@given(st.lists(st.sampled_from(["x", ".", "-"]), min_size=1, max_size=40), st.integers(1, 6))
def test_look_back_hold_and_sum_agree_with_their_slow_twins(cells: list[str], minutes: int) -> None:
    values = np.array([[{"x": 1.0, ".": 0.0, "-": np.nan}[c] for c in cells]], np.float32)
    window = FleetWindow((GpuId("GPU-0"),), NOW_S + 60.0 * np.arange(float(len(cells))), {Signal.POWER: values})
    seen = carried(window, Signal.POWER)
    for i in range(len(cells)):
        newest = [v for v in values[0, max(0, i - 4) : i + 1] if not np.isnan(v)]
        np.testing.assert_equal(seen[0, i], newest[-1] if newest else np.nan)
        held_long = i >= minutes and all(seen[0, i - minutes : i + 1] > 0)
        assert held(seen > 0, window, 60.0 * minutes)[0, i] == held_long
        assert summed(values, minutes)[0, i] == np.nansum(values[0, max(0, i - minutes + 1) : i + 1])
