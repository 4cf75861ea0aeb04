"""Faults and decoys of heat and power beyond one GPU."""

from typing import Any

import numpy as np
import pytest

from healthsvc.fleet import Signal
from tests.simulator.runs import STEADY, run, same, scenario

FOUR_NODES = {"gpus": 16, "gpus_per_node": 4, "nodes_per_rack": 1, "racks_per_loop": 2, "racks_per_feed": 3}
Values = dict[Signal, np.ndarray]


def coarse(*faults: dict[str, Any], **changes: Any) -> Values:
    """Two days at 300 s: day 1 begins at column 288."""
    return run(scenario(*faults, step_s=300, workload=STEADY, **changes))[1]


@pytest.fixture(scope="module")
def healthy() -> Values:
    return coarse()


def test_a_fan_fault_heats_the_whole_node_in_a_step_or_a_ramp_and_no_sensor_says_so(healthy: Values) -> None:
    fault = {"kind": "node_fan_fault", "target": "node-002", "start_day": 1.0, "remaining_ratio": 0.6}
    step, ramp = coarse(fault), coarse({**fault, "ramp_hours": 24.0})
    for values in (step, ramp):
        hotter = (values[Signal.GPU_TEMPERATURE] - healthy[Signal.GPU_TEMPERATURE])[8:]
        assert (hotter[:, -12:] > 3).all()
        assert same(values, healthy, list(range(8)))
        for sensor in (Signal.INLET, Signal.COOLANT_FLOW, Signal.COOLANT_SUPPLY):
            assert np.array_equal(values[sensor], healthy[sensor])
    soon = slice(288 + 12, 288 + 24)
    assert step[Signal.GPU_TEMPERATURE][8:, soon].mean() > ramp[Signal.GPU_TEMPERATURE][8:, soon].mean() + 3


def test_a_fan_fault_is_repaired_at_its_end(healthy: Values) -> None:
    values = coarse({"kind": "node_fan_fault", "target": "node-002", "start_day": 1.0, "end_day": 1.5})
    assert np.array_equal(values[Signal.GPU_TEMPERATURE][:, -130:], healthy[Signal.GPU_TEMPERATURE][:, -130:])


def test_a_heat_wave_warms_air_coolant_and_every_gpu_and_passes(healthy: Values) -> None:
    wave = {"kind": "heat_wave", "target": "fleet", "start_day": 0.5, "end_day": 1.5, "ramp_hours": 6.0}
    values = coarse(wave)
    for sensor in (Signal.INLET, Signal.COOLANT_SUPPLY):
        rise = values[sensor] - healthy[sensor]
        assert np.allclose(rise[:, 144 + 72 : 432], 8.0, atol=0.11)
        assert rise[:, 144 + 36].mean() == pytest.approx(4.0, abs=0.2)
        assert not rise[:, 432:].any()
    hotter = values[Signal.GPU_TEMPERATURE] - healthy[Signal.GPU_TEMPERATURE]
    assert (hotter[:, 300:430].mean(axis=1) > 4).all()


def test_a_lowered_power_limit_shows_and_holds_power_and_clocks_below_it(healthy: Values) -> None:
    cap = {"kind": "power_cap_change", "target": "fleet", "start_day": 1.0, "end_day": 1.5, "limit_watts": 500}
    values = coarse(cap)
    assert set(np.unique(values[Signal.POWER_LIMIT][:, 288:432])) == {500}
    assert set(np.unique(values[Signal.POWER_LIMIT][:, 432:])) == {700}
    assert values[Signal.POWER][:, 288:432].max() <= 500
    assert (values[Signal.SM_CLOCK][:, 288:432] < healthy[Signal.SM_CLOCK][:, 288:432]).all()
    assert (values[Signal.CLOCK_EVENT_REASONS][:, 288:432].astype(int) & 0x4).all()
    assert values[Signal.THERMAL_THROTTLE].max() == 0


def test_a_power_brake_counts_brake_seconds_and_halves_the_clocks_of_its_feed_only() -> None:
    brake = {"kind": "power_brake", "target": "feed-1", "start_day": 1.0, "end_day": 1.1, "braked_share_ratio": 0.8}
    calm, values = coarse(fleet=FOUR_NODES), coarse(brake, fleet=FOUR_NODES)
    braked = np.diff(values[Signal.POWER_BRAKE_THROTTLE], axis=1)
    during = slice(288, 288 + 28)
    assert np.allclose(braked[:12, during], 240.0)
    assert braked[:12].sum() == pytest.approx(12 * 29 * 240.0)
    assert values[Signal.SM_CLOCK][:12, during].max() <= 1980e6 / 2
    assert (values[Signal.CLOCK_EVENT_REASONS][:12, during].astype(int) & 0x88 == 0x88).all()
    assert values[Signal.THERMAL_THROTTLE].max() == 0
    assert same(values, calm, [12, 13, 14, 15])


def test_a_clogged_node_of_an_air_cooled_fleet_gets_hotter_too() -> None:
    air = {"gpus": 16, "nodes_per_rack": 1, "cooling": "air"}
    fault = {"kind": "node_fan_fault", "target": "node-001", "start_day": 1.0, "remaining_ratio": 0.6}
    hotter = coarse(fault, fleet=air)[Signal.GPU_TEMPERATURE] - coarse(fleet=air)[Signal.GPU_TEMPERATURE]
    assert hotter[:8, -12:].min() > 3
    assert not hotter[8:].any()
