"""More onsets than is known of each GPU explains: found once a half hour, and never made of a job that begins."""

import numpy as np
import pytest

from healthsvc.features.domains import DomainTable
from healthsvc.features.half_hours import half_hour_ends
from healthsvc.fleet import EventKind, EventLog
from healthsvc.forecasters.throttling.counting import tail
from healthsvc.forecasters.throttling.excess import excess_p
from tests.histories import NOW_S, flat_window, make_events, make_history

TABLES = (
    DomainTable("node", ("a", "b"), np.array([np.arange(8), np.arange(8, 16)])),
    DomainTable("rack", ("r",), np.arange(16)[None]),
)


def found(events: EventLog, chance: float | np.ndarray = 0.001) -> list[list[float]]:
    history = make_history(flat_window(16), events=events)
    return [p.tolist() for p in excess_p(history, TABLES, np.broadcast_to(chance, 16).astype(float))]


def began(*rows: int, minutes_ago: float = 10.0) -> EventLog:
    return make_events(*((row, NOW_S - 60 * minutes_ago, EventKind.THERMAL_THROTTLE, 0.5) for row in rows))


def test_five_of_a_node_at_once_are_more_than_chance() -> None:
    node, rack = found(began(0, 1, 2, 3, 4))
    assert node[0] == pytest.approx(tail(np.full(8, 0.001), 5))
    assert node[0] < 1e-12
    assert node[1] == 1.0
    assert rack[0] == pytest.approx(tail(np.full(16, 0.001), 5))


def test_five_that_were_about_to_are_not() -> None:
    assert found(began(0, 1, 2, 3, 4), 0.6)[0][0] > 0.5


def test_two_are_never_an_excess_and_neither_are_those_of_another_half_hour() -> None:
    assert found(began(0, 1))[0] == [1.0, 1.0]
    assert found(began(0, 1, 2, 3, minutes_ago=31.0))[0] == [1.0, 1.0]


def test_who_throttled_already_or_is_not_observed_does_not_count() -> None:
    chance = np.full(16, 0.001)
    chance[:3] = np.nan
    assert found(began(0, 1, 2, 3, 4), chance)[0] == [1.0, 1.0]


@pytest.mark.parametrize(("minutes", "ends"), [(0.0, True), (1.0, False), (29.0, False), (30.0, True), (61.0, False)])
def test_a_half_hour_ends_once(minutes: float, ends: bool) -> None:
    window = flat_window(8)
    at = make_history(type(window)(window.gpus, window.times_s + 60 * minutes, window.values))
    assert half_hour_ends(at) is ends
