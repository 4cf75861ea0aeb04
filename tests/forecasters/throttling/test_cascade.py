"""The whole forecast of a loop: foretold while it fails, watched once its step is open, calm otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from healthsvc.fleet import DomainForecast, FleetHistory, OnsetBins, Signal
from healthsvc.forecasters.throttling_cascade import DAY, THREE, TWO_HOURS, ThrottlingCascade
from tests.forecasters.shipped import shipped
from tests.forecasters.throttling.loops import GPUS, INLET, rising, running


def told(history: FleetHistory) -> DomainForecast:
    forecaster = shipped(ThrottlingCascade)
    return forecaster.forecast(forecaster.fit(history), history)


def chance(
    history: FleetHistory, place: tuple[str, str] = ("cooling_loop", "loop-1"), horizon: int = TWO_HOURS
) -> float:
    found = told(history)
    return float(found.probability_at_least_k[found.domains.index(place), THREE, horizon])


def test_a_calm_loop_is_calm_and_its_day_is_the_priors() -> None:
    assert chance(running()) < 0.005
    assert 0 < chance(running(), horizon=DAY) < 0.02
    assert not told(running()).watch.any()


def test_a_loop_that_fails_is_foretold_the_surer_the_nearer_its_limit() -> None:
    # From 30 C above the coolant at 560 W to 42, 48 and 54 of the 57 that there are.
    chances = [chance(running(rising(0.012, minutes))) for minutes in (15.0, 25.0, 35.0)]
    assert chances == sorted(chances)
    assert chances[0] < 0.5 < chances[-1]


def test_the_node_that_fails_is_foretold_and_not_its_neighbour() -> None:
    history = running(rising(0.012, 38.0), struck=slice(0, 8))
    assert chance(history, ("node", "node-00")) > 0.5
    assert chance(history, ("node", "node-01")) < 0.02


def test_a_loop_that_has_stopped_failing_is_watched_and_not_foretold() -> None:
    history = running(1.25)
    assert chance(history) < 0.1
    found = told(history)
    assert found.watch[found.domains.index(("cooling_loop", "loop-1"))]


@pytest.mark.parametrize("warmer", [0.0, 4.0])
def test_weather_alone_is_neither_foretold_nor_watched(warmer: float) -> None:
    history = running(inlet=INLET + warmer)
    assert chance(history) < 0.01


def test_without_temperatures_the_record_of_the_gpus_speaks() -> None:
    history = running()
    kept = {Signal.SOFTWARE_THERMAL_THROTTLE, Signal.POWER}
    recent = replace(history.recent, values={s: v for s, v in history.recent.values.items() if s in kept})
    blind = replace(history, recent=recent, environment={})
    assert 0 < chance(blind, horizon=DAY) < 0.02


def test_what_it_says_of_neighbours_is_insufficient_until_there_are_onsets_enough() -> None:
    assert {each.status for each in told(running()).neighbours} == {"insufficient"}
    rng = np.random.default_rng(2)
    count = 4000
    x = np.tile(np.array([15.0, 0.8, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0], np.float32), (count, 1))
    x[:, 6] = np.log1p(rng.integers(0, 4, count))
    onset = rng.random(count) < 1 / (1 + np.exp(2.0 - 0.8 * x[:, 6]))
    bins = OnsetBins(
        rng.integers(0, GPUS, count).astype(np.int32),
        600.0 * np.arange(count, dtype=np.float64),
        onset,
        np.ones(count, np.float32),
        np.full(count, 2, np.int8),
        x,
    )
    node, rack, loop = told(replace(running(), onset_bins=(bins,))).neighbours
    assert (node.status, rack.status, loop.status) == ("estimated", "insufficient", "insufficient")
    assert node.low < 0.8 < node.high
    unknown = replace(bins, inlet_source=np.zeros(count, np.int8))
    assert told(replace(running(), onset_bins=(unknown,))).neighbours[0].status == "not separable"
