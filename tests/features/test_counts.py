"""Shrinkage of rare counts: the fits are those of statsmodels, the tails those that are summed by hand."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

from healthsvc.features.counts import (
    GammaPrior,
    adjusted,
    dispersions,
    exceedance,
    fit_gamma,
    fit_groups,
    predictive_quantile,
    upper_rate,
    widened,
)
from healthsvc.features.negative_binomial import CELLS, Toward, cells, fit_negative_binomial, winsorised
from tests import naive
from tests.histories import as_float, as_maybe

FEW = settings(deadline=None, max_examples=25)
SEEDS = st.integers(0, 2**32 - 1)


def made(seed: int, shape: float, gpus: int = 2000) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(counts, exposure) of a fleet whose rates are gamma of that shape around 0.4."""
    rng = np.random.default_rng(seed)
    exposure = rng.uniform(20.0, 90.0, gpus)
    return rng.poisson(rng.gamma(shape, 0.4 / shape, gpus) * exposure).astype(np.float64), exposure


@pytest.mark.parametrize("shape", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_mean_and_dispersion_are_those_of_statsmodels(shape: float, seed: int) -> None:
    counts, exposure = made(seed, shape)
    ones = np.ones(len(counts))
    theirs = sm.NegativeBinomial(counts, ones, exposure=exposure).fit(disp=0, maxiter=1000)
    mean, found = fit_negative_binomial(counts, exposure, ones)
    assert mean == pytest.approx(float(np.exp(theirs.params[0])), rel=1e-4)
    assert 1.0 / found == pytest.approx(float(theirs.params[1]), rel=1e-4)  # their alpha


@FEW
@given(SEEDS, st.sampled_from([0.2, 1.0, 5.0]))
def test_nothing_near_the_fit_is_likelier(seed: int, shape: float) -> None:
    counts, exposure = made(seed, shape, 200)
    mean, found = fit_negative_binomial(counts, exposure, np.ones(200))

    def likelihood(m: float, a: float) -> float:
        return naive.negative_binomial_log_likelihood(counts.tolist(), exposure.tolist(), m, a)

    best = likelihood(mean, found)
    for m, a in ((1.02, 1.0), (0.98, 1.0), (1.0, 1.05), (1.0, 0.95)):
        assert likelihood(mean * m, found * a) < best


def test_weights_are_repetitions() -> None:
    counts, exposure = made(4, 0.5, 60)
    times = np.random.default_rng(0).integers(1, 5, 60)
    by_weight = fit_negative_binomial(counts, exposure, times.astype(np.float64))
    repeated = fit_negative_binomial(np.repeat(counts, times), np.repeat(exposure, times), np.ones(times.sum()))
    assert by_weight == pytest.approx(repeated, rel=1e-6)


def test_a_large_fleet_is_fitted_by_cells_nearly_as_by_all_its_gpus() -> None:
    counts, exposure = made(5, 0.3, 20_000)
    counts = winsorised(counts)
    whole = fit_negative_binomial(counts, exposure, np.ones(len(counts)))
    y, t, w = cells(counts, exposure)
    assert len(y) < CELLS * 1.1
    assert w.sum() == len(counts)
    assert fit_negative_binomial(y, t, w)[1] == pytest.approx(whole[1], rel=1e-2)
    assert fit_negative_binomial(y, t, w)[0] == pytest.approx(whole[0], rel=1e-3)


def test_the_order_of_the_gpus_does_not_matter_to_the_last_bit() -> None:
    counts, exposure = made(6, 0.3, 10_000)
    order = np.random.default_rng(1).permutation(len(counts))
    assert fit_gamma(counts, exposure) == fit_gamma(counts[order], exposure[order])


def test_a_model_of_few_gpus_keeps_near_the_sites_prior_and_one_of_many_has_its_own() -> None:
    rng = np.random.default_rng(7)
    groups = np.repeat([0, 1, 2], [1000, 1000, 4]).astype(np.int32)
    rate = np.array([0.1, 1.0, 1.0])[groups]
    exposure = np.full(len(groups), 30.0)
    counts = rng.poisson(rng.gamma(2.0, rate / 2.0) * exposure).astype(np.float64)
    site, (low, high, few) = fit_groups(counts, exposure, groups)
    assert low.mean == pytest.approx(0.1, rel=0.1)
    assert high.mean == pytest.approx(1.0, rel=0.1)
    own = counts[groups == 2].sum() / exposure[groups == 2].sum()
    assert min(site.mean, own) <= few.mean <= max(site.mean, own)
    silent, (alone,) = fit_groups(np.full(3, np.nan), np.zeros(3), np.zeros(3, np.int32))
    assert silent == alone == GammaPrior(0.5, 1.0)


def test_a_group_without_an_event_is_below_the_site_and_above_nothing() -> None:
    groups = np.repeat([0, 1], [500, 20]).astype(np.int32)
    counts, exposure = made(8, 1.0, 520)
    counts[groups == 1] = 0.0
    site, (_, none) = fit_groups(counts, exposure, groups)
    assert 0 < none.mean < site.mean / 3


@FEW
@given(st.floats(0.05, 20.0), st.floats(0.05, 20.0), st.floats(0.1, 60.0), st.sampled_from([0.05, 0.5, 0.95]))
def test_predictive_quantiles_are_found_by_counting_up(a: float, b: float, exposure: float, q: float) -> None:
    found = predictive_quantile(q, np.array([a, np.nan]), np.array([b, b]), exposure)
    assert np.isnan(found[1])
    k = int(found[0])
    if k > 400:
        return
    assert 1.0 - naive.exceedance(k + 1, a, b, exposure) >= q - 1e-9
    assert k == 0 or 1.0 - naive.exceedance(k, a, b, exposure) < q + 1e-9


@FEW
@given(st.floats(0.05, 20.0), st.floats(0.05, 20.0), st.integers(0, 10_000), st.integers(1, 10_000))
def test_more_errors_are_never_less_unusual(a: float, b: float, count: int, more: int) -> None:
    p = exceedance(np.array([float(count), float(count + more)]), np.full(2, a), np.full(2, b), 1.0)
    assert p[1] <= p[0]


@FEW
@given(st.floats(0.05, 20.0), st.floats(0.05, 20.0), st.integers(1, 1000), st.sampled_from([1.0, 7.0, 24.0]))
def test_the_unit_of_exposure_does_not_matter(a: float, b: float, count: int, by: float) -> None:
    one, other = (exceedance(np.array([float(count)]), np.array([a]), np.array([b * s]), 2.0 * s) for s in (1.0, by))
    assert one[0] == pytest.approx(other[0], rel=1e-9, abs=1e-300)


def test_of_no_event_the_upper_rate_is_three_by_the_exposure() -> None:
    upper = upper_rate(np.array([0.0, 0.0, 5.0, np.nan, 0.0]), np.array([10.0, 100.0, 10.0, 10.0, 0.0]))
    assert upper[:2] == pytest.approx([0.3, 0.03], rel=2e-3)
    assert upper[2] == pytest.approx(1.0513, rel=1e-3)  # Poisson, five seen: 10.513 at most
    assert np.isnan(upper[3:]).all()


@FEW
@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1.0)), max_size=20))
def test_the_false_discovery_rate_is_that_of_its_twin_and_of_statsmodels(p: list[float | None]) -> None:
    found = adjusted(np.array([as_float(value) for value in p], np.float64))
    np.testing.assert_allclose(found, [as_float(value) for value in naive.false_discovery(p)], rtol=1e-12)
    tested = [value for value in p if value is not None]
    if tested:
        np.testing.assert_allclose(found[~np.isnan(found)], multipletests(tested, method="fdr_bh")[1], rtol=1e-12)


def test_dispersion_is_one_of_single_errors_and_three_of_threes() -> None:
    rng = np.random.default_rng(9)
    single = rng.poisson(2.0, (300, 80)).astype(np.float64)
    for counts, expected in ((single, 1.0), (3 * single, 3.0)):
        found = dispersions(np.full(300, 80.0), counts.sum(axis=1), (counts**2).sum(axis=1))
        assert np.median(found) == pytest.approx(expected, rel=0.1)
        middle = (np.median(found) + 1) / 2
        slow = np.array([naive.dispersion(row) for row in counts])
        assert np.corrcoef(found, np.maximum(slow, middle))[0, 1] > 0.8
    none = dispersions(np.array([0.0, 1.0, 80.0]), np.zeros(3), np.zeros(3))
    assert none.tolist() == [1.0, 1.0, 1.0]


def test_a_widened_predictive_has_the_mean_and_the_variance_that_it_says() -> None:
    a, b = widened(np.array([2.0]), np.array([4.0]), 30.0, np.array([3.0]))
    mean = a / b * 30.0
    assert mean[0] == pytest.approx(15.0)
    assert (mean + mean**2 / a)[0] == pytest.approx(3.0 * 15.0 + 15.0**2 / 2.0)
    same = widened(np.array([2.0]), np.array([4.0]), 30.0, np.array([1.0]))
    assert (same[0][0], same[1][0]) == pytest.approx((2.0, 4.0))


def test_a_fit_is_drawn_to_where_it_is_told_when_there_is_little_else() -> None:
    one = np.ones(1)
    mean, shape = fit_negative_binomial(np.zeros(1), one * 1e-6, one, Toward(0.3, 2.0))
    assert (mean, shape) == pytest.approx((0.3, 2.0), rel=1e-3)


def test_fits_agree_whatever_is_in_the_list() -> None:
    counts = np.append(made(3, 0.5, 300)[0], np.nan)
    exposure = np.append(made(3, 0.5, 300)[1], 10.0)
    assert fit_gamma(counts, exposure) == fit_gamma(counts[:-1], exposure[:-1])
    assert as_maybe(counts)[-1] is None
