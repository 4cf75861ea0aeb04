"""A GPU's share of its node's errors: beta-binomial, and no alarm about the one that has always had them all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.features.shares import FEW, share_tail
from tests import naive

SOME = settings(deadline=None, max_examples=40)


def tail(own: float, total: float, expected: float, precision: float) -> float:
    return float(share_tail(*(np.array([value]) for value in (own, total, expected, precision)))[0])


@SOME
@given(st.integers(0, FEW), st.integers(0, FEW), st.floats(0.01, 0.99), st.floats(0.1, 20.0))
def test_the_tail_of_few_errors_is_summed(own: int, others: int, expected: float, precision: float) -> None:
    total = own + others
    if total > FEW:
        return
    slow = naive.share_at_least(own, total, precision * expected, precision * (1 - expected))
    assert tail(own, total, expected, precision) == pytest.approx(slow, rel=1e-7, abs=1e-12)


@SOME
@given(st.integers(FEW + 1, 400), st.floats(0.0, 1.0), st.floats(0.02, 0.9), st.floats(0.5, 8.0))
def test_the_tail_of_many_is_right_within_a_factor(total: int, share: float, expected: float, precision: float) -> None:
    own = max(1, round(share * total))
    slow = naive.share_at_least(own, total, precision * expected, precision * (1 - expected))
    assert slow / 2 < tail(own, total, expected, precision) < slow * 2


@SOME
@given(st.integers(1, 10**8), st.integers(1, 10**8), st.integers(0, 10**8), st.floats(0.0, 1.0), st.floats(0.1, 9.0))
def test_more_of_its_own_errors_are_never_less_unusual(
    own: int, more: int, others: int, expected: float, precision: float
) -> None:
    if own + others <= FEW < own + more + others:
        return  # from the sum to the continuous: two descriptions of one tail
    before, after = (tail(n, n + others, expected, precision) for n in (own, own + more))
    assert after <= before * (1 + 1e-9)


def test_who_has_always_had_all_of_them_is_nothing_new_and_a_stranger_is() -> None:
    storm = 6.0e7
    assert tail(storm, storm, 0.999, 4.0) > 0.5
    assert tail(storm, storm, 1.0, 4.0) > 0.5
    assert tail(storm, storm, 1 / 8, 4.0) < 1e-15
    assert tail(storm / 8, storm, 1 / 8, 4.0) > 0.1  # everybody alike
    assert tail(0.0, 10.0, 1 / 8, 4.0) == 1.0
    assert np.isnan(tail(np.nan, 10.0, 1 / 8, 4.0))
