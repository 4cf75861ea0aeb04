"""Counts of a domain: exact, whatever the chances."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from healthsvc.features.domains import DomainTable
from healthsvc.fleet import EventKind
from healthsvc.forecasters.throttling.counting import at_least, either, tail
from healthsvc.forecasters.throttling.joint import JointPrior, domain_events, joint_rates, rates_of
from tests.histories import NOW_S, make_events

CHANCES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7)


def naive_tail(p: list[float], count: int) -> float:
    """Every outcome of all members, one by one."""
    return sum(
        float(np.prod([q if began else 1 - q for q, began in zip(p, outcome, strict=True)]))
        for outcome in product((False, True), repeat=len(p))
        if sum(outcome) >= count
    )


@given(CHANCES, st.integers(0, 8))
def test_the_tail_is_the_sum_over_all_outcomes(p: list[float], count: int) -> None:
    assert tail(np.array(p), count) == pytest.approx(naive_tail(p, count), abs=1e-12)


def test_a_tail_of_a_billionth_is_not_lost_to_rounding() -> None:
    p = np.full(40, 0.01)
    assert tail(p, 12) == pytest.approx(stats.binom.sf(11, 40, 0.01), rel=1e-9)


@given(CHANCES, st.integers(0, 4))
def test_at_least_k_is_the_tail_beyond_those_that_are_certain(p: list[float], certain: int) -> None:
    found = at_least(np.array(p)[None, :, None], np.array([certain]))[0, :, 0]
    assert found == pytest.approx([naive_tail(p, max(k - certain, 0)) for k in (1, 2, 3)], abs=1e-12)


def test_either_of_two_is_more_than_each() -> None:
    assert either(np.array([0.5, 0.0]), np.array([0.5, 0.3])).tolist() == pytest.approx([0.75, 0.3])


# -- common causes ----------------------------------------------------------------------------------------------------

PRIOR = JointPrior({"node": 0.02, "": 0.1}, domain_years=10.0, own_years=2.0)
TABLE = DomainTable("node", ("a", "b"), np.array([[0, 1, 2, 3], [4, 5, 6, -1]]), False)


def onset(row: int, hours_ago: float) -> tuple[int, float, EventKind, float]:
    return row, NOW_S - 3600.0 * hours_ago, EventKind.THERMAL_THROTTLE, 0.5


def test_three_members_within_two_hours_are_one_event_and_two_are_none() -> None:
    together = [onset(0, 3.5), onset(1, 3.2), onset(2, 3.0), onset(0, 2.9), onset(4, 3.1), onset(5, 3.0)]
    assert domain_events(TABLE.table, make_events(*together)).tolist() == [1, 0]
    assert domain_events(TABLE.table, make_events(onset(0, 10), onset(1, 7), onset(2, 4))).tolist() == [0, 0]


def test_without_events_the_rates_sink_below_the_prior_and_with_them_the_domain_stands_out() -> None:
    calm = joint_rates((TABLE,), make_events(), 365.25, PRIOR)["joint_rate_node"] * 365.25
    assert (calm < 0.02).all()
    assert calm[0] == calm[1]
    struck = make_events(onset(0, 3.5), onset(1, 3.2), onset(2, 3.0))
    told = joint_rates((TABLE,), struck, 365.25, PRIOR)["joint_rate_node"] * 365.25
    layer = (0.02 * 10 + 1) / (10 + 2)
    assert told.tolist() == pytest.approx([(layer * 2 + 1) / 3, layer * 2 / 3])


def test_a_domain_that_training_did_not_know_has_the_priors_rate() -> None:
    state = joint_rates((TABLE,), make_events(), 30.0, PRIOR)
    known, unknown = rates_of(state, "node", ("b", "new"), PRIOR).tolist()
    assert known == state["joint_rate_node"][1]
    assert unknown == 0.02 / 365.25
    assert rates_of(state, "row", ("r",), PRIOR).tolist() == [0.1 / 365.25]
