"""Skill, calibration and ranking: by hand, and against scikit-learn and statsmodels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss

from healthsvc.evaluation.bootstrap import (
    average_precision_interval,
    bootstrap,
    cluster_sums,
    ratio_interval,
    skill_interval,
)
from healthsvc.evaluation.cost import cost_curve
from healthsvc.evaluation.probability import average_precision, calibration_slope, probability_metrics, reliability

P = np.array([0.9, 0.2, 0.4, 0.1])
Y = np.array([1.0, 0.0, 1.0, 0.0])


def drawn(n: int = 20_000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities and outcomes drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 8, n)
    return p, (rng.random(n) < p).astype(float)


def test_a_case_by_hand() -> None:
    found = probability_metrics(P, Y)
    # Squared errors 0.01 + 0.04 + 0.36 + 0.01 = 0.42; the base rate 0.5 has 0.25: skill 1 - 0.105 / 0.25.
    assert found.brier == pytest.approx(0.105)
    assert found.brier_skill == pytest.approx(0.58)
    assert found.log_score == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.9]).mean())
    assert (found.n, found.events, found.base_rate) == (4, 2, 0.5)
    assert found.calibration.value == pytest.approx(1.6 / 2)  # sum p / sum y
    # Garwood of 2 events: 0.2422 to 7.2247.
    assert found.calibration.lower == pytest.approx(1.6 / 7.2247, rel=1e-4)
    assert found.calibration.upper == pytest.approx(1.6 / 0.24221, rel=1e-4)
    assert found.average_precision == 1.0


def test_unknown_gpus_and_open_outcomes_are_left_out_and_counted() -> None:
    nan = math.nan
    found = probability_metrics([*P, nan, 0.3, nan], [*Y, 1, nan, nan])
    assert (found.n, found.unknown, found.unresolved) == (4, 2, 1)
    assert found.brier == pytest.approx(0.105)


def test_nothing_known_gives_nothing() -> None:
    found = probability_metrics([math.nan], [1])
    assert found.n == 0
    assert all(math.isnan(v) for v in (found.brier, found.brier_skill, found.log_score, found.average_precision))


@pytest.mark.parametrize(
    ("p", "y", "complaint"), [([1.2], [0], "p = 1.2"), ([0.5], [2], "y must be"), ([0.5], [0, 1], "1 cases")]
)
def test_impossible_cases_are_refused(p: list[float], y: list[float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        probability_metrics(p, y)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.9]), st.booleans()), min_size=2, max_size=60))
def test_the_figures_are_those_of_scikit_learn(cases: list[tuple[float, bool]]) -> None:
    p, y = np.array([c[0] for c in cases]), np.array([c[1] for c in cases], float)
    found = probability_metrics(p, y)
    assert found.brier == pytest.approx(brier_score_loss(y, p, labels=[0, 1]))
    assert found.log_score == pytest.approx(log_loss(y, p, labels=[0, 1]))
    if y.any():
        assert found.average_precision == pytest.approx(average_precision_score(y, p))


def test_calibrated_probabilities_have_slope_and_ratio_one() -> None:
    found = probability_metrics(*drawn())
    assert found.calibration.lower < 1 < found.calibration.upper
    assert found.slope.lower < 1 < found.slope.upper
    assert found.brier_skill > 0


def test_too_extreme_probabilities_have_a_slope_below_one() -> None:
    p, y = drawn()
    odds = (p / (1 - p)) ** 2
    assert calibration_slope(odds / (1 + odds), y).upper < 0.6


def test_a_slope_is_not_given_without_events_spread_or_overlap() -> None:
    p, y = drawn()
    assert math.isnan(calibration_slope(p[:30], y[:30]).value)
    assert math.isnan(calibration_slope(np.full(1000, 0.5), np.arange(1000) % 2).value)
    assert math.isnan(calibration_slope(np.linspace(0.01, 0.99, 100), np.arange(100) >= 50).value)


def test_reliability_bins_are_half_decades_and_hold_every_case() -> None:
    p, y = drawn()
    found = reliability([*p, 0.0, 1.0, math.nan], [*y, 0, 1, 1])
    assert found.n.sum() == len(p) + 2
    assert found.edges[:3] == pytest.approx([0, 1e-5, 10**-4.5])
    assert len(found.edges) == len(found.n) + 1
    full = found.n >= 100
    assert np.all((found.lower <= found.mean_p) & (found.mean_p <= found.upper) | ~full)
    assert math.isnan(reliability([0.5], [1]).observed[0])


def test_the_bootstrap_of_a_mean_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        cluster = np.repeat(np.arange(40), 5)
        values = np.repeat(rng.normal(size=40), 5) + rng.normal(size=200)  # cases of a cluster are alike; true mean 0
        found = ratio_interval(values, np.ones(200), cluster, rng, draws=400)
        covered += found.lower <= 0 <= found.upper
    assert 0.88 <= covered / 200 <= 0.99
    naive = ratio_interval(values, np.ones(200), np.arange(200), rng)
    assert found.upper - found.lower > 1.3 * (naive.upper - naive.lower)


def test_draws_are_of_whole_clusters() -> None:
    sums = cluster_sums([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]], ["r1", "r2", "r1"])
    assert sums.tolist() == [[2, 2], [0, 1]]
    found = bootstrap(lambda total: total[..., 0] / total[..., 1], sums, np.random.default_rng(0))
    assert (found.value, found.lower, found.upper, found.n) == (pytest.approx(2 / 3), 0.0, 1.0, 2)


def test_the_same_generator_gives_the_same_interval_and_no_cases_give_none() -> None:
    p, y = drawn(500)
    one, other = (skill_interval(p, y, np.arange(500) // 5, np.random.default_rng(3)) for _ in range(2))
    assert one == other
    empty = skill_interval([], [], [], np.random.default_rng(0))
    assert math.isnan(empty.value)
    assert math.isnan(empty.lower)


def test_shuffled_labels_have_no_skill() -> None:
    p, y = drawn(5000)
    gpu, rng = np.arange(5000) // 5, np.random.default_rng(5)
    assert skill_interval(p, y, gpu, rng).lower > 0
    assert skill_interval(p, rng.permutation(y), gpu, rng).lower <= 0
    assert probability_metrics(p, rng.permutation(y)).brier_skill <= 0


def test_average_precision_with_its_interval() -> None:
    p, y = drawn(4000)
    p = np.round(p, 2)  # ties
    found = average_precision_interval(p, y, np.arange(4000) // 4, np.random.default_rng(2), draws=300)
    assert found.value == pytest.approx(average_precision(p, y))
    assert found.lower < found.value < found.upper
    # Drawing every cluster once gives the value itself, ties and all: compare with a draw done by hand.
    rng = np.random.default_rng(9)
    weight = np.bincount(rng.integers(0, 1000, 1000), minlength=1000)
    again = np.repeat(np.arange(4000), weight[np.arange(4000) // 4])
    by_hand = average_precision(p[again], y[again])
    single = average_precision_interval(p, y, np.arange(4000) // 4, np.random.default_rng(9), draws=1)
    assert single.lower == pytest.approx(by_hand)


def test_costs_by_hand() -> None:
    found = cost_curve([*P, math.nan], [*Y, 1], thresholds=[0.05, 0.3, 0.95], ratios=[1, 10])
    # At 0.05 all four alert: 2 false; at 0.3 the two events alert; at 0.95 nobody: 2 missed.
    assert found.false_positives.tolist() == [2, 0, 0]
    assert found.false_negatives.tolist() == [0, 0, 2]
    assert found.cost.tolist() == [[2, 0, 2], [2, 0, 20]]
    assert found.best().tolist() == [0.3, 0.3]
    assert found.in_money(50).tolist() == [[100, 0, 100], [100, 0, 1000]]


def test_dear_failures_ask_for_low_thresholds() -> None:
    p, y = drawn()
    best = cost_curve(p, y, np.geomspace(0.001, 0.99, 50), [1, 5, 20, 100]).best()
    assert np.all(np.diff(best) < 0)
    assert best[1] == pytest.approx(1 / 6, rel=0.5)  # calibrated: act from c_drain / (c_drain + c_fail) on


def test_no_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        cost_curve(P, Y, [], [1])
