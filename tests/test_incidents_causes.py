"""What struck first and why: a sensor that moved names the cause, and where none moved nobody claims to know."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.fleet import FleetHistory, Floats, PlaceSeries, Signal
from healthsvc.incidents import update_incidents
from tests.histories import NOW_S
from tests.incident_cases import (
    COLUMNS,
    MINUTE_S,
    POLICY,
    fleet_at,
    forecast_of,
    ids,
    onsets,
    places_of,
    ramp,
    series,
    step,
)

LOOP = tuple(range(32))  # loop-0: nodes 0 to 3
Sensors = Mapping[Signal, PlaceSeries]


def flow(of_first: object, rated: bool = True) -> dict[Signal, PlaceSeries]:
    """Coolant flow of the two loops in litres a minute, rated at 100."""
    measured = {Signal.COOLANT_FLOW: series("cooling_loop", loop_0=of_first, loop_1=100.0)}  # type: ignore[arg-type]
    if rated:
        measured[Signal.RATED_COOLANT_FLOW] = series("cooling_loop", loop_0=100.0, loop_1=100.0)
    return measured


def heated(begins: int, by: float, rows: tuple[int, ...] = LOOP) -> dict[Signal, Floats]:
    """Temperatures that begin to rise in a column, with the noise of integer sensors."""
    noise = np.random.default_rng(0).integers(0, 2, (64, COLUMNS))
    celsius = 60.0 + noise
    celsius[list(rows)] += ramp(0.0, by, begins)
    return {Signal.GPU_TEMPERATURE: celsius.astype(np.float32)}


def predicted(environment: Sensors, extra: Mapping[Signal, Floats] | None = None, **more: object) -> FleetHistory:
    return fleet_at(NOW_S, environment=environment, extra=extra, **more)  # type: ignore[arg-type]


def test_a_flow_that_is_measured_and_falls_is_the_cause_and_the_first_mover() -> None:
    history = predicted(flow(ramp(100.0, 70.0, 60)), heated(72, 12.0))
    (incident,) = step((), history, chances={("cooling_loop", "loop-0"): 0.8})
    assert (incident.state, incident.alertname) == ("predicted", "ThrottlingCascadePredicted")
    assert (incident.kind, incident.cause) == ("flow", "coolant flow at 70 % of rated")
    assert incident.first_mover == "coolant flow of loop-0"
    # It began to fall an hour ago, and was half of the 8 % away that are asked for after eight minutes.
    assert (incident.began_s, incident.onset_s) == (NOW_S - 50 * MINUTE_S, NOW_S)


def test_how_far_it_fell_is_told_where_the_rating_is_not_known() -> None:
    history = predicted(flow(ramp(80.0, 56.0, 60, 110), rated=False))
    (incident,) = step((), history, chances={("cooling_loop", "loop-0"): 0.8})
    assert (incident.kind, incident.cause) == ("flow", "coolant flow fell by 30 %")


@pytest.mark.parametrize("sensors", [{}, flow(100.0), flow(72.0)])
def test_without_a_flow_that_moved_it_is_a_common_cooling_cause(sensors: Sensors) -> None:
    """A flow of 72 % that stands still is what this loop is used to."""
    (incident,) = step((), predicted(sensors, heated(60, 12.0)), chances={("cooling_loop", "loop-0"): 0.8})
    assert (incident.kind, incident.first_mover) == ("common", "")
    assert incident.cause.startswith("common cooling cause: ")


def test_a_flow_that_is_raised_is_no_cause() -> None:
    (incident,) = step((), predicted(flow(ramp(100.0, 130.0, 60))), chances={("cooling_loop", "loop-0"): 0.8})
    assert incident.kind == "common"


def test_one_node_alone_is_put_down_to_its_airflow() -> None:
    (incident,) = step((), predicted(flow(100.0)), chances={("node", "node-02"): 0.8})
    assert (incident.kind, incident.domain) == ("airflow", "node-02")
    assert incident.cause.startswith("airflow of the node: ")


def test_a_warmer_supply_is_told_from_a_failing_loop() -> None:
    warm = {Signal.COOLANT_SUPPLY: series("cooling_loop", loop_0=ramp(32.0, 38.0, 70), loop_1=32.0)}
    (incident,) = step((), predicted(warm, heated(70, 6.0)), chances={("cooling_loop", "loop-0"): 0.8})
    assert (incident.kind, incident.first_mover) == ("supply", "coolant supply of loop-0")
    assert incident.cause.startswith("warm supply: 6 C above what is usual; ")


def test_a_supply_that_has_been_warm_for_hours_is_told_by_the_ledger() -> None:
    warm = {Signal.COOLANT_SUPPLY: series("cooling_loop", loop_0=38.0, loop_1=32.0)}
    history = predicted(warm, daily={"inlet_q95_celsius": 33.0})
    (incident,) = step((), history, chances={("cooling_loop", "loop-0"): 0.8})
    assert incident.cause.startswith("warm supply: 5 C above what is usual; ")


def test_of_a_flow_that_falls_and_a_supply_that_warms_the_flow_is_the_cause() -> None:
    sensors = {
        **flow(ramp(100.0, 60.0, 80)),
        Signal.COOLANT_SUPPLY: series("cooling_loop", loop_0=ramp(32.0, 38.0, 90), loop_1=32.0),
    }
    (incident,) = step((), predicted(sensors), chances={("cooling_loop", "loop-0"): 0.8})
    assert (incident.kind, incident.first_mover) == ("flow", "coolant flow of loop-0")


def test_the_gpu_that_began_before_any_sensor_moved_is_the_first_mover() -> None:
    late = flow(np.where(np.arange(COLUMNS) >= 116, 80.0, 100.0))
    history = fleet_at(NOW_S, events=onsets(*LOOP, at_s=NOW_S - 10 * MINUTE_S), environment=late)
    (incident,) = step((), history, hot=LOOP)
    assert (incident.first_mover, incident.began_s) == ("GPU-000", NOW_S - 10 * MINUTE_S)


def test_what_led_the_temperatures_is_said_in_minutes() -> None:
    wobble = np.repeat(np.random.default_rng(4).normal(0, 1.0, 24).cumsum(), 5)
    falls = ramp(100.0, 60.0, 60) + wobble
    celsius = np.full((64, COLUMNS), 60.0)
    celsius[:32, 10:] -= (falls - 100.0)[None, :-10]  # ten minutes later
    history = predicted(flow(falls), {Signal.GPU_TEMPERATURE: celsius.astype(np.float32)})
    (incident,) = step((), history, chances={("cooling_loop", "loop-0"): 0.8})
    assert incident.evidence == ("coolant flow of loop-0 moved 10 min before the GPU temperatures (correlation -1.00)")


def test_a_measured_cause_is_not_replaced_by_a_guessed_one() -> None:
    known = step((), predicted(flow(ramp(100.0, 70.0, 60))), chances={("cooling_loop", "loop-0"): 0.8})
    later_s = NOW_S + 10 * MINUTE_S
    struck = fleet_at(later_s, events=onsets(*LOOP, at_s=later_s - 300))
    (incident,) = step(known, struck, hot=LOOP)
    assert (incident.state, incident.kind, incident.cause) == ("active", "flow", "coolant flow at 70 % of rated")


def test_a_guessed_cause_is_replaced_once_a_sensor_tells() -> None:
    known = step((), predicted(flow(100.0)), chances={("cooling_loop", "loop-0"): 0.8})
    later = fleet_at(NOW_S + 10 * MINUTE_S, environment=flow(ramp(100.0, 70.0, 60)))
    (incident,) = step(known, later, chances={("cooling_loop", "loop-0"): 0.8})
    assert (known[0].kind, incident.kind, incident.id) == ("common", "flow", known[0].id)


def test_a_flow_below_half_opens_its_loop_even_where_the_forecast_knows_only_its_racks() -> None:
    history = fleet_at(NOW_S, layers={"rack": 2, "cooling_loop": 2}, environment=flow(40.0))
    racks = forecast_of(fleet_at(NOW_S, layers={"rack": 2}))
    incidents = update_incidents((), history, racks, np.zeros(64, bool), POLICY)
    assert places_of(incidents) == [("cooling_loop", "loop-0")]
    assert incidents[0].members == ids(range(16))


def test_the_flow_of_a_loop_in_which_no_gpu_is_known_opens_nothing() -> None:
    stranger = {
        Signal.COOLANT_FLOW: series("cooling_loop", loop_9=10.0),
        Signal.RATED_COOLANT_FLOW: series("cooling_loop", loop_9=100.0),
    }
    assert step((), fleet_at(NOW_S, environment=stranger)) == ()
    left = fleet_at(NOW_S, environment=flow(40.0)).take(np.arange(32, 64))
    assert step((), left) == ()


def test_a_sensor_without_samples_moves_nothing() -> None:
    silent = {
        Signal.COOLANT_FLOW: series("cooling_loop", loop_0=np.nan, loop_1=np.nan),
        Signal.INLET: series("node", node_77=40.0),
    }
    (incident,) = step((), predicted(silent), chances={("cooling_loop", "loop-0"): 0.8})
    assert (incident.kind, incident.first_mover, incident.evidence) == ("common", "", "")


@settings(deadline=None, max_examples=20)
@given(st.floats(0.0, 60.0), st.floats(0.0, 30.0), st.integers(30, 110))
def test_the_more_the_flow_falls_the_more_surely_it_is_named(less: float, more: float, begins: int) -> None:
    kinds = [
        step((), predicted(flow(ramp(100.0, 100.0 - fall, begins))), chances={("cooling_loop", "loop-0"): 0.8})[0].kind
        for fall in (less, less + more)
    ]
    assert kinds in (["common", "common"], ["common", "flow"], ["flow", "flow"])
