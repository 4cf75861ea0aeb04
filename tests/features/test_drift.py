"""A drift is found by its day, a standstill is left alone whatever its noise remembers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import lfilter

from healthsvc.features.drift import (
    best_change,
    day_scatter,
    persistence_of,
    tail_of_best,
    whiten,
    without_spikes,
)
from tests import naive
from tests.histories import as_maybe

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(deadline=None, max_examples=15)
SIGMA = 0.01


def noise(rng: np.random.Generator, gpus: int, days: int, persistence: float) -> NDArray[np.float64]:
    """AR(1) of deviation SIGMA, five days in a hundred missing."""
    white = rng.standard_normal((gpus, days + 40))
    gain = np.sqrt(1 - persistence**2)
    values = SIGMA * np.asarray(lfilter([gain], [1, -persistence], white, axis=1))[:, 40:]
    values[rng.random(values.shape) < 0.05] = np.nan
    return values


@FEW
@given(SEEDS, st.sampled_from([0.0, 0.4, 0.7]), st.sampled_from(["ramp", "step"]), st.sampled_from([1, -1]))
def test_the_best_change_is_that_of_least_squares_with_the_whole_covariance(
    seed: int, persistence: float, kind: str, sign: int
) -> None:
    rng = np.random.default_rng(seed)
    values = noise(rng, 4, 25, persistence)
    values[rng.random(values.shape) < 0.3] = np.nan
    found = best_change(whiten(values, np.full(4, SIGMA), persistence), kind, sign, 2, 3)  # type: ignore[arg-type]
    days = np.arange(25)
    for row in range(4):
        seen = ~np.isnan(values[row])
        best = -np.inf
        for column in range(25):
            if seen[:column].sum() >= 2 and seen[column:].sum() >= 3:
                shape = np.maximum(days - column + 1, 0) if kind == "ramp" else (days >= column) * 1
                if kind == "step" or len(set(shape[seen].tolist())) > 1:
                    z = sign * naive.change_z(as_maybe(values[row]), shape.tolist(), SIGMA, persistence)
                    best = max(best, z)
        if np.isinf(best):
            assert np.isnan(found.z[row])
        else:
            assert found.z[row] == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("persistence", [0.0, 0.4, 0.6])
def test_the_rate_of_false_alarms_is_the_same_whatever_the_noise_remembers(persistence: float) -> None:
    values = noise(np.random.default_rng(1), 8000, 60, persistence)
    found = best_change(whiten(values, np.full(8000, SIGMA), persistence), "ramp", 1, 0, 3)
    p = tail_of_best(found.z, 4.0)
    assert 0.0055 < np.mean(p < 0.01) < 0.0145  # three deviations of 80 expected
    assert np.mean(p < 0.1) < 0.1


def test_a_test_that_forgets_the_persistence_cries_wolf() -> None:
    values = noise(np.random.default_rng(2), 4000, 60, 0.6)
    blind = tail_of_best(best_change(whiten(values, np.full(4000, SIGMA), 0.0), "ramp", 1, 0, 3).z, 4.0)
    assert np.mean(blind < 0.01) > 0.05


def test_the_day_and_the_pace_of_a_drift_are_found() -> None:
    values = noise(np.random.default_rng(3), 200, 60, 0.4) + 0.006 * np.maximum(np.arange(60) - 39, 0)
    found = best_change(whiten(values, np.full(200, SIGMA), 0.4), "ramp", 1, 0, 3)
    assert np.median(found.column) == pytest.approx(40, abs=2)
    assert np.median(found.size) == pytest.approx(0.006, rel=0.1)
    assert found.z.min() > 5


def test_persistence_and_scatter_are_measured_in_spite_of_a_few_that_drift() -> None:
    values = noise(np.random.default_rng(5), 300, 60, 0.4)
    values[:6] += 0.005 * np.arange(60)
    assert persistence_of(values, 0.0, 0.0) == pytest.approx(0.4, abs=0.05)
    assert np.nanmedian(day_scatter(values)) == pytest.approx(SIGMA * np.sqrt(0.6), rel=0.03)
    assert persistence_of(values[:, :5], 0.4, 200.0) == 0.4  # too short to tell


def test_a_spike_is_pulled_in_and_a_climb_is_not() -> None:
    values = np.vstack([np.zeros(20), 0.03 * np.arange(20)])
    values[0, 9] = 0.5
    calm = without_spikes(values, np.full(2, SIGMA))
    assert calm[0, 9] == pytest.approx(3 * SIGMA)
    np.testing.assert_allclose(calm[1], values[1])


def test_a_series_without_days_is_not_tested() -> None:
    for shape in ((3, 0), (3, 2), (0, 30)):
        values = np.full(shape, 0.1)
        found = best_change(whiten(values, np.full(shape[0], SIGMA), 0.4), "ramp", 1, 0, 3)
        assert np.isnan(found.z).all()
        assert np.isnan(tail_of_best(found.z, 4.0)).all()
        assert without_spikes(values, np.full(shape[0], SIGMA)).shape == shape


@FEW
@given(SEEDS, st.floats(0.0, 0.02))
def test_a_steeper_climb_has_never_a_smaller_z(seed: int, steeper: float) -> None:
    values = noise(np.random.default_rng(seed), 3, 40, 0.4)
    climb = np.maximum(np.arange(40) - 19, 0)
    z = [
        best_change(whiten(values + slope * climb, np.full(3, SIGMA), 0.4), "ramp", 1, 20, 3).z
        for slope in (0.004, 0.004 + steeper)
    ]
    assert (z[1] >= z[0] - 1e-9).all()
