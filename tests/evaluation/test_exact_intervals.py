"""Exact intervals against statsmodels and scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from healthsvc.evaluation.exact import CONFIDENCE, clopper_pearson, garwood, garwood_upper, rate


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_clopper_pearson_is_that_of_statsmodels_and_scipy(successes: int, failures: int) -> None:
    n = successes + failures
    lower, upper = (float(bound) for bound in clopper_pearson(successes, n))
    if n == 0:
        assert (lower, upper) == (0.0, 1.0)
        return
    assert (lower, upper) == pytest.approx(proportion_confint(successes, n, 1 - CONFIDENCE, "beta"), abs=1e-9)
    assert (lower, upper) == pytest.approx(tuple(stats.binomtest(successes, n).proportion_ci(CONFIDENCE)), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 5000))
def test_the_poisson_bounds_leave_the_stated_tails(count: int) -> None:
    lower, upper = (float(bound) for bound in garwood(count))
    assert stats.poisson.cdf(count, upper) == pytest.approx(0.025)
    assert stats.poisson.sf(count - 1, lower) == pytest.approx(0.025) if count else lower == 0
    assert stats.poisson.cdf(count, float(garwood_upper(count))) == pytest.approx(0.05)


def test_nothing_seen_bounds_the_mean_at_three() -> None:
    assert float(garwood_upper(0)) == pytest.approx(-math.log(0.05))


def test_bounds_work_on_arrays() -> None:
    lower, upper = clopper_pearson([0, 5, 10], [10, 10, 10])
    assert lower[0] == 0
    assert upper[2] == 1
    assert np.all(lower < upper)


def test_a_rate_of_nothing_is_not_a_number() -> None:
    assert math.isnan(rate(0, 0).value)
