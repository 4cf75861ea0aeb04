"""Intervals by GPU and by rack: whole clusters are drawn, those without a case too."""

import math

import numpy as np
import pytest

from healthsvc.evaluation.bootstrap import clustered, ratio_intervals
from healthsvc.evaluation.matching import match_alerts
from tests.evaluation.cases import ALERTS, KNOWN_UNTIL_S, LABELS, episodes

FOUND = match_alerts(ALERTS, episodes(*LABELS), KNOWN_UNTIL_S).of_classes("thermal", "memory", "device_loss")
GPUS = {name: name for name in ("GPU-a", "GPU-b", "GPU-c")}


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says() -> None:
    """Cases of a cluster are alike; the true mean is 0."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        values = np.repeat(rng.normal(size=(40, 1)), 5, axis=1) + rng.normal(size=(40, 5))
        (found,) = ratio_intervals(values.sum(axis=1, keepdims=True), np.full((40, 1), 5.0), rng)
        covered += found.lower <= 0 <= found.upper
    assert 0.88 <= covered / 200 <= 0.99
    (naive,) = ratio_intervals(values.reshape(-1, 1), np.ones((200, 1)), rng)
    assert found.upper - found.lower > 1.3 * (naive.upper - naive.lower)


def test_draws_are_of_whole_clusters() -> None:
    (found,) = ratio_intervals(np.array([[2.0], [0.0]]), np.array([[2.0], [1.0]]), np.random.default_rng(0))
    assert found.value == pytest.approx(2 / 3)
    assert (found.lower, found.upper, found.n) == (0.0, 1.0, 2)


def test_what_cannot_be_said_is_not_a_number() -> None:
    rng = np.random.default_rng(0)
    said, unsaid = ratio_intervals(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]), rng)
    assert (said.value, said.lower, said.upper) == (0.5, 0.5, 0.5)
    assert all(math.isnan(v) for v in (unsaid.value, unsaid.lower, unsaid.upper))
    (empty,) = ratio_intervals(np.zeros((0, 1)), np.zeros((0, 1)), rng)
    assert math.isnan(empty.lower)


def test_alerts_and_events_are_counted_where_they_belong() -> None:
    """GPU-a: two true alerts, one of two events predicted; GPU-b: one false alert, one event; GPU-c: the same."""
    (found,) = clustered([FOUND], GPUS, np.random.default_rng(0))
    assert (found["precision"].value, found["recall"].value) == (0.5, 0.25)
    assert found["precision"].n == 3
    assert (found["precision"].lower, found["precision"].upper) == (0.0, 1.0)


def test_a_rack_is_drawn_as_one_and_gpus_that_nothing_befell_are_counted() -> None:
    calm = {f"GPU-{i}": f"GPU-{i}" for i in range(100)}
    racks = {"GPU-a": "r1", "GPU-b": "r1", "GPU-c": "r2"}
    (one,) = clustered([FOUND], racks, np.random.default_rng(0))
    (other,) = clustered([FOUND], {**calm, **GPUS}, np.random.default_rng(0))
    assert (one["recall"].n, other["recall"].n) == (2, 103)
    assert one["precision"].upper == pytest.approx(2 / 3)  # r1 alone: two of three
    (stranger,) = clustered([FOUND], {}, np.random.default_rng(0))
    assert stranger["recall"].n == 3


def test_the_same_generator_gives_the_same_intervals() -> None:
    one, other = (clustered([FOUND, FOUND], GPUS, np.random.default_rng(3)) for _ in range(2))
    assert one == other
    assert one[0] == one[1]  # all figures of one document are drawn together
