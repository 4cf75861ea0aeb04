"""The chance of a bad day: against a dense sum, against simulated days, and never safer when things are worse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from healthsvc.features.first_passage import Course, passage_probability
from tests import naive

FEW = settings(deadline=None, max_examples=25)
TIMES = np.array([1.0, 7.0, 30.0, 120.0])


def course(
    level: float = 0.0,
    slope: float = 0.003,
    level_sd: float = 0.005,
    slope_sd: float = 0.0005,
    correlation: float = 0.5,
    diffusion: float = 0.002,
    noise: float = 0.01,
    persistence: float = 0.4,
) -> Course:
    cross = correlation * level_sd * slope_sd
    numbers = (level, slope, level_sd**2, cross, slope_sd**2, diffusion, noise, persistence)
    return Course(*(np.array([number]) for number in numbers))


@settings(deadline=None, max_examples=8)
@given(st.floats(0.02, 0.2), st.floats(-0.002, 0.01), st.floats(0.0, 0.9), st.floats(0.003, 0.03))
def test_the_quadrature_agrees_with_a_dense_sum_over_levels(d: float, slope: float, rho: float, noise: float) -> None:
    one = course(slope=slope, correlation=rho, noise=noise)
    fast = passage_probability(np.array([14.0]), one, np.array([d]))[0, 0]
    covariance = [[one.level_var[0], one.cross_var[0]], [one.cross_var[0], one.slope_var[0]]]
    slow = naive.passage(14.0, d, 0.0, slope, covariance, 0.002, noise, 0.4)
    assert fast == pytest.approx(slow, abs=0.02)


@pytest.mark.parametrize("persistence", [0.0, 0.4])
@pytest.mark.parametrize(("slope", "limit"), [(0.001, 0.06), (0.003, 0.08), (0.006, 0.12)])
def test_days_that_scatter_cross_as_early_as_simulated_ones(persistence: float, slope: float, limit: float) -> None:
    """A quarter, half, three quarters of all walks have crossed when it is said, within a sixth of the time."""
    rng = np.random.default_rng(3)
    walks, days = 4000, 120
    drift = rng.normal(slope, 0.0003, (walks, 1)) * np.arange(1, days + 1)
    white = rng.standard_normal((walks, days + 30))
    gain = np.sqrt(1 - persistence**2)
    scatter = 0.01 * np.asarray(lfilter([gain], [1, -persistence], white, axis=1))[:, 30:]
    moved = np.cumsum(rng.normal(0, 0.002, (walks, days)), axis=1)
    crossed = np.maximum.accumulate(drift + moved + scatter >= limit, axis=1).mean(axis=0)
    one = course(slope=slope, level_sd=1e-5, slope_sd=0.0003, correlation=0.0, persistence=persistence)
    said = passage_probability(np.arange(1.0, days + 1), one, np.array([limit]))[0]
    for share in (0.25, 0.5, 0.75):
        apart = np.argmax(said >= share) - np.argmax(crossed >= share)
        assert abs(apart) <= 1.5 + np.argmax(crossed >= share) / 6, share


@FEW
@given(st.floats(0.0, 0.15), st.floats(0.0, 0.05), st.floats(-0.003, 0.02), st.floats(0.0, 0.02), st.floats(0.0, 0.9))
def test_a_higher_level_or_a_steeper_slope_is_never_safer(
    limit: float, up: float, slope: float, steeper: float, persistence: float
) -> None:
    before = course(slope=slope, persistence=persistence)
    reached = passage_probability(TIMES, before, np.array([limit]))
    higher = passage_probability(TIMES, replace(before, level=before.level + up), np.array([limit]))
    assert (higher >= reached - 1e-9).all()
    faster = passage_probability(TIMES, replace(before, slope=before.slope + steeper), np.array([limit]))
    assert (faster >= reached - 1e-3).all()  # how early the first day crosses is an approximation
    assert (np.diff(reached, axis=1) >= 0).all()


def test_what_is_not_known_has_no_chance_and_what_is_beyond_the_limit_has_every() -> None:
    lost = passage_probability(TIMES, course(level=np.nan), np.array([0.1]))
    assert np.isnan(lost).all()
    assert np.isnan(passage_probability(TIMES, course(), np.array([np.nan]))).all()
    assert (passage_probability(TIMES, course(level=0.2), np.array([0.1])) > 0.999).all()
