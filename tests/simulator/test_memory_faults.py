"""Faults and decoys of the memory beyond wear and a sudden error."""

import numpy as np

from healthsvc.fleet import Signal
from healthsvc.simulator.memory_faults import RECURRENCE_DAYS, RECURRENCE_RATIO, recurrence_days
from tests.simulator.runs import run, scenario


def test_a_recurrent_error_comes_again_after_each_reset_and_each_time_a_row_is_remapped() -> None:
    fault = {"kind": "recurrent_dbe", "target": 3, "start_day": 1.0, "base_per_year": 0.5, "reset_after_hours": 6.0}
    values = run(scenario(fault, days=40, step_s=300))[1]
    errors = np.flatnonzero(np.diff(values[Signal.DBE_AGGREGATE][3]) > 0) + 1
    assert errors[0] == 288
    assert len(errors) >= 3
    assert (np.diff(errors) >= 288).all()
    assert np.array_equal(values[Signal.UNCORRECTABLE_REMAPS][3], values[Signal.DBE_AGGREGATE][3])
    for column in errors[:-1]:
        assert values[Signal.XID][3, column : column + 2].tolist() == [48, 63]
        assert values[Signal.REMAP_PENDING][3, column + 71] == 1
        assert values[Signal.REMAP_PENDING][3, column + 72] == 0
        assert values[Signal.DBE_VOLATILE][3, column + 72] == 0


def test_recurrences_follow_the_factors_of_titan() -> None:
    base_per_day = 0.048 / 365.25
    days = recurrence_days(np.random.default_rng(1).exponential(1.0, 200_000), base_per_day)
    assert days.min() >= 1.0
    survivors = 1.0
    for low, high, ratio in zip(RECURRENCE_DAYS, RECURRENCE_DAYS[1:], RECURRENCE_RATIO, strict=False):
        survivors *= np.exp(-(high - low) * ratio * base_per_day)
        assert abs((days > high).mean() - survivors) < 0.005
    assert np.isinf(days[days > 365.0]).all()


def test_a_burst_is_thousands_of_correctable_errors_in_hours_one_remap_and_then_peace() -> None:
    burst = {"kind": "sbe_burst", "target": 3, "start_day": 0.5, "errors": 5000, "hours": 2.0}
    quiet = {"correctable_per_day": 0.0, "noisy_gpus_ratio": 0.0, "correctable_remaps_per_day": 0.0}
    values = run(scenario(burst, step_s=300, errors=quiet))[1]
    errors = np.diff(values[Signal.SBE_AGGREGATE][3])
    assert errors.sum() == 5000
    assert np.flatnonzero(errors)[[0, -1]].tolist() == [144, 167]
    assert values[Signal.CORRECTABLE_REMAPS][3, -1] == 1
    for signal in (Signal.DBE_AGGREGATE, Signal.UNCORRECTABLE_REMAPS, Signal.REMAP_FAILURE):
        assert not values[signal].any()
