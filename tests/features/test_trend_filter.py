"""The trend filter is the textbook's: the same numbers as statsmodels and as a slow twin, gaps included."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.trend import TrendSpec, filter_trend, likeliest_steps, smooth_levels, trend_path
from tests import naive
from tests.histories import as_maybe

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(deadline=None, max_examples=15)
SPEC = TrendSpec(0.001, 0.0002, 0.003, huber=np.inf)
NOISE = 0.004


def with_gaps(seed: int, days: int = 60) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    y = 0.002 * np.arange(days) + np.cumsum(rng.normal(0, 0.001, days)) + rng.normal(0, NOISE, days)
    y[rng.random(days) < 0.1] = np.nan
    y[0] = 0.0
    return y


def by_statsmodels(y: NDArray[np.float64]) -> Any:
    """Filter and smoother of the same model with the same known initial state, and no switch to a steady gain."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    model = UnobservedComponents(y[1:], "local linear trend")
    step = np.array([[1.0, 1.0], [0.0, 1.0]])
    first = np.diag([NOISE**2, SPEC.slope_prior**2])
    drift = np.diag([SPEC.level_step**2, SPEC.slope_step**2])
    model.ssm.initialize_known(step @ np.array([y[0], 0.0]), step @ first @ step.T + drift)
    model.ssm.tolerance = 0.0  # or the gain freezes once it has nearly converged
    model.loglikelihood_burn = 0  # the state is known from the first day on
    variances = {"irregular": NOISE**2, "level": SPEC.level_step**2, "trend": SPEC.slope_step**2}
    return model.smooth([variances[name.removeprefix("sigma2.")] for name in model.param_names])


@pytest.mark.filterwarnings("ignore::FutureWarning:statsmodels")
@pytest.mark.parametrize("seed", range(5))
def test_state_likelihood_and_smoothed_levels_are_those_of_statsmodels(seed: int) -> None:
    y = with_gaps(seed)
    path = trend_path(y[None, :], np.array([NOISE]), SPEC)
    ours, theirs = path.now, by_statsmodels(y)
    np.testing.assert_allclose(ours.level[0], theirs.filtered_state[0, -1], rtol=1e-6)
    np.testing.assert_allclose(ours.slope[0], theirs.filtered_state[1, -1], rtol=1e-6)
    np.testing.assert_allclose(ours.level_var[0], theirs.filtered_state_cov[0, 0, -1], rtol=1e-6)
    np.testing.assert_allclose(ours.cross_var[0], theirs.filtered_state_cov[0, 1, -1], rtol=1e-6)
    np.testing.assert_allclose(ours.slope_var[0], theirs.filtered_state_cov[1, 1, -1], rtol=1e-6)
    np.testing.assert_allclose(ours.log_likelihood[0], theirs.llf, rtol=1e-6)
    np.testing.assert_allclose(smooth_levels(path, SPEC)[0, 1:], theirs.smoothed_state[0], rtol=1e-6)


@FEW
@given(SEEDS)
def test_the_likelihood_agrees_with_a_filter_begun_anew_each_day(seed: int) -> None:
    y = with_gaps(seed, 20)
    ours = filter_trend(np.stack([y, np.full_like(y, np.nan)]), np.full(2, NOISE), SPEC)
    slow = naive.trend_log_likelihood(as_maybe(y), NOISE, SPEC.level_step, SPEC.slope_step, SPEC.slope_prior)
    assert ours.log_likelihood[0] == pytest.approx(slow, rel=1e-9)
    assert ours.log_likelihood[1] == 0
    assert np.isnan(ours.level[1])


def test_the_path_ends_where_the_filter_does_and_any_of_its_gpus_can_be_taken() -> None:
    y = np.stack([with_gaps(seed) for seed in range(4)])
    path = trend_path(y, np.full(4, NOISE), SPEC)
    np.testing.assert_array_equal(path.level[-1], filter_trend(y, np.full(4, NOISE), SPEC).level)
    some = path.take(np.array([2, 0]))
    np.testing.assert_array_equal(some.slope, path.slope[:, [2, 0]])
    np.testing.assert_array_equal(some.now.level, path.now.level[[2, 0]])


def test_an_opened_slope_follows_a_bend_that_a_settled_one_misses() -> None:
    rng = np.random.default_rng(4)
    y = np.maximum(np.arange(60.0) - 40, 0)[None, :] * 0.006 + rng.normal(0, 0.01, (1, 60))
    stiff = TrendSpec(0.0005, 0.00003, 0.003, slope_opened=0.01)
    settled = filter_trend(y, np.array([0.01]), stiff)
    opened = filter_trend(y, np.array([0.01]), stiff, np.array([40]))
    assert opened.slope[0] == pytest.approx(0.006, abs=0.0015)
    assert settled.slope[0] < 0.004
    assert opened.slope_var[0] > settled.slope_var[0]


def test_a_fleet_tells_which_steps_are_likely() -> None:
    rng = np.random.default_rng(6)
    still = rng.normal(0, 0.01, (60, 60))
    moving = still + np.cumsum(rng.normal(0, 0.004, (60, 60)), axis=1)
    grid = ((0.0005, 0.004), (0.00003,))
    noise = np.full(60, 0.01)
    assert likeliest_steps(still, noise, SPEC, *grid).level_step == 0.0005
    assert likeliest_steps(moving, noise, SPEC, *grid).level_step == 0.004
    assert likeliest_steps(np.full((3, 9), np.nan), np.full(3, 0.01), SPEC, *grid) == SPEC
