"""Who shares a rise: the GPU, its node, its loop - from the ledger and from the last quarter of an hour."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.resistance import (
    Shifts,
    attribute,
    peak_gap,
    peer_ratio,
    place_findings,
    settled_log_resistance,
    split_shifts,
)
from healthsvc.fleet import FleetHistory, Placement, Signal, build_topology
from healthsvc.fleet.causes import ThermalCause
from tests.histories import flat_window, make_daily, make_gpus, make_history

SEEDS = st.integers(0, 2**32 - 1)
NAN = np.nan
GPUS = make_gpus(48)
LOOPS = {f"node-{number:02d}": "ab"[number // 3] for number in range(6)}
TOPOLOGY = build_topology(GPUS, Placement({host: {"cooling_loop": loop} for host, loop in LOOPS.items()}))


def test_a_gpu_that_is_not_observed_makes_no_step_in_its_peers() -> None:
    """They differ by several percent, and a median of their levels would jump when one of them is missing."""
    rng = np.random.default_rng(0)
    log_r = np.repeat(rng.normal(0, 0.05, (8, 1)), 30, axis=1)
    log_r[rng.random(log_r.shape) < 0.2] = NAN
    ratio = peer_ratio(log_r, np.zeros(8, np.int32))
    assert np.nanmax(np.nanmax(ratio, axis=1) - np.nanmin(ratio, axis=1)) < 1e-12


@settings(deadline=None, max_examples=20)
@given(SEEDS, st.integers(0, 30), st.floats(-0.3, 0.3))
def test_what_a_node_has_in_common_for_some_days_leaves_no_trace_in_any_gpu(seed: int, days: int, by: float) -> None:
    """Were a GPU compared with its own median, a warm week would move that, and not of all GPUs alike."""
    rng = np.random.default_rng(seed)
    log_r = rng.normal(0, 0.05, (16, 1)) + rng.normal(0, 0.01, (16, 60))
    log_r[rng.random(log_r.shape) < 0.1] = NAN
    node = np.repeat(np.arange(2, dtype=np.int32), 8)
    moved = peer_ratio(log_r + np.where(np.arange(60) < days, by, 0.0), node) - peer_ratio(log_r, node)
    assert np.max(np.nanmax(moved, axis=1) - np.nanmin(moved, axis=1)) < 1e-12


def test_an_inlet_that_is_not_measured_is_taken_off_as_a_sum_and_fans_as_a_product() -> None:
    """Eight degrees of weather add the same kelvin per watt to unlike GPUs; fans take the same share from them."""
    r = 0.07 * np.exp(np.linspace(-0.1, 0.1, 8))[:, None] * np.ones((1, 20))
    warm, slow = r + np.where(np.arange(20) > 15, 8.0 / 600.0, 0.0), r * np.where(np.arange(20) > 15, 1.2, 1.0)
    node, blind = np.zeros(8, np.int32), np.ones(8, bool)
    np.testing.assert_allclose(np.ptp(peer_ratio(np.log(warm), node, blind), axis=1), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.ptp(peer_ratio(np.log(slow), node, ~blind), axis=1), 0.0, atol=1e-9)
    assert np.ptp(peer_ratio(np.log(warm), node, ~blind), axis=1).max() > 0.01
    assert np.ptp(peer_ratio(np.log(slow), node, blind), axis=1).max() > 0.01


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_the_shifts_add_up_to_the_whole(seed: int) -> None:
    excess = np.random.default_rng(seed).normal(0, 0.1, 48)
    shifts = split_shifts(excess, TOPOLOGY)
    np.testing.assert_allclose(shifts.gpu + shifts.node + shifts.loop, excess)


def excess_of(gpu: float = 0.0, node: float = 0.0, loop: float = 0.0) -> NDArray[np.float64]:
    """GPU 3, node-00 and loop a above normal."""
    excess = np.random.default_rng(1).normal(0, 0.01, 48)
    excess[3] += gpu
    excess[:8] += node
    excess[:24] += loop
    return excess


@pytest.mark.parametrize(
    ("excess", "cause", "rows"),
    [
        (excess_of(), ThermalCause.NONE, []),
        (excess_of(gpu=0.2), ThermalCause.THERMAL_PATH, [3]),
        (excess_of(node=0.2), ThermalCause.NODE_AIRFLOW, list(range(8))),
        (excess_of(loop=0.2), ThermalCause.LOOP_FLOW, list(range(24))),
    ],
)
def test_a_rise_is_put_down_to_those_who_share_it(
    excess: NDArray[np.float64], cause: ThermalCause, rows: list[int]
) -> None:
    found = attribute(split_shifts(excess, TOPOLOGY), np.zeros(48))
    assert [row for row in range(48) if found[row]] == rows
    assert {int(found[row]) for row in rows} <= {int(cause)}


def test_a_warm_supply_is_told_only_where_resistance_is_what_it_was() -> None:
    calm = Shifts(*(np.zeros(2) for _ in range(3)))
    assert attribute(calm, np.array([5.0, NAN])).tolist() == [ThermalCause.SUPPLY_WARM, ThermalCause.NONE]
    hot = replace(calm, node=np.full(2, 0.2))
    assert attribute(hot, np.array([5.0, NAN])).tolist() == [ThermalCause.NODE_AIRFLOW] * 2


def test_a_small_node_and_a_lone_loop_have_no_shift_of_their_own() -> None:
    gpus = make_gpus(4, per_node=2)
    topology = build_topology(gpus, Placement({"node-00": {"cooling_loop": "a"}, "node-01": {"cooling_loop": "b"}}))
    shifts = split_shifts(np.array([0.2, 0.2, 0.0, NAN]), topology)
    assert shifts.node.tolist() == shifts.loop.tolist() == [0.0] * 4
    assert shifts.gpu[:3].tolist() == [0.2, 0.2, 0.0]
    assert np.isnan(shifts.gpu[3])


def running(celsius: float, watts: float, throttled: float = 0.0) -> FleetHistory:
    """48 GPUs at this temperature and load now, at 60 C and 500 W over 25 C in a fortnight of ledger."""
    window = flat_window(
        48,
        extra={
            Signal.GPU_TEMPERATURE: celsius,
            Signal.POWER: watts,
            Signal.POWER_LIMIT: 700.0,
            Signal.SOFTWARE_THERMAL_THROTTLE: throttled,
        },
    )
    normal = np.full((48, 14), np.log(35.5 / 500.0))
    daily = make_daily(window.gpus, 14, {"gpu_log_resistance": normal, "inlet_q95_celsius": np.full((48, 14), 25.0)})
    return replace(make_history(window, daily), topology=TOPOLOGY)


INLET = np.full((48, 120), 25.0, np.float32)


def test_a_gpu_held_at_its_limit_still_shows_its_resistance() -> None:
    """Its temperature stands and its power falls: the ratio says what the temperature does not."""
    held = running(87.0, 400.0, throttled=30.0)
    now = settled_log_resistance(held.recent, INLET)
    np.testing.assert_allclose(now, np.log(62.5 / 400.0), rtol=1e-6)
    found = place_findings(held, INLET)
    assert (found.shifts.loop > 0.5).all()
    assert set(found.cause.tolist()) == {ThermalCause.LOOP_FLOW}


def test_a_load_that_moves_an_idle_gpu_and_a_silent_one_say_nothing() -> None:
    history = running(60.0, 500.0)
    values = {s: v.copy() for s, v in history.recent.values.items()}
    values[Signal.POWER][0, -5:] = 650.0
    values[Signal.POWER][1] = 90.0
    values[Signal.GPU_TEMPERATURE][2, -15:] = NAN
    now = settled_log_resistance(replace(history.recent, values=values), INLET)
    assert np.isnan(now[:3]).all()
    assert not np.isnan(now[3:]).any()
    assert set(place_findings(history, INLET).cause.tolist()) == {ThermalCause.NONE}


def test_a_warmer_inlet_at_the_same_resistance_is_the_facility() -> None:
    found = place_findings(running(66.0, 500.0), INLET + 6.0)
    assert set(found.cause.tolist()) == {ThermalCause.SUPPLY_WARM}
    np.testing.assert_allclose(found.inlet_rise_celsius, 6.0)


def test_the_gap_of_the_peak_is_what_the_fans_take_off() -> None:
    days = 5
    features = {
        "gpu_log_resistance": np.full((8, days), np.log(0.08)),
        "gpu_temperature_q95_celsius": np.full((8, days), 25.0 + 0.072 * 700.0),
        "inlet_q95_celsius": np.full((8, days), 25.0),
        "power_q95_watts": np.full((8, days), 700.0),
    }
    gap = peak_gap(make_daily(make_gpus(8), days, features), np.zeros(8, np.int32))
    np.testing.assert_allclose(gap, np.log(0.072 / 0.08), rtol=1e-6)
    assert np.isnan(peak_gap(make_daily(make_gpus(2), days, {}), np.zeros(2, np.int32))).all()
