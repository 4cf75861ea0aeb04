"""Rates of a fleet with two sorts of GPUs: found again, weighed as a grid weighs them, and their intervals hold."""

import numpy as np
import pytest
from numpy.typing import NDArray

from healthsvc.features.counts import GammaPrior
from healthsvc.features.rate_classes import RateClasses, fit_rate_classes, rate_posterior
from tests import naive

DAYS = 90.0


def made(seed: int, gpus: int, quiet: float = 0.02, noisy: float = 6.0) -> tuple[NDArray[np.float64], ...]:
    """(errors of 90 days, of the next 30) [gpu], one GPU in ten noisy."""
    rng = np.random.default_rng(seed)
    rate = np.where(rng.random(gpus) < 0.1, rng.gamma(2.0, noisy / 2.0, gpus), rng.gamma(2.0, quiet / 2.0, gpus))
    return rng.poisson(rate * DAYS).astype(np.float64), rng.poisson(rate * 30.0).astype(np.float64)


def test_both_classes_are_found_again() -> None:
    counts, _ = made(1, 20_000)
    found = fit_rate_classes(counts, np.full(len(counts), DAYS))
    assert found.share == pytest.approx((0.9, 0.1), abs=0.02)
    assert [prior.mean for prior in found.prior] == pytest.approx([0.02, 6.0], rel=0.1)


def test_a_posterior_is_that_of_a_grid_of_rates() -> None:
    classes = RateClasses((0.9, 0.1), (GammaPrior(1.5, 60.0), GammaPrior(2.0, 0.5)))
    counts = np.array([0.0, 1.0, 7.0, 300.0])
    found = rate_posterior(counts, np.full(4, DAYS), np.ones(4), (classes,), np.zeros(4, np.int32))
    for gpu, count in enumerate(counts.tolist()):
        slow = naive.rate_chances(count, DAYS, classes.share, [(1.5, 60.0), (2.0, 0.5)])
        assert found.chance[:, gpu] == pytest.approx(slow, rel=1e-4, abs=1e-12)
        means = [(1.5 + count) / (60.0 + DAYS), (2.0 + count) / (0.5 + DAYS)]
        assert found.mean[gpu] == pytest.approx(np.dot(slow, means), rel=1e-4)


@pytest.mark.parametrize("seed", [2, 3])
def test_ninety_percent_intervals_of_the_next_month_hold_what_they_say(seed: int) -> None:
    counts, ahead = made(seed, 6000)
    days = np.full(len(counts), DAYS)
    classes = fit_rate_classes(counts, days)
    rate = rate_posterior(counts, days, np.ones(len(counts)), (classes,), np.zeros(len(counts), np.int32))
    inside = (ahead >= rate.quantile(0.05, 30.0)) & (ahead <= rate.quantile(0.95, 30.0))
    assert inside.mean() >= 0.89  # whole counts: never less than it says, but for chance
    rng = np.random.default_rng(seed)
    low = rate.tail(ahead + 1, 30.0)
    rank = low + rng.random(len(ahead)) * (rate.tail(ahead, 30.0) - low)
    assert 0.88 < ((rank > 0.05) & (rank < 0.95)).mean() < 0.92


def test_more_errors_never_lower_a_rate_and_a_silent_fleet_has_one_too() -> None:
    counts = np.arange(400.0)
    days = np.full(400, DAYS)
    classes = fit_rate_classes(made(4, 3000)[0], np.full(3000, DAYS))
    rate = rate_posterior(counts, days, np.ones(400), (classes,), np.zeros(400, np.int32))
    assert (np.diff(rate.mean) > 0).all()
    none = fit_rate_classes(np.zeros(50), np.full(50, DAYS))
    assert 0 < none.prior[0].mean < none.prior[1].mean < 0.01
    assert fit_rate_classes(np.full(3, np.nan), np.zeros(3)).share == (0.9, 0.1)


def test_a_model_of_few_gpus_stays_close_to_the_site() -> None:
    counts, _ = made(5, 4000)
    site = fit_rate_classes(counts, np.full(4000, DAYS))
    few = fit_rate_classes(np.array([0.0, 3.0, 1.0]), np.full(3, DAYS), site)
    assert [a.mean / b.mean for a, b in zip(few.prior, site.prior, strict=True)] == pytest.approx([1, 1], rel=0.5)
