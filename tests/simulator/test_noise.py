"""How restless the fleet is: what the profile says is what the telemetry shows."""

import numpy as np
import pytest

from healthsvc.fleet import Signal
from healthsvc.simulator import parse_scenario
from tests.simulator.runs import run

WORK = {"duty_ratio": 1.0, "job_hours": 240.0, "level_min_ratio": 0.9, "level_max_ratio": 0.95}


def daily_log_resistance(profile: str) -> np.ndarray:
    """Log of each GPU's daily median resistance about its mean [gpu, day], from temperature, power and coolant."""
    table = {"name": "n", "days": 60, "step_s": 900, "noise": profile, "fleet": {"gpus": 64}, "workload": WORK}
    _, values = run(parse_scenario(table, "test"), seed=3)
    coolant = np.repeat(values[Signal.COOLANT_SUPPLY], 32, axis=0)
    seen = values[Signal.POWER] > 400.0
    resistance = np.where(seen, (values[Signal.GPU_TEMPERATURE] + 0.5 - coolant) / values[Signal.POWER], np.nan)
    logs = np.log(np.nanmedian(resistance.reshape(64, 60, 96)[:, :, 8:], axis=2))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("profile", "deviation", "persistence"), [("quiet", 0.003, 0.0), ("default", 0.01, 0.4), ("noisy", 0.02, 0.6)]
)
def test_daily_resistance_wanders_as_the_profile_says(profile: str, deviation: float, persistence: float) -> None:
    logs = daily_log_resistance(profile)
    assert logs.std() == pytest.approx(deviation, rel=0.2)
    assert (logs[:, 1:] * logs[:, :-1]).mean() / (logs**2).mean() == pytest.approx(persistence, abs=0.08)


def test_the_default_profile_is_what_a_scenario_without_one_gets() -> None:
    plain, named = ({"name": "n", **more} for more in ({}, {"noise": "default"}))
    assert parse_scenario(plain, "test") == parse_scenario(named, "test")


def test_what_a_scenario_says_outranks_its_profile() -> None:
    table = {"name": "n", "noise": "noisy", "thermal": {"daily_noise_ratio": 0.005}}
    thermal = parse_scenario(table, "test").thermal
    assert (thermal.daily_noise_ratio, thermal.daily_noise_persistence) == (0.005, 0.6)
