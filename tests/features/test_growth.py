"""Whether error-days come closer together: the power law, its interval, and when there is too little to say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.growth import fit_growth
from tests import naive
from tests.histories import as_float, as_maybe

FEW = settings(deadline=None, max_examples=30)
SEEDS = st.integers(0, 2**32 - 1)


def struck(rng: np.random.Generator, gpus: int, days: int, beta: float, total: float) -> NDArray[np.float64]:
    """Days with errors of a power-law process with `total` events expected."""
    edges = total * (np.arange(days + 1) / days) ** beta
    return rng.poisson(np.diff(edges), (gpus, days)).astype(np.float64)


@FEW
@given(SEEDS)
def test_the_exponent_agrees_with_its_twin_gaps_included(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.3, (6, 40)).astype(np.float64) * 7
    counts[rng.random(counts.shape) < 0.2] = np.nan
    counts[5] = np.nan
    exposure = np.where(rng.random(counts.shape) < 0.1, 0.0, rng.uniform(1, 24, counts.shape))
    found = fit_growth(counts, exposure)
    slow = [naive.crow_exponent(as_maybe(row), hours.tolist()) for row, hours in zip(counts, exposure, strict=True)]
    np.testing.assert_allclose(found.exponent, [as_float(value) for value in slow], rtol=1e-9)
    assert np.isnan(found.days[5])


def test_four_error_days_are_too_few_and_five_are_enough() -> None:
    counts = np.zeros((2, 30))
    counts[0, [3, 9, 15, 21]] = 1000.0
    counts[1, [3, 9, 15, 21, 27]] = 1.0
    found = fit_growth(counts, np.full(counts.shape, 24.0))
    assert np.isnan([found.exponent[0], found.low[0], found.high[0]]).all()
    assert found.days.tolist() == [4.0, 5.0]
    assert found.low[1] < found.exponent[1] < found.high[1]


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(beta: float) -> None:
    counts = struck(np.random.default_rng(3), 4000, 180, beta, 14.0)
    found = fit_growth(counts, np.full(counts.shape, 24.0))
    stated = ~np.isnan(found.exponent)
    held = ((found.low < beta) & (beta < found.high))[stated].mean()
    assert 0.77 < held < 0.86  # a day holds one event at most, so a little more than 80 %


def test_a_stuck_row_of_a_million_errors_counts_as_its_days() -> None:
    rng = np.random.default_rng(4)
    counts = struck(rng, 50, 90, 1.0, 12.0)
    exposure = np.full(counts.shape, 24.0)
    loud = np.where(counts > 0, counts * rng.integers(1, 10**6, counts.shape), 0.0)
    np.testing.assert_array_equal(fit_growth(counts, exposure).exponent, fit_growth(loud, exposure).exponent)


@FEW
@given(SEEDS, st.sampled_from([0.1, 24.0, 3600.0]))
def test_the_unit_of_exposure_does_not_matter(seed: int, by: float) -> None:
    counts = struck(np.random.default_rng(seed), 5, 60, 1.5, 12.0)
    one, other = (fit_growth(counts, np.full(counts.shape, scale)) for scale in (1.0, by))
    np.testing.assert_allclose(one.exponent, other.exponent, rtol=1e-9)


@FEW
@given(SEEDS)
def test_later_error_days_never_lower_the_exponent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    days = np.sort(rng.choice(59, 8, replace=False))
    early, late = np.zeros((1, 60)), np.zeros((1, 60))
    early[0, days] = 1.0
    late[0, np.append(days[1:], 59)] = 1.0  # the first of them happens on the last day instead
    exposure = np.ones((1, 60))
    assert fit_growth(late, exposure).exponent[0] > fit_growth(early, exposure).exponent[0]


def test_an_empty_ledger_says_nothing() -> None:
    found = fit_growth(np.zeros((3, 0)), np.zeros((3, 0)))
    assert np.isnan(found.exponent).all()
    assert np.isnan(found.days).all()
