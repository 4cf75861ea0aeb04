"""The healthy fleet, and how a hot one defends itself."""

import numpy as np
import pytest

from healthsvc.fleet import COUNTERS, Signal
from tests.simulator.runs import START_S, STEADY, run, same, scenario


@pytest.fixture(scope="module")
def healthy() -> dict[Signal, np.ndarray]:
    return run(scenario())[1]


@pytest.fixture(scope="module")
def drifting() -> dict[Signal, np.ndarray]:
    drift = {"kind": "tim_drift", "target": 3, "start_day": 0.0, "growth_percent_per_day": 40.0}
    return run(scenario(drift, workload=STEADY))[1]


def test_the_same_seed_gives_the_same_samples(healthy: dict[Signal, np.ndarray]) -> None:
    again, other = run(scenario())[1], run(scenario(), seed=2)[1]
    assert same(healthy, again, list(range(16)))
    assert not same(healthy, other, list(range(16)))


def test_energy_is_the_integral_of_power(healthy: dict[Signal, np.ndarray]) -> None:
    joules = np.cumsum(healthy[Signal.POWER] * 60.0, axis=1)
    np.testing.assert_allclose(healthy[Signal.ENERGY], joules, rtol=1e-5)


def test_temperatures_are_whole_degrees(healthy: dict[Signal, np.ndarray]) -> None:
    for signal in (Signal.GPU_TEMPERATURE, Signal.MEMORY_TEMPERATURE):
        assert np.array_equal(healthy[signal], np.floor(healthy[signal]))


def test_counters_never_fall_and_continue_over_midnight(healthy: dict[Signal, np.ndarray]) -> None:
    for signal in COUNTERS & healthy.keys():
        assert (np.diff(healthy[signal], axis=1) >= 0).all(), signal


def test_a_healthy_fleet_is_plausible_and_does_not_throttle(healthy: dict[Signal, np.ndarray]) -> None:
    assert 28 <= healthy[Signal.GPU_TEMPERATURE].min() <= healthy[Signal.GPU_TEMPERATURE].max() <= 84
    assert 60 <= healthy[Signal.POWER].min() <= healthy[Signal.POWER].max() <= 700
    assert healthy[Signal.THERMAL_THROTTLE].max() == 0
    assert set(np.unique(healthy[Signal.GPU_MAX_OPERATING_LIMIT])) == {87}


def test_steady_windows_show_the_resistance_from_temperature_power_and_coolant() -> None:
    spec = {"spread_ratio": 0.0, "daily_noise_ratio": 0.0, "resistance_kelvin_per_watt": 0.06}
    values = run(scenario(workload=STEADY, thermal=spec))[1]
    coolant = np.repeat(values[Signal.COOLANT_SUPPLY], 8, axis=0)
    resistance = (values[Signal.GPU_TEMPERATURE] + 0.5 - coolant) / values[Signal.POWER]
    assert np.median(resistance) == pytest.approx(0.06, rel=0.01)


def test_software_throttling_holds_the_limit_while_resistance_goes_on_rising(
    drifting: dict[Signal, np.ndarray],
) -> None:
    temperature, power = drifting[Signal.GPU_TEMPERATURE][3], drifting[Signal.POWER][3]
    throttled = np.diff(drifting[Signal.SOFTWARE_THERMAL_THROTTLE][3], prepend=0.0)
    assert temperature.max() == 87
    assert (temperature[throttled > 30] == 87).mean() > 0.99
    assert power[-60:].mean() < 0.9 * power[:60].mean()
    assert drifting[Signal.SM_CLOCK][3, -1] < drifting[Signal.SM_CLOCK][3, 0]
    assert throttled.max() <= 60 + 1e-6  # seconds, counted in nanoseconds
    assert int(drifting[Signal.CLOCK_EVENT_REASONS][3, -1]) & 0x20
    assert drifting[Signal.HARDWARE_THERMAL_THROTTLE][3].max() == 0


def test_hardware_slowdown_takes_over_when_software_cannot_hold_the_heat_and_halves_the_clock() -> None:
    loss = {"kind": "loop_flow_loss", "target": "loop-1", "start_day": 0.5, "remaining_ratio": 0.05}
    values = run(scenario(loss, days=1, workload=STEADY))[1]
    slowed = np.diff(values[Signal.HARDWARE_THERMAL_THROTTLE][:8], axis=1, prepend=0.0) > 0
    assert slowed.mean() > 0.3
    assert values[Signal.SM_CLOCK][:8][slowed].max() <= 1980e6 / 2
    assert (values[Signal.CLOCK_EVENT_REASONS][:8][slowed].astype(int) & 0x48 == 0x48).all()
    both = values[Signal.THERMAL_THROTTLE]
    assert (both >= values[Signal.SOFTWARE_THERMAL_THROTTLE] - 1e-6).all()


def test_days_are_cut_at_midnight_utc_wherever_the_run_begins() -> None:
    simulator, values = run(scenario(days=1), start_s=START_S + 6 * 3600 + 17)
    assert simulator.start_s == START_S + 6 * 3600
    assert values[Signal.POWER].shape == (16, 1440)
    fresh = type(simulator)(simulator.scenario, np.random.default_rng(1), simulator.start_s)
    assert [len(chunk.times_s) for chunk in fresh.chunks()] == [1080, 360]


def test_air_cooled_gpus_breathe_the_inlet() -> None:
    air = {"gpus": 16, "nodes_per_rack": 1, "cooling": "air"}
    values = run(scenario(fleet=air, days=1))[1]
    assert Signal.INLET in values
    assert Signal.COOLANT_FLOW not in values
