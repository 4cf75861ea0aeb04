"""Quiet, elevated and bursting days: the histogram, the fit, and what a GPU's own days make of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.bursts import PROFILE, day_tail, expected_day, fit_profiles
from healthsvc.features.mixture import (
    ASSUMED,
    BURSTING,
    CODES,
    EXACT,
    QUIET,
    cell_counts,
    cell_exposures,
    code_days,
    fit_states,
    histogram,
    responsibilities,
)
from tests import naive

FEW = settings(deadline=None, max_examples=25)
SEEDS = st.integers(0, 2**32 - 1)
DAYS = 83


def bursting_fleet(seed: int, gpus: int, always: int) -> NDArray[np.float64]:
    """Daily errors [gpu, day]: the first `always` GPUs burst by the thousand every twentieth day."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(0.5, 0.6, (gpus, 1)), (gpus, DAYS)).astype(np.float64)
    bursts = rng.random((always, DAYS)) < 0.05
    counts[:always] += np.where(bursts, np.floor(rng.lognormal(7.0, 1.0, bursts.shape)), 0.0)
    return counts


def profiles(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    codes = code_days(counts, np.ones(counts.shape))
    return fit_profiles(codes, counts, np.zeros(len(counts), np.int32)).own


@FEW
@given(st.floats(0.0, 1e6), st.floats(0.26, 1.0))
def test_a_cell_stands_for_what_is_in_it(count: float, exposure: float) -> None:
    whole = np.floor(count)
    code = int(code_days(np.array([[whole]]), np.array([[exposure]]))[0, 0])
    assert 0 <= code < CODES
    stands_for = cell_counts()[code]
    assert stands_for == whole if whole < EXACT else stands_for == pytest.approx(whole, rel=0.05)
    assert exposure <= cell_exposures()[code] < exposure + 0.25


def test_what_was_hardly_observed_is_in_no_cell() -> None:
    codes = code_days(np.array([[1.0, np.nan, 3.0, 1e12]]), np.array([[0.2, 1.0, 0.0, 1.0]]))
    assert codes[0, :3].tolist() == [CODES] * 3
    assert codes[0, 3] < CODES
    assert histogram(codes).sum() == 1


def test_planted_states_are_found_again() -> None:
    rng = np.random.default_rng(1)
    state = rng.choice(3, 400_000, p=[0.9, 0.09, 0.01])
    mean, shape = np.array([0.2, 8.0, 2000.0])[state], np.array([1.0, 3.0, 1.0])[state]
    counts = rng.poisson(rng.gamma(shape, mean / shape)).astype(np.float64)
    found = fit_states(histogram(code_days(counts[None, :], np.ones((1, len(counts))))))
    assert found.share == pytest.approx([0.9, 0.09, 0.01], rel=0.05)
    assert found.mean == pytest.approx([0.2, 8.0, 2000.0], rel=0.1)
    assert found.shape == pytest.approx([1.0, 3.0, 1.0], rel=0.25)


@FEW
@given(SEEDS, st.sampled_from([0.0, 0.1, 40.0]))
def test_the_states_keep_their_order_whatever_the_fleet(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    counts = np.floor(rng.gamma(0.3, max(level, 1e-9) / 0.3, (20, 30)))
    counts[rng.random(counts.shape) < 0.01] += np.floor(rng.lognormal(6.0, 3.0))
    found = fit_states(histogram(code_days(counts, np.ones(counts.shape))))
    assert (np.diff(found.mean) > 0).all()
    assert found.share.sum() == pytest.approx(1.0)
    assert (found.mean[1:] >= np.array([5.0, 20.0]) * found.mean[:-1] * (1 - 1e-9)).all()


def test_a_fleet_without_a_day_keeps_the_assumption() -> None:
    found = fit_states(np.zeros(CODES))
    np.testing.assert_allclose(found.share, ASSUMED.share)
    np.testing.assert_allclose(found.mean, ASSUMED.mean)


def test_chances_of_the_states_add_up_and_rise_with_the_errors() -> None:
    chances = responsibilities(ASSUMED)
    np.testing.assert_allclose(chances[:, :CODES].sum(axis=0), 1.0)
    assert (chances[:, CODES] == 0).all()
    whole_days = chances[:, 3:CODES:4]
    assert (np.diff(whole_days[QUIET]) <= 1e-12).all()
    assert (np.diff(whole_days[BURSTING, 20:]) >= -1e-12).all()


@FEW
@given(
    st.integers(1, 300),
    st.tuples(st.floats(0.0, 0.5), st.floats(1e-4, 0.4)),
    st.tuples(st.floats(0.05, 1.0), st.floats(0.3, 5.0)),
    st.tuples(st.floats(5.0, 40.0), st.floats(0.3, 5.0)),
    st.tuples(st.floats(2.0, 9.0), st.floats(100.0, 5000.0), st.floats(0.3, 3.0)),
)
def test_the_tail_of_a_day_agrees_with_its_twin(
    count: int,
    share: tuple[float, float],
    quiet: tuple[float, float],
    elevated: tuple[float, float],
    burst: tuple[float, float, float],
) -> None:
    values = (*share, *quiet, *elevated, *burst)
    slow = naive.day_tail(count, dict(zip(PROFILE, values, strict=True)))
    fast = day_tail(np.array([float(count), 0.0, np.nan]), np.tile(values, (3, 1)))
    assert fast[0] == pytest.approx(slow, rel=2e-3, abs=1e-9)
    assert fast[1] == 1.0
    assert np.isnan(fast[2])


@FEW
@given(SEEDS, st.integers(1, 10**7), st.integers(1, 10**9))
def test_more_errors_are_never_less_unusual(seed: int, count: int, more: int) -> None:
    own = profiles(bursting_fleet(seed, 40, 2))
    before, after = (day_tail(np.full(40, float(n)), own) for n in (count, count + more))
    assert (after <= before).all()


def test_who_always_bursts_is_explained_by_its_own_bursts_and_a_storm_is_by_nothing() -> None:
    own = profiles(bursting_fleet(2, 1000, 10))
    burst = day_tail(np.full(1000, 2000.0), own)
    assert (burst[:10] > 1e-3).all()
    assert np.median(burst[10:]) < 1e-4
    storm = day_tail(np.full(1000, 17_700.0 * 600), own)
    assert (storm[10:] < 1e-11).all()
    assert (expected_day(own)[:10] > 20 * expected_day(own)[10:].mean()).all()


def test_a_noisy_gpu_is_held_to_its_own_level() -> None:
    rng = np.random.default_rng(3)
    counts = rng.poisson(0.05, (300, DAYS)).astype(np.float64)
    counts[0] = rng.poisson(30.0, DAYS)
    own = profiles(counts)
    tail = day_tail(np.full(300, 40.0), own)
    assert tail[0] > 0.01
    assert (tail[1:] < 1e-3).all()


def test_the_past_storm_of_one_gpu_leaves_the_others_as_they_were() -> None:
    counts = bursting_fleet(4, 1000, 10)
    stormy = counts.copy()
    stormy[500, 40:50] = 1.5e9
    before, after = (day_tail(np.full(1000, 1e8), profiles(each)) for each in (counts, stormy))
    others = np.arange(1000) != 500
    assert (after[others] < np.maximum(30 * before[others], 1e-11)).all()
    assert after[500] > 1e-3


def test_the_order_of_the_gpus_does_not_matter() -> None:
    counts = bursting_fleet(5, 200, 5)
    order = np.random.default_rng(0).permutation(200)
    np.testing.assert_allclose(profiles(counts)[order], profiles(counts[order]), rtol=1e-6)
