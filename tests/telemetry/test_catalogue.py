"""The tables: every signal has a row, and what is no measurement becomes no sample."""

import numpy as np
import pytest

from healthsvc.fleet import ENVIRONMENT, GPU_SIGNALS, Signal
from healthsvc.telemetry.catalogue import ENVIRONMENT_ROWS, GPU_ROWS, to_base_units
from healthsvc.telemetry.catalogue.plausible import BLANKS


def test_every_signal_that_is_not_derived_has_a_row() -> None:
    assert {row.signal for row in GPU_ROWS} == set(GPU_SIGNALS) - {Signal.DRIVER_RELOADS}
    assert {row.signal for row in ENVIRONMENT_ROWS} == ENVIRONMENT


def test_a_metric_has_one_row() -> None:
    metrics = [row.metric for row in GPU_ROWS] + [row.metric for row in ENVIRONMENT_ROWS]
    assert len(metrics) == len(set(metrics))


@pytest.mark.parametrize("blank", BLANKS)
def test_a_blank_is_no_sample_in_any_signal(blank: float) -> None:
    for row in GPU_ROWS:
        assert np.isnan(to_base_units(np.array([blank]), row.signal, row.scale)).all(), row.metric


def test_every_spelling_of_the_int64_blank_is_known() -> None:
    seen = np.array([float(0x7FFFFFFFFFFFFFF0 + k) for k in range(4)] + [9.2233720368547758e18])
    assert np.isnan(to_base_units(seen, Signal.ENERGY)).all()


def test_neighbours_of_a_blank_are_legal_counters() -> None:
    near = np.array([2.0**47 - 1, 2.0**47 + 4, 2147483631.0, 2147483636.0, 2.0**63 - 1024, 5e17])
    np.testing.assert_array_equal(to_base_units(near, Signal.THERMAL_THROTTLE), near)


def test_what_no_hardware_can_read_is_no_sample() -> None:
    read = np.array([-273.0, 0.0, 45.0, 151.0, np.inf, np.nan])
    np.testing.assert_array_equal(to_base_units(read, Signal.GPU_TEMPERATURE), [np.nan, 0, 45, np.nan, np.nan, np.nan])
    assert np.isnan(to_base_units(np.array([0.0]), Signal.MEMORY_TEMPERATURE)).all()
