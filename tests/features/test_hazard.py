"""Person-time is counted as by hand, and the fit is the regression that it says it is."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.hazard import Doubt, PersonTime, fit_hazard
from healthsvc.features.recurrence import Kernel
from healthsvc.fleet import DAY_S, EventKind
from tests.histories import make_events
from tests.naive import excited_cells

KERNEL = Kernel((7.0, 30.0), (40.0, 10.0), 3.0)
NO_DOUBT = Doubt(1e-9, 1e9, 1e-9)


def days(gpus: int, count: int, width: int = 1) -> PersonTime:
    """Every GPU observed for half of each cell of `width` days."""
    row, cell = np.divmod(np.arange(gpus * count), count)
    start = cell * width * DAY_S
    return PersonTime(row, start, start + width * DAY_S, np.full(len(row), width * DAY_S / 2))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-40 * 24, 25 * 24)), max_size=12, unique=True),
    st.integers(1, 7),
    st.randoms(),
)
def test_events_and_excited_seconds_of_each_cell_are_as_by_hand(
    told: list[tuple[int, int]], width: int, shuffle: random.Random
) -> None:
    cells = days(3, 5, width)
    order = list(range(len(cells.row)))
    shuffle.shuffle(order)
    cells = PersonTime(cells.row[order], cells.start_s[order], cells.end_s[order], cells.exposure_s[order])
    episodes = make_events(*[(row, hour * DAY_S / 24, EventKind.DOUBLE_BIT_ERROR, 1.0) for row, hour in told])
    excited, events = cells.tally(episodes, KERNEL)
    by_hand = excited_cells(
        list(zip(*(column.tolist() for column in vars(cells).values()), strict=True)),
        list(zip(episodes.row.tolist(), episodes.start_s.tolist(), strict=True)),
        [(scale * DAY_S, weight) for scale, weight in zip(KERNEL.scales_days, KERNEL.weights, strict=True)],
        KERNEL.frailty,
    )
    np.testing.assert_allclose(excited, by_hand[0], rtol=1e-9, atol=1e-6)
    np.testing.assert_array_equal(events, by_hand[1])


def test_an_event_counts_in_its_own_cell_and_excites_only_later_ones() -> None:
    excited, events = days(1, 4).tally(make_events((0, 1.5 * DAY_S, EventKind.DOUBLE_BIT_ERROR, 1.0)), KERNEL)
    assert events.tolist() == [0, 1, 0, 0]
    assert excited[:2].tolist() == [0, 0]
    assert excited[2] > excited[3] > 0


def made(
    rng: np.random.Generator, cells: int = 4000
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(x, expected, excited) of cells."""
    return rng.normal(0, 1, (cells, 2)), rng.uniform(0.01, 0.1, cells), rng.exponential(0.05, cells)


def test_without_doubt_it_is_the_poisson_regression_of_statsmodels() -> None:
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(1)
    x, expected, excited = made(rng)
    events = rng.poisson(np.exp(0.7 + x @ np.array([0.5, -0.3])) * (expected + excited)).astype(float)
    hazard = fit_hazard(x, expected, excited, events, NO_DOUBT)
    offset = np.log(expected + excited)
    told = sm.GLM(events, sm.add_constant(x), family=sm.families.Poisson(), offset=offset).fit(tol=1e-12)
    np.testing.assert_allclose([hazard.log_ratio, *hazard.effects], told.params, rtol=1e-5)


def test_what_was_put_in_is_found() -> None:
    rng = np.random.default_rng(2)
    x, expected, excited = made(rng, 40_000)
    events = rng.poisson(np.exp(-0.4 + x @ np.array([0.6, 0.0])) * (expected + 0.3 * excited)).astype(float)
    hazard = fit_hazard(x, expected, excited, events, Doubt(2.0, 2.0, 1.0))
    assert hazard.log_ratio == pytest.approx(-0.4, abs=0.1)
    np.testing.assert_allclose(hazard.effects, [0.6, 0.0], atol=0.06)
    assert hazard.recurrence == pytest.approx(0.3, abs=0.08)
    assert hazard.events == events.sum()


def test_without_events_the_rate_sinks_as_gamma_shrinkage_says() -> None:
    for expected in (0.0, 1.0, 4.0, 100.0):
        hazard = fit_hazard(np.zeros((10, 0)), np.full(10, expected / 10), np.zeros(10), np.zeros(10), Doubt(2, 2, 1))
        assert np.exp(hazard.log_ratio) == pytest.approx(2.0 / (2.0 + expected), rel=1e-4)
        assert hazard.recurrence == 1.0


def test_with_events_it_is_the_mean_of_prior_and_record() -> None:
    hazard = fit_hazard(np.zeros((4, 0)), np.full(4, 0.5), np.zeros(4), np.array([1.0, 0, 2, 0]), Doubt(2, 2, 1))
    assert np.exp(hazard.log_ratio) == pytest.approx((2 + 3) / (2 + 2), rel=1e-6)


def test_events_that_came_out_of_calm_say_that_recurrences_are_rare() -> None:
    excited = np.array([0.0, 0.0, 5.0, 5.0])
    calm = fit_hazard(np.zeros((4, 0)), np.full(4, 1.0), excited, np.array([2.0, 2, 0, 0]), Doubt(2, 2, 1))
    again = fit_hazard(np.zeros((4, 0)), np.full(4, 1.0), excited, np.array([0.0, 0, 6, 6]), Doubt(2, 2, 1))
    assert calm.recurrence < 0.4 < 0.8 < again.recurrence


def test_nothing_observed_leaves_the_prior() -> None:
    none = np.zeros(0)
    hazard = fit_hazard(np.zeros((0, 2)), none, none, none, Doubt(2, 2, 1))
    assert (hazard.log_ratio, hazard.recurrence, hazard.events) == (0.0, 1.0, 0.0)
    assert hazard.effects.tolist() == [0.0, 0.0]
    assert hazard.ratio(np.zeros((3, 2))).tolist() == [1.0, 1.0, 1.0]
