"""What thermal_trend makes of a ledger: causes, resets, limits, what is unknown, and how wide its intervals are."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.trend import TrendSpec, trend_path
from healthsvc.fleet import DAY_S, EventKind, FleetHistory, Floats, Forecast, Placement, build_topology
from healthsvc.fleet.causes import ThermalCause
from healthsvc.forecasters.thermal.conditions import comparable_days, settled_since, similar_days
from healthsvc.forecasters.thermal.crossing import conformal_scale, past_scales
from healthsvc.forecasters.thermal.node import learn_node
from healthsvc.forecasters.thermal.path import PathSpec, drift_chance, learn_path
from healthsvc.forecasters.thermal_trend import ThermalTrend
from tests.forecasters.shipped import shipped
from tests.histories import NOW_S, make_events, thermal_history

DAYS = 60
NAN = np.nan


def fleet(
    die: Mapping[int, NDArray[np.float64]] | None = None,
    memory: Mapping[int, NDArray[np.float64]] | None = None,
    level: float = 0.07,
    seed: int = 0,
    gpus: int = 16,
    **features: float | NDArray[np.float64],
) -> FleetHistory:
    """Two nodes of eight over 60 days, 1 % of noise; what is added to log R of some rows, or columns overridden."""
    rng = np.random.default_rng(seed)
    body = rng.normal(0, 0.03, (gpus, 1))
    log_r = np.log(level) + body + rng.normal(0, 0.01, (gpus, DAYS))
    warm = np.log(level + 0.005) + body + rng.normal(0, 0.01, (gpus, DAYS))
    for values, added in ((log_r, die), (warm, memory)):
        for row, change in (added or {}).items():
            values[row] += change
    history = thermal_history(log_r, 680.0, 25.0)
    own: dict[str, Floats] = {
        "memory_log_resistance": warm.astype(np.float32),
        "gpu_temperature_q95_celsius": (25.0 + 680.0 * np.exp(log_r)).astype(np.float32),
    }
    own |= {name: np.broadcast_to(value, (gpus, DAYS)).astype(np.float32) for name, value in features.items()}
    return replace(history, daily=replace(history.daily, features={**history.daily.features, **own}))


def forecast(history: FleetHistory) -> Forecast:
    forecaster = shipped(ThermalTrend)
    return forecaster.forecast(forecaster.fit(history), history)


def ramp(a_day: float, begins: int = 30) -> NDArray[np.float64]:
    return a_day * np.maximum(np.arange(DAYS) - begins, 0.0)


def step(by: float, day: int = 45) -> NDArray[np.float64]:
    return np.where(np.arange(DAYS) >= day, by, 0.0)


def cause(history: FleetHistory, row: int = 3) -> ThermalCause:
    return ThermalCause(int(forecast(history).evidence["cause_code"][row]))


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (fleet(), ThermalCause.NONE),
        (fleet({3: ramp(0.005)}), ThermalCause.INTERFACE),
        (fleet({3: ramp(0.005)}, {3: ramp(0.005)}), ThermalCause.COLD_PLATE),
        (fleet({3: ramp(0.005)}, memory_log_resistance=NAN), ThermalCause.THERMAL_PATH),
        (fleet({3: step(0.12)}), ThermalCause.SENSOR),
        (fleet({row: step(0.12, 57) for row in range(8)}), ThermalCause.NODE_AIRFLOW),
        (fleet({row: step(0.12, 57) for row in range(8)}, inlet_measured_ratio=0.0), ThermalCause.NONE),
        (fleet(inlet_q95_celsius=25.0 + step(6.0, 57)), ThermalCause.SUPPLY_WARM),
    ],
)
def test_each_fault_has_the_signature_of_its_cause(history: FleetHistory, expected: ThermalCause) -> None:
    assert cause(history) == expected


@pytest.mark.parametrize("turn", ["a cap", "the end of a warm week"])
def test_fans_that_slow_down_for_less_heat_are_no_failed_fans(turn: str) -> None:
    """At less heat they turn slower and all resist more; what drifts keeps its own cause."""
    days = np.arange(DAYS)
    cool = days >= 57
    hot = ~cool if turn == "a cap" else ~cool & (days >= 45)
    history = fleet(
        {row: np.where(hot, -0.1, 0.0) + (ramp(0.006) if row == 3 else 0.0) for row in range(16)},
        power_q95_watts=np.where(cool, 500.0, 680.0) if turn == "a cap" else 680.0,
        inlet_q95_celsius=25.0 if turn == "a cap" else np.where(hot, 33.0, 25.0),
    )
    told = forecast(history).evidence["cause_code"]
    assert told[3] == ThermalCause.INTERFACE
    assert set(np.delete(told, 3).tolist()) == {float(ThermalCause.NONE)}


def test_what_all_nodes_of_a_loop_share_is_the_loop() -> None:
    history = fleet({row: step(0.12, 57) for row in range(16)}, gpus=48)
    loops = {f"node-{number:02d}": {"cooling_loop": "ab"[number // 3]} for number in range(6)}
    history = replace(history, topology=build_topology(history.gpus, Placement(loops)))
    found = forecast(replace_rows(history, range(16, 24), step(0.12, 57))).evidence["cause_code"]
    assert set(found[:24].tolist()) == {float(ThermalCause.LOOP_FLOW)}
    assert set(found[24:].tolist()) == {float(ThermalCause.NONE)}


def replace_rows(history: FleetHistory, rows: range, added: NDArray[np.float64]) -> FleetHistory:
    log_r = history.daily.get("gpu_log_resistance").copy()
    log_r[list(rows)] += added.astype(np.float32)
    return replace(
        history, daily=replace(history.daily, features={**history.daily.features, "gpu_log_resistance": log_r})
    )


def test_a_new_interface_begins_the_trend_anew_and_ends_the_alarm() -> None:
    worn = fleet({3: ramp(0.006, 15)})
    before = forecast(worn)
    renewed = fleet({3: np.where(np.arange(DAYS) >= 50, -0.05, ramp(0.006, 15))})
    after = forecast(renewed)
    assert before.change_p[3] < 1e-6
    assert after.change_p[3] > 0.01
    assert after.evidence["observed_days"][3] == 10
    assert after.evidence["reset_days"][3] == 10
    assert np.isnan(after.evidence["reset_days"][5])


def test_right_after_a_new_interface_a_gpu_is_unknown() -> None:
    told = forecast(fleet({3: np.where(np.arange(DAYS) >= 56, -0.2, 0.0)}))
    assert np.isnan(told.cumulative_hazard[3]).all()
    assert told.evidence["reset_days"][3] == 4
    assert not np.isnan(told.cumulative_hazard[4]).any()


def test_a_gpu_that_moved_is_judged_by_its_days_since() -> None:
    history = fleet({3: step(0.08, 40)})
    moved = replace(history, events=make_events((3, NOW_S - 20.5 * DAY_S, EventKind.MOVE, 1.0)))
    assert forecast(history).change_p[3] < 1e-4
    told = forecast(moved)
    assert told.change_p[3] > 0.01
    assert told.evidence["observed_days"][3] == 20
    assert settled_since(moved.events, moved.daily.days, 16)[[2, 3]].tolist() == [0, 40]


def test_memory_that_meets_its_limit_first_is_a_thermal_event_and_no_terminal_one() -> None:
    history = fleet(memory={3: ramp(0.012)}, memory_max_operating_limit_celsius=85.0)
    told = forecast(history)
    assert told.evidence["memory_headroom_at_q95_load_celsius"][3] < told.evidence["headroom_at_q95_load_celsius"][3]
    assert told.cumulative_hazard[3, 0, 2] > 100 * told.cumulative_hazard[4, 0, 2]
    assert told.cumulative_hazard[3, 1, 2] < 0.01
    assert told.time_to_limit_s[3, 1] < 60 * DAY_S


def test_without_a_memory_sensor_the_die_alone_is_judged() -> None:
    told = forecast(fleet({3: ramp(0.005)}, memory_log_resistance=NAN))
    assert not np.isnan(told.cumulative_hazard).any()
    assert np.isnan(told.evidence["memory_headroom_at_q95_load_celsius"]).all()
    assert told.change_p[3] < 1e-6


def test_an_idle_gpu_and_one_not_seen_at_load_for_weeks_are_unknown() -> None:
    away = np.where(np.arange(DAYS) >= 36, NAN, 0.0)
    told = forecast(fleet({2: np.full(DAYS, NAN), 3: away, 4: np.where(np.arange(DAYS) >= 50, NAN, 0.0)}))
    assert np.isnan(told.cumulative_hazard[2]).all()
    assert np.isnan(told.cumulative_hazard[3]).all()
    assert not np.isnan(told.cumulative_hazard[4]).any()
    assert told.evidence["observed_days"][2] == 0


def test_days_without_a_sample_make_the_interval_wider() -> None:
    gone = np.where((np.arange(DAYS) >= 46) & (np.arange(DAYS) % 3 > 0), NAN, 0.0)
    whole, thin = forecast(fleet({3: ramp(0.006)})), forecast(fleet({3: ramp(0.006) + gone}))
    widths = [told.time_to_limit_s[3, 2] - told.time_to_limit_s[3, 0] for told in (whole, thin)]
    assert widths[1] > widths[0]


def test_a_step_of_the_load_or_a_warm_week_is_no_drift_and_no_danger() -> None:
    """Fans answer: at the higher load the same node resists less, and its temperature stays far from the limit."""
    later = np.arange(DAYS) >= 55
    for power, inlet in ((np.where(later, 640.0, 400.0), 25.0), (640.0, np.where(later, 33.0, 25.0))):
        resists = np.where(later, np.log(0.062), np.log(0.08))
        rise = np.exp(resists) * power
        history = fleet(
            {row: resists - np.log(0.07) for row in range(16)},
            power_q95_watts=power,
            inlet_q95_celsius=inlet,
            gpu_temperature_q95_celsius=inlet + rise,
        )
        told = forecast(history)
        assert (told.cumulative_hazard[:, 0, 2] < 0.01).all()
        assert (told.change_p > 1e-4).all()


def test_a_lower_cap_or_a_cooler_place_is_shown_before_it_is_done() -> None:
    history, forecaster = fleet({3: ramp(0.006)}), shipped(ThermalTrend)
    state = forecaster.fit(history)
    usual = forecaster.project(state, history, 3)
    capped = forecaster.project(state, history, 3, power_watts=450.0)
    cooler = forecaster.project(state, history, 3, inlet_celsius=18.0)
    assert (capped.future < usual.future).all()
    np.testing.assert_allclose(usual.future - cooler.future, 7.0)
    assert usual.future[1, -1] > usual.limit > capped.future[1, -1]


@given(st.floats(-3.0, 12.0), st.floats(0.0, 5.0))
def test_more_evidence_never_makes_a_drift_less_likely(z: float, more: float) -> None:
    chance = drift_chance(np.array([z, z + more, NAN]), PathSpec())
    assert 0 < chance[0] <= chance[1] <= 1
    assert np.isnan(chance[2])


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_a_fleet_without_drifts_is_not_believed_to_drift(seed: int) -> None:
    ratio = np.random.default_rng(seed).normal(0, 0.01, (200, DAYS))
    found, _ = learn_path(ratio, np.zeros(200, np.intp), np.zeros(200), PathSpec())
    assert found.drift_p.mean() < PathSpec().drifting * 10
    assert found.noise.mean() == pytest.approx(0.01, rel=0.15)


def test_models_are_learned_apart() -> None:
    rng = np.random.default_rng(3)
    ratio = np.concatenate([rng.normal(0, 0.004, (40, DAYS)), rng.normal(0, 0.02, (40, DAYS))])
    found, paths = learn_path(ratio, np.repeat([0, 1], 40), np.zeros(80), PathSpec())
    assert found.noise[:40].max() < 0.008 < 0.016 < found.noise[40:].min()
    assert {number: path.level.shape for number, path in paths.items()} == {0: (DAYS, 40), 1: (DAYS, 40)}


def test_a_noisy_fleet_widens_its_intervals_and_few_forecasts_change_nothing() -> None:
    rng = np.random.default_rng(5)
    values = 0.004 * np.arange(60) + rng.normal(0, 0.01, (40, 60))
    spec = TrendSpec(0.0005, 0.0001, 0.003)
    wander = np.cumsum(rng.normal(0, 0.006, (40, 60)), axis=1)  # such as the spec does not foresee
    found = []
    for series in (values, values + wander):
        path = trend_path(series, np.full(40, 0.01), spec)
        scales = past_scales(path, series, np.zeros(40), np.full(40, 0.01), 0.0005)
        found.append(conformal_scale(scales, 9.0))
        assert found[-1] == max(np.quantile(each, 0.8) for each in scales.values())
    assert found[0] < 1.5 < 2 * found[0] < found[1]
    assert conformal_scale({ahead: each[:20] for ahead, each in scales.items()}, 9.0) == 9.0
    assert all(
        not len(each)
        for each in past_scales(path.take(np.arange(2)), values[:2, :5], np.zeros(2), np.ones(2), 0.1).values()
    )


def test_intervals_multiplied_by_their_scale_would_have_held_four_fifths_of_what_came() -> None:
    rng = np.random.default_rng(6)
    values = 0.004 * np.arange(60) + np.cumsum(rng.normal(0, 0.006, (200, 60)), axis=1) + rng.normal(0, 0.01, (200, 60))
    noise, step = np.full(200, 0.01), 0.002
    path = trend_path(values, noise, TrendSpec(0.0005, 0.0001, 0.003))
    scales = past_scales(path, values, np.zeros(200), noise, step)
    held = []
    for ahead in scales:
        scale = float(np.quantile(scales[ahead], 0.8))
        mean, var = path.level + ahead * path.slope, path.level_var + 2 * ahead * path.cross_var
        sd = np.sqrt((var + ahead**2 * path.slope_var + ahead * step**2) * scale**2 + noise**2)
        error = np.abs(values[:, 5 + ahead :].T - mean[5 : 60 - ahead]) / sd[5 : 60 - ahead]
        held.append(float(np.mean(error <= 1.2816)))
    np.testing.assert_allclose(held, 0.8, atol=0.002)


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_so_many_times_the_scale_is_about_so_many_times_the_interval(times: float) -> None:
    history, forecaster = fleet({3: ramp(0.006)}), shipped(ThermalTrend)
    state = forecaster.fit(history)
    wider = {**state, "interval_scale": times * state["interval_scale"]}
    early, late = (forecaster.forecast(each, history).time_to_limit_s[3, [0, 2]] for each in (state, wider))
    assert np.diff(late) / np.diff(early) == pytest.approx(times, rel=0.2)


def test_a_drift_that_noise_may_be_counts_for_nothing_however_little_room_there_is() -> None:
    """The degrading grade rises by the path: a warm week alone must not carry a weak sign of a drift over its bar."""
    history, forecaster = fleet(level=0.08), shipped(ThermalTrend)
    state = forecaster.fit(history)

    def told(sensor: str, tail: float, drift_p: float, warmer: float) -> NDArray[np.float64]:
        changed = {name: values.copy() for name, values in state.items()}
        changed[f"{sensor}change_p"][3], changed[f"{sensor}drift_p"][3] = tail, drift_p
        changed["slope_log_per_day"][3] = changed["memory_slope_log_per_day"][3] = 0.004
        changed["inlet_q95_celsius"] += warmer
        return np.asarray(forecaster.forecast(changed, history).cumulative_hazard[3], np.float64)

    for sensor, share in (("", 0.9), ("memory_", 0.1)):
        bar = forecaster.counted_p * share
        for warmer in (0.0, 4.0):
            np.testing.assert_array_equal(told(sensor, 1.1 * bar, 0.05, warmer), told(sensor, 1.1 * bar, 0.0, warmer))
        assert told(sensor, 0.9 * bar, 0.05, 4.0)[0, 2] > 0.01 > told(sensor, 1.1 * bar, 0.05, 4.0)[0, 2]


def test_only_days_of_like_load_and_weather_are_compared() -> None:
    power, inlet = np.array([[400.0, 610.0, 640.0, NAN]]), np.array([[25.0, 25.0, 31.0, 25.0]])
    met_power, met_inlet = np.array([640.0]), np.array([26.0])
    assert similar_days(power, inlet, met_power, met_inlet).tolist() == [[False, True, False, False]]
    assert comparable_days(power, met_power, np.array([True])).tolist() == [[False, True, True, False]]
    assert comparable_days(power, met_power, np.array([False])).all()


def test_the_level_of_a_node_is_that_of_its_days_at_the_peak_or_of_the_last_two() -> None:
    shared = np.array([[0.3] * 10 + [0.1] * 2 + [NAN] * 2] * 3)
    peak = np.zeros((3, 14), bool)
    peak[0, :10], peak[1, 10:] = True, True
    part = learn_node(shared, peak, 14, None)
    np.testing.assert_allclose(part.level, [0.3, 0.1, 0.1])
    lone = learn_node(np.full((2, 14), NAN), np.ones((2, 14), bool), 14, None)
    assert lone.level.tolist() == lone.level_var.tolist() == lone.slope.tolist() == [0, 0]
