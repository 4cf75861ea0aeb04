"""What must hold whatever the numbers: hotter is never safer, more errors are never safer, more room never riskier."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.fleet import DAY_S, EventKind, EventLog, FleetHistory, Floats, Forecast, Signal
from healthsvc.fleet.xids import MEMORY_XIDS
from healthsvc.forecasters.device_loss import DeviceLoss
from healthsvc.forecasters.ecc_growth import EccGrowth
from healthsvc.forecasters.thermal_trend import ThermalTrend
from healthsvc.forecasters.throttling_cascade import ThrottlingCascade
from tests.forecasters.shipped import shipped
from tests.histories import NOW_S, flat_window, make_daily, make_events, make_history, thermal_history

FEW = settings(deadline=None, max_examples=30)
SEEDS = st.integers(0, 2**32 - 1)
AGES = st.lists(st.floats(0.0, 200.0), max_size=8)
SLACK = 1e-6  # of float32


def not_lower(after: Floats, before: Floats) -> bool:
    return bool((after >= before * (1 - SLACK) - 1e-12).all())


def fleet(seed: int, drift_a_day: float = 0.0, level: float = 0.078) -> FleetHistory:
    """Eight GPUs over 40 days, the first of which drifts."""
    rng = np.random.default_rng(seed)
    log_r = np.log(level) + rng.normal(0, 0.01, (8, 1)) + rng.normal(0, 0.003, (8, 40))
    log_r[0] += drift_a_day * np.arange(40)
    return thermal_history(log_r)


def thermal(history: FleetHistory, **state_changes: float) -> Forecast:
    """The forecast; the first GPU's state moved by `state_changes`."""
    forecaster = shipped(ThermalTrend)
    state = {name: values.copy() for name, values in forecaster.fit(history).items()}
    for name, by in state_changes.items():
        state[name][0] += by
    return forecaster.forecast(state, history)


@FEW
@given(SEEDS, st.floats(-0.002, 0.004), st.floats(0.0, 0.2))
def test_a_higher_resistance_is_never_safer(seed: int, drift: float, by: float) -> None:
    history = fleet(seed, drift)
    assert not_lower(thermal(history, level_log=by).cumulative_hazard[0], thermal(history).cumulative_hazard[0])


@FEW
@given(SEEDS, st.floats(-0.002, 0.004), st.floats(0.0, 0.01))
def test_a_steeper_slope_is_never_safer(seed: int, drift: float, by: float) -> None:
    history = fleet(seed, drift)
    assert not_lower(thermal(history, slope_log_per_day=by).cumulative_hazard[0], thermal(history).cumulative_hazard[0])


@FEW
@given(SEEDS, st.floats(-0.002, 0.004), st.floats(0.0, 10.0), st.floats(0.0, 50.0))
def test_a_warmer_inlet_or_a_higher_load_is_never_safer(seed: int, drift: float, kelvin: float, watts: float) -> None:
    history = fleet(seed, drift)
    before = thermal(history).cumulative_hazard[0]
    assert not_lower(thermal(history, inlet_q95_celsius=kelvin).cumulative_hazard[0], before)
    assert not_lower(thermal(history, power_q95_watts=watts).cumulative_hazard[0], before)


@FEW
@given(SEEDS, st.floats(-0.002, 0.004), st.floats(0.0, 15.0))
def test_a_higher_limit_is_never_riskier(seed: int, drift: float, by: float) -> None:
    history = fleet(seed, drift)
    before = thermal(history).cumulative_hazard[0]
    both = thermal(history, max_operating_celsius=by, slowdown_celsius=by).cumulative_hazard[0]
    assert not_lower(before, both)
    assert not_lower(before[0], thermal(history, max_operating_celsius=by).cumulative_hazard[0, 0])


def test_a_slowdown_limit_reported_below_the_operating_one_makes_no_terminal_event_likelier() -> None:
    hazard = thermal(fleet(1, drift_a_day=0.002), slowdown_celsius=-10.0).cumulative_hazard[0]
    assert hazard[1, -1] > 0
    assert (hazard[1] <= hazard[0]).all()


@FEW
@given(SEEDS, st.floats(0.0, 0.1))
def test_a_gpu_that_ran_hotter_on_every_day_is_never_safer(seed: int, by: float) -> None:
    history = fleet(seed, 0.001)
    hotter = history.daily.get("gpu_log_resistance").astype(np.float64)
    hotter[0] += 0.08  # above all of its peers, whose median then stays
    history = replace(
        history, daily=replace(history.daily, features={**history.daily.features, "gpu_log_resistance": hotter})
    )
    hotter = hotter.copy()
    hotter[0] += by
    daily = replace(history.daily, features={**history.daily.features, "gpu_log_resistance": hotter})
    after = thermal(replace(history, daily=daily)).cumulative_hazard[0]
    assert not_lower(after, thermal(history).cumulative_hazard[0])


@settings(deadline=None, max_examples=10)
@given(SEEDS)
def test_a_drifting_gpu_is_told_from_its_healthy_peers(seed: int) -> None:
    forecast = thermal(fleet(seed, drift_a_day=0.003))
    hazard = forecast.cumulative_hazard[:, 0, -1]
    assert hazard[0] > 100 * hazard[1:].max()
    assert forecast.change_p[0] < 1e-6 < forecast.change_p[1:].min()
    early, middle, late = forecast.time_to_limit_s[0]
    assert early < middle < late


def ecc_history(events: list[tuple[int, float, EventKind, float]], remaps: float = 0.0) -> FleetHistory:
    window = flat_window(2, extra={Signal.REMAP_PENDING: 0.0, Signal.REMAP_FAILURE: 0.0, Signal.BANKS_LOW: 0.0})
    rows = np.zeros((2, 40), np.float32)
    features: dict[str, Floats] = {
        "sbe_windows": rows,
        "sbe_errors": rows.astype(np.float64),
        "uncorrectable_remaps_rows": rows + np.float32(remaps),
        "correctable_remaps_rows": rows,
    }
    return make_history(window, make_daily(window.gpus, 40, features), make_events(*events))


def memory(history: FleetHistory) -> Floats:
    """Hazard of the first GPU, by a training that saw none of the events; what a site learns has its own tests."""
    forecaster = shipped(EccGrowth)
    state = forecaster.fit(replace(history, events=EventLog()))
    hazard: Floats = forecaster.forecast(state, history).cumulative_hazard[0]
    return hazard


UNCORRECTABLE = st.sampled_from(
    [
        (EventKind.XID, 48.0),
        (EventKind.XID, 94.0),
        (EventKind.XID, 63.0),
        (EventKind.DOUBLE_BIT_ERROR, 1.0),
        (EventKind.UNCORRECTABLE_REMAP, 1.0),
        (EventKind.RETIRED_PAGES, 1.0),
        (EventKind.REMAP_PENDING, 1.0),
    ]
)


@FEW
@given(AGES, st.floats(0.0, 200.0), UNCORRECTABLE)
def test_one_more_memory_error_is_never_safer(ages: list[float], age: float, event: tuple[EventKind, float]) -> None:
    told = [(0, NOW_S - days * DAY_S, EventKind.DOUBLE_BIT_ERROR, 1.0) for days in ages]
    more = [*told, (0, NOW_S - age * DAY_S, *event)]
    assert not_lower(memory(ecc_history(more)), memory(ecc_history(told)))


@pytest.mark.parametrize("event", [(EventKind.RETIRED_PAGES, 1.0), (EventKind.DOUBLE_BIT_ERROR, 1.0)])
def test_a_page_retired_for_an_error_counts_as_the_error_does(event: tuple[EventKind, float]) -> None:
    hazard = memory(ecc_history([(0, NOW_S - 3 * DAY_S, *event)]))
    np.testing.assert_array_equal(hazard, memory(ecc_history([(0, NOW_S - 3 * DAY_S, EventKind.XID, 48.0)])))


def test_many_correctable_errors_are_no_sign_of_an_uncorrectable_one() -> None:
    told = [(0, NOW_S - 3 * DAY_S, EventKind.XID, 92.0)]
    np.testing.assert_array_equal(memory(ecc_history(told)), memory(ecc_history([])))


def test_a_remap_that_correctable_errors_explain_is_no_sign_unless_an_error_came_with_it() -> None:
    at_s = NOW_S - 3.25 * DAY_S
    remapped, explained = (0, at_s, EventKind.XID, 63.0), (0, at_s + 60, EventKind.CORRECTABLE_REMAP, 1.0)
    struck = (0, at_s + 120, EventKind.DOUBLE_BIT_ERROR, 1.0)
    calm, told = memory(ecc_history([])), memory(ecc_history([remapped]))
    np.testing.assert_array_equal(memory(ecc_history([remapped, explained])), calm)
    assert (told > calm).all()
    both = memory(ecc_history([remapped, explained, struck]))
    np.testing.assert_array_equal(both, memory(ecc_history([remapped, struck])))


@pytest.mark.parametrize("code", [code for code, grade in MEMORY_XIDS.items() if grade == "P" and code != 92])
def test_every_precursor_raises_the_hazard_and_far_less_than_an_error(code: int) -> None:
    calm, told = memory(ecc_history([])), memory(ecc_history([(0, NOW_S - 3 * DAY_S, EventKind.XID, code)]))
    struck = memory(ecc_history([(0, NOW_S - 3 * DAY_S, EventKind.XID, 48.0)]))
    assert (calm < told).all()
    assert (told - calm < (struck - calm) / 10).all()


def test_errors_every_day_are_riskier_than_one_long_ago() -> None:
    """Whatever counts as one episode must not let a chain of failures pass for a single old one."""
    daily = [(0, NOW_S - (days + 0.5) * DAY_S, EventKind.DOUBLE_BIT_ERROR, 1.0) for days in range(90)]
    once = daily[:1]
    assert (memory(ecc_history(daily)) > 5 * memory(ecc_history(once))).all()


@FEW
@given(AGES, st.floats(0.0, 5.0))
def test_more_remapped_rows_are_never_safer(ages: list[float], rows: float) -> None:
    told = [(0, NOW_S - days * DAY_S, EventKind.UNCORRECTABLE_REMAP, 1.0) for days in ages]
    assert not_lower(memory(ecc_history(told, remaps=rows)), memory(ecc_history(told)))


def test_fewer_spare_rows_are_never_safer() -> None:
    healthy = ecc_history([])
    before = memory(healthy)
    for signal in (Signal.REMAP_PENDING, Signal.BANKS_LOW, Signal.BANKS_NONE, Signal.REMAP_FAILURE):
        flag = np.ones_like(healthy.recent.get(Signal.POWER))
        recent = replace(healthy.recent, values={**healthy.recent.values, signal: flag})
        assert (memory(replace(healthy, recent=recent)) > before).all(), signal


def device(events: list[tuple[int, float, EventKind, float]]) -> Floats:
    history = make_history(flat_window(2), events=make_events(*events))
    forecaster = shipped(DeviceLoss)
    hazard: Floats = forecaster.forecast(forecaster.fit(history), history).cumulative_hazard[0]
    return hazard


@FEW
@given(AGES, st.floats(0.0, 200.0), st.sampled_from([79.0, 119.0, 74.0]))
def test_one_more_loss_is_never_safer(ages: list[float], age: float, code: float) -> None:
    told = [(0, NOW_S - days * DAY_S, EventKind.XID, 79.0) for days in ages]
    assert not_lower(device([*told, (0, NOW_S - age * DAY_S, EventKind.XID, code)]), device(told))


@FEW
@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=4), st.floats(1.0, 60.0))
def test_the_memory_of_a_loss_fades_with_time(ages: list[float], later: float) -> None:
    fresh = [(0, NOW_S - days * DAY_S, EventKind.XID, 79.0) for days in ages]
    # By whole days, so that the same events share a day.
    old = [(row, start - np.ceil(later) * DAY_S, kind, code) for row, start, kind, code in fresh]
    assert not_lower(device(fresh), device(old))


def domain(hot: list[int]) -> tuple[Floats, float]:
    window = flat_window(8)
    throttled = np.zeros((8, 120), np.float32)
    throttled[hot] = 30.0
    recent = replace(window, values={**window.values, Signal.SOFTWARE_THERMAL_THROTTLE: throttled})
    history = make_history(recent, make_daily(window.gpus, 40, {}))
    forecaster = shipped(ThrottlingCascade)
    forecast = forecaster.forecast(forecaster.fit(history), history)
    assert forecast.throttling.tolist() == [len(hot)]
    return forecast.probability_at_least_k[0], float(forecast.expected_lost_gpu_hours[0])


@FEW
@given(st.permutations(range(8)), st.integers(0, 7))
def test_one_more_throttling_neighbour_is_never_safer(order: list[int], count: int) -> None:
    before, lost_before = domain(order[:count])
    after, lost_after = domain(order[: count + 1])
    assert not_lower(after, before)
    assert lost_after >= lost_before


def test_three_that_throttle_already_are_a_certainty() -> None:
    probability, _ = domain([0, 3, 5])
    assert (probability == 1).all()
