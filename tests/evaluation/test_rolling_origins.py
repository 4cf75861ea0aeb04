"""Rolling origins keep their distance."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.evaluation.origins import NOT_CROSS_VALIDATED, ROLLING, rolling_origins
from healthsvc.fleet import DAY_S
from healthsvc.simulator import load_scenario

FIXTURES = Path(__file__).parents[2] / "data" / "fixtures"


@settings(deadline=None, max_examples=40)
@given(st.floats(60, 900), st.sampled_from([1.0, 7.0, 30.0]))
def test_blocks_never_come_closer_than_the_horizon(days: float, horizon: float) -> None:
    for fold in rolling_origins(0.0, days * DAY_S, horizon * DAY_S):
        blocks = [(0.0, fold.train_end_s), *([fold.calibrate] if fold.calibrate else []), fold.test]
        gap_s = horizon * DAY_S if fold.calibrate else 0.0  # without one nothing is learnt from labels
        for (_, end_s), (start_s, _) in pairwise(blocks):
            assert start_s - end_s >= gap_s - 1e-3
        assert all(start_s < end_s <= days * DAY_S for start_s, end_s in blocks)


def test_a_year_gives_folds_of_four_weeks_four_weeks_apart() -> None:
    folds = rolling_origins(0.0, 360 * DAY_S, 7 * DAY_S)
    # Each needs 60 + 7 + 28 + 7 + 28 = 130 days: the last at 360, then 332, ... down to 136.
    assert [fold.test[1] / DAY_S for fold in folds] == [136, 164, 192, 220, 248, 276, 304, 332, 360]
    last = folds[-1]
    assert last.calibrate is not None
    assert last.test[1] - last.test[0] == last.calibrate[1] - last.calibrate[0] == 28 * DAY_S
    assert last.train_end_s == (360 - 28 - 7 - 28 - 7) * DAY_S


def test_test_blocks_do_not_overlap() -> None:
    folds = rolling_origins(0.0, 500 * DAY_S, 30 * DAY_S)
    assert all(a.test[1] <= b.test[0] for a, b in pairwise(folds))


@pytest.mark.parametrize(
    ("horizon", "train", "tests"), [(30, 60, [(152, 180)]), (7, 30, [(96, 124), (124, 152), (152, 180)])]
)
def test_the_protocol_study_has_the_test_folds_that_its_fixture_names(
    horizon: float, train: float, tests: list[tuple[float, float]]
) -> None:
    days = load_scenario(FIXTURES / "protocol.toml").days
    folds = rolling_origins(0.0, days * DAY_S, horizon * DAY_S, train * DAY_S)
    assert [(fold.test[0] / DAY_S, fold.test[1] / DAY_S) for fold in folds] == tests
    assert {fold.label for fold in folds} == {ROLLING}


def test_a_short_history_gives_one_fold_that_says_so() -> None:
    (fold,) = rolling_origins(0.0, 90 * DAY_S, 30 * DAY_S)
    assert (fold.calibrate, fold.label) == (None, NOT_CROSS_VALIDATED)
    assert (fold.train_end_s, fold.test) == (14 * DAY_S, (14 * DAY_S, 90 * DAY_S))
    (odd,) = rolling_origins(100.0, 15 * DAY_S, 30 * DAY_S)
    assert odd.test == (14 * DAY_S + 600, 15 * DAY_S)  # begins with a ten-minute summary


def test_a_history_too_short_for_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="a history of 14 d is too short: 14 d must come before the first test"):
        rolling_origins(0.0, 14 * DAY_S, 30 * DAY_S)
    with pytest.raises(ValueError, match="horizon_s = 0"):
        rolling_origins(0.0, 400 * DAY_S, 0.0)
