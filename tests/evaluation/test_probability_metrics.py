"""Skill, calibration and ranking: by hand, and against scikit-learn and statsmodels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss

from healthsvc.evaluation.cost import cost_curve
from healthsvc.evaluation.probability import calibration_slope, probability_metrics, reliability

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


def test_shuffled_outcomes_have_no_skill() -> None:
    p, y = drawn(5000)
    assert probability_metrics(p, np.random.default_rng(5).permutation(y)).brier_skill <= 0


def test_costs_by_hand() -> None:
    found = probability_metrics([*P, math.nan], [*Y, 1]).cost
    at = [int(np.argmin(np.abs(found.thresholds - level))) for level in (0.0464, 0.215, 1.0)]
    # At 0.046 all four alert: 2 false; at 0.215 the two events alert; at 1 nobody: 2 missed.
    assert found.false_positives[at].tolist() == [2, 0, 0]
    assert found.false_negatives[at].tolist() == [0, 0, 2]
    assert found.cost[:3][:, at].tolist() == [[2, 0, 2], [2, 0, 6], [2, 0, 20]]
    assert found.best[0] == found.thresholds[at[1]]  # 0.215 of all that cost nothing: the highest, which drains least


def test_dear_failures_ask_for_low_thresholds() -> None:
    found = cost_curve(*drawn())
    assert np.all(np.diff(found.best) < 0)
    # Calibrated: act from c_drain / (c_drain + c_fail) on, up to the grid of three thresholds a decade.
    assert np.all(np.abs(np.log10(found.best * (1 + found.ratios))) < 1 / 3)
