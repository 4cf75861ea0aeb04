"""A grid that is finer than the scrapes makes every gap an absence: it must be noticed."""

import numpy as np
import pytest

from healthsvc.features.cadence import sample_interval_s, too_fine
from healthsvc.fleet import FleetWindow, GpuId, Signal


def window(every: int, step_s: float = 60.0, columns: int = 120, gpus: int = 4) -> FleetWindow:
    values = np.full((gpus, columns), np.nan, np.float32)
    values[:, ::every] = 50.0
    ids = tuple(GpuId(f"g{i}") for i in range(gpus))
    return FleetWindow(ids, np.arange(1.0, columns + 1) * step_s, {Signal.GPU_TEMPERATURE: values})


@pytest.mark.parametrize("every", [1, 2, 5])
def test_the_interval_between_samples_is_seen(every: int) -> None:
    assert sample_interval_s(window(every)) == every * 60.0


def test_a_grid_five_times_as_fine_as_the_scrapes_is_noticed() -> None:
    assert too_fine(window(5)) == 300.0
    assert too_fine(window(1)) is None


def test_one_missed_scrape_in_three_is_no_other_interval() -> None:
    thinned = window(1)
    values = thinned.get(Signal.GPU_TEMPERATURE).copy()
    values[:, ::3] = np.nan
    assert too_fine(FleetWindow(thinned.gpus, thinned.times_s, {Signal.GPU_TEMPERATURE: values})) is None


def test_a_fleet_without_samples_has_no_interval() -> None:
    empty = FleetWindow((GpuId("g"),), np.arange(1.0, 4) * 60.0, {})
    assert np.isnan(sample_interval_s(empty))
    assert too_fine(empty) is None
