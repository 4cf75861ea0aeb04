"""Futures of a domain: what fails goes on or stops, who throttles pulls neighbours along, and nothing is invented."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.forecasters.throttling.counting import at_least
from healthsvc.forecasters.throttling.heat_path import HeatPath
from healthsvc.forecasters.throttling.reach import needed_s, reached
from healthsvc.forecasters.throttling.simulation import Futures, Members, Ring, simulate

HORIZONS_S = (1800.0, 7200.0)
COUNT = 8


def path_of(rate: float = 0.0, rise: float = 40.0, age_s: float = 1800.0) -> HeatPath:
    ones = np.ones(COUNT)
    return HeatPath(ones * (30 + rise), ones * rise, ones * rate, 0.0 * ones, ones * age_s)


def members(
    logit: float = -30.0, margin: float = 20.0, hot: tuple[int, ...] = (), effect: float = 0.0, outside: float = 0.0
) -> Members:
    struck = np.zeros(COUNT, bool)
    struck[list(hot)] = True
    ring = Ring(np.zeros(COUNT, np.intp), np.full(COUNT, outside), effect)
    return Members(np.arange(COUNT), np.full(COUNT, logit), np.full(COUNT, margin), struck, (ring,))


def run(domain: Members, path: HeatPath | None = None, goes_on: float = 2.0, futures: int = 2000) -> Futures:
    return simulate(domain, path or path_of(), HORIZONS_S, goes_on, futures, 7)


def test_a_calm_domain_stays_calm_and_loses_nothing() -> None:
    calm = run(members())
    assert not calm.at_least.any()
    assert calm.throttled_h == 0.0


def test_three_that_throttle_are_a_certainty_and_lose_their_two_hours() -> None:
    hot = run(members(hot=(0, 3, 5)))
    assert (hot.at_least == 1).all()
    assert hot.throttled_h == pytest.approx(6.0)


def test_without_neighbours_the_count_is_poisson_binomial() -> None:
    found = run(members(logit=-4.0), futures=20_000)
    each = 1.0 / (1.0 + np.exp(4.0))
    p = 1 - (1 - each) ** np.array([3, 12])
    exact = at_least(np.tile(p, (1, COUNT, 1)), np.zeros(1, np.int64))[0]
    assert found.at_least == pytest.approx(exact, abs=0.012)


def test_a_neighbour_pulls_only_where_it_has_an_effect() -> None:
    alone, pulled = (run(members(logit=-5.0, hot=(0,), effect=effect)).at_least[2, 1] for effect in (0.0, 2.0))
    assert alone < 0.1
    assert pulled > 3 * alone


def test_a_neighbour_outside_the_domain_pulls_too() -> None:
    none, some = (run(members(logit=-5.0, effect=1.0, outside=n)).at_least[0, 0] for n in (0.0, 6.0))
    assert some > 3 * none


def test_a_failing_that_would_take_its_own_age_comes_to_pass_by_the_law_of_its_lasting() -> None:
    # 8 K at 40 K above the coolant, growing by a ten-thousandth a second: half an hour less the lag.
    path, domain = path_of(rate=1e-4), members(margin=8.0)
    found = run(domain, path, futures=20_000).at_least[2, 1]
    closed = reached(np.arange(COUNT)[None], domain.hot, path, needed_s(path, domain.margin_celsius), HORIZONS_S, 2.0)
    assert found == pytest.approx(closed[0, 2, 1], abs=0.12)
    assert 0.15 < found < 0.6


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 25.0), st.floats(0.0, 5.0), st.floats(0.0, 3e-4))
def test_less_margin_or_one_more_that_throttles_is_never_safer(margin: float, less: float, rate: float) -> None:
    domain, path = members(logit=-6.0, margin=margin, effect=1.0), path_of(rate)
    plain = run(domain, path, futures=200)
    for worse in (replace(domain, margin_celsius=domain.margin_celsius - less), members(-6.0, margin, (2,), 1.0)):
        found = run(worse, path, futures=200)
        assert (found.at_least >= plain.at_least).all()
        assert found.throttled_h >= plain.throttled_h
