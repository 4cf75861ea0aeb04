"""Thresholds are bought with a budget of false alerts, and only where there is enough to pay with."""

import numpy as np
import pytest

from healthsvc.evaluation.thresholds import CHOSEN, NONE_FITS, Budget, choose_threshold, raises
from healthsvc.fleet import DAY_S, MONTH_S

QUARTER_S = 6 * 3600.0


def test_an_alert_is_raised_at_the_threshold_and_again_only_after_half_of_it() -> None:
    p = np.array([0.1, 0.5, 0.3, 0.6, 0.2, 0.5, np.nan, 0.5])[:, None]
    assert raises(p, 0.5)[:, 0].tolist() == [False, True, False, False, False, True, False, False]


def test_silence_neither_raises_nor_clears() -> None:
    p = np.array([np.nan, 0.6, np.nan, 0.6])[:, None]
    assert raises(p, 0.5)[:, 0].tolist() == [False, True, False, False]


def test_with_too_little_exposure_the_shipped_threshold_stands() -> None:
    p = np.full((40, 10), 0.2)
    found = choose_threshold("thermal", p, np.zeros(p.shape, bool), QUARTER_S, Budget(), shipped=0.3)
    assert (found.p_7d, found.source, found.false_alerts) == (0.3, "shipped", 0)
    assert found.exposure_gpu_months == pytest.approx(400 * QUARTER_S / MONTH_S)
    assert Budget().needed_gpu_months("thermal") == 3000
    assert Budget().needed_gpu_months("memory") == 2000


@pytest.mark.parametrize("allowed", [3, 5, 10])
def test_the_smallest_threshold_within_the_budget_is_chosen(allowed: int) -> None:
    """100 GPUs for 10 months: 1,000 GPU-months; twenty healthy GPUs peak once each, at 0.02, 0.04, ... 0.40."""
    p = np.full((int(10 * MONTH_S / DAY_S) + 2, 100), 0.001)
    p[100, :20] = 0.02 * np.arange(1, 21)
    found = choose_threshold("thermal", p, np.zeros(p.shape, bool), DAY_S, Budget({"thermal": allowed}), shipped=0.9)
    assert found.source == CHOSEN
    assert found.false_alerts == allowed
    below, above = 0.02 * (20 - allowed), 0.02 * (21 - allowed)
    assert below < found.p_7d <= above


def test_an_alert_before_its_event_costs_nothing() -> None:
    steps = int(40 * MONTH_S / DAY_S)
    p = np.full((steps, 100), 0.001)
    p[50:80, :60] = 0.5
    excused = np.zeros(p.shape, bool)
    excused[50:80, :60] = True
    paid = choose_threshold("thermal", p, excused, DAY_S, Budget(), shipped=0.9)
    unpaid = choose_threshold("thermal", p, np.zeros(p.shape, bool), DAY_S, Budget(), shipped=0.9)
    assert paid.source == unpaid.source == CHOSEN
    assert paid.p_7d < 0.5 < unpaid.p_7d


def test_where_no_threshold_keeps_within_the_budget_the_shipped_one_stands_and_the_source_says_so() -> None:
    """100 GPUs for 40 months that flap between 0 and 0.999: whatever the threshold, half of the days raise an alert."""
    steps = int(40 * MONTH_S / DAY_S)
    p = np.where(np.arange(steps)[:, None] % 2 == 1, 0.999, 0.0) * np.ones(100)
    found = choose_threshold("thermal", p, np.zeros(p.shape, bool), DAY_S, Budget(), shipped=0.3)
    assert (found.p_7d, found.source, found.false_alerts) == (0.3, NONE_FITS, steps // 2 * 100)
