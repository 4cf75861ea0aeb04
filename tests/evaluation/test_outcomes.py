"""What a probability is judged by: what came, what did not come, and what is not known."""

import numpy as np
import pytest

from healthsvc.evaluation.episodes import label_episodes
from healthsvc.evaluation.labels import parse_labels
from healthsvc.evaluation.outcomes import disjoint, outcomes
from healthsvc.evaluation.places import Places
from healthsvc.fleet import DAY_S

PLACES = Places(frozenset({"a", "b"}), {"node:n": frozenset({"a", "b"})})
HEADER = "scope,start,end,class,grade,source,precursor,scenario,note\n"
ORIGINS_S = np.arange(10.0) * DAY_S


def judged(rows: str, horizon_days: float, known_days: float = 100.0) -> list[list[float]]:
    episodes = label_episodes(parse_labels(HEADER + rows), PLACES)
    y = outcomes(["a", "b"], ORIGINS_S, horizon_days * DAY_S, "memory", episodes, known_days * DAY_S)
    return [column.tolist() for column in y.T]


def test_an_event_counts_from_a_horizon_before_it_to_its_start() -> None:
    a, b = judged("a,1970-01-05T12:00:00Z,1970-01-05T18:00:00Z,memory,T2,operator,,,\n", 2)
    assert a == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert b == [0] * 10


def test_a_gpu_in_an_event_or_under_maintenance_is_not_forecast_again() -> None:
    a, _ = judged("a,1970-01-03T12:00:00Z,1970-01-06T12:00:00Z,memory,T2,operator,,,\n", 1)
    assert np.isnan(a[3:6]).all()
    assert a[2] == 1
    both = judged("node:n,1970-01-03T12:00:00Z,1970-01-04T12:00:00Z,maintenance,,operator,,,\n", 1)
    assert all(np.isnan(column[3]) for column in both)


def test_what_reaches_beyond_what_is_known_is_unknown_unless_it_has_come() -> None:
    a, b = judged("a,1970-01-09T12:00:00Z,1970-01-09T13:00:00Z,memory,T2,operator,,,\n", 5, known_days=9.0)
    assert a[4:9] == [1] * 5
    assert np.isnan(b[5:]).all()
    assert b[:5] == [0] * 5


def test_other_classes_do_not_count() -> None:
    a, _ = judged("a,1970-01-05T12:00:00Z,,device_loss,T2,operator,,,\n", 5)
    assert a == [0] * 10


@pytest.mark.parametrize(("horizon_days", "kept"), [(1, list(range(10))), (3, [0, 3, 6, 9]), (30, [0])])
def test_disjoint_origins_lie_a_horizon_apart(horizon_days: float, kept: list[int]) -> None:
    assert disjoint(ORIGINS_S, horizon_days * DAY_S).tolist() == kept
