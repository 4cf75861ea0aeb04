"""What moved first at a place in trouble."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.features.lead_lag import BIN_S, LEAST_PAIRS, MOST_LAG_S, five_minute_means, lead, middle, moved_at
from tests import naive_incidents
from tests.histories import as_maybe, random_floats

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(deadline=None, max_examples=25)
NAN = np.nan


def test_five_minute_means_end_with_the_series_and_skip_what_is_missing() -> None:
    series = np.arange(12.0)
    np.testing.assert_array_equal(five_minute_means(series, 60.0), [4.0, 9.0])
    series[7:] = NAN
    np.testing.assert_array_equal(five_minute_means(series, 60.0), [4.0, NAN])
    assert len(five_minute_means(series[:3], 60.0)) == 0


def test_a_series_that_stands_still_or_comes_back_has_not_moved() -> None:
    assert moved_at(np.full(24, 5.0), 0.5) is None
    assert moved_at(np.where(np.arange(24) == 12, 9.0, 5.0), 0.5) is None
    assert moved_at(np.full(24, NAN), 0.5) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_has_moved_from_its_first_bin_on_up_or_down(sign: float) -> None:
    assert moved_at(sign * np.where(np.arange(24) >= 15, 3.0, 0.0), 2.0) == 15
    assert moved_at(sign * np.where(np.arange(24) >= 15, 1.9, 0.0), 2.0) is None


def test_a_ramp_has_moved_where_it_is_half_of_what_is_asked_away() -> None:
    ramp = np.clip(np.arange(24.0) - 9.0, 0.0, None)
    assert moved_at(ramp, 4.0) == 11


def test_a_movement_begins_after_a_first_one_that_was_undone() -> None:
    series = np.zeros(24)
    series[8:10] = 5.0
    series[20:] = 5.0
    assert moved_at(series, 2.0) == 20


@pytest.mark.parametrize("bins", [-6, -2, 0, 1, 6])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_one_that_moves_earlier_leads_by_as_much(bins: int, sign: float) -> None:
    steps = np.random.default_rng(3).normal(size=40)
    series = np.cumsum(steps)
    first, second = series[6 + bins : 30 + bins], sign * series[6:30]
    found, correlation = lead(first, second)
    assert found == bins
    assert correlation == pytest.approx(sign)


@FEW
@given(SEEDS)
def test_the_lag_agrees_with_one_lag_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = random_floats(rng, (2, 24), gaps=0.1)
    most = round(MOST_LAG_S / BIN_S)
    told = {
        lag: r
        for lag in range(-most, most + 1)
        if (r := naive_incidents.correlation_at(as_maybe(first), as_maybe(second), lag, LEAST_PAIRS)) is not None
    }
    found, correlation = lead(first, second)
    if not told:
        assert np.isnan(correlation)
    else:
        assert abs(correlation) == pytest.approx(max(map(abs, told.values())))
        assert correlation == pytest.approx(told[found])


def test_too_short_a_series_leads_nothing() -> None:
    found, correlation = lead(np.arange(5.0), np.arange(5.0))
    assert found == 0
    assert np.isnan(correlation)


def test_one_odd_sensor_does_not_move_the_middle() -> None:
    series = np.array([[1.0, 1.0], [2.0, NAN], [90.0, 3.0]])
    np.testing.assert_array_equal(middle(series), [2.0, 2.0])
    assert np.isnan(middle(series[:, :1] * NAN)).all()
