"""Steps in resistance are watched, and wake nobody until somebody is struck or likely to be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.features.half_hours import half_hour_ends
from healthsvc.features.resistance import CLEAR_SHIFT
from healthsvc.fleet import FleetHistory, PlaceSeries, Signal
from healthsvc.incidents.steps import open_steps
from tests.histories import NOW_S
from tests.incident_cases import COLUMNS, MINUTE_S, fleet_at, onsets, places_of, series, step

NORMAL = {"gpu_log_resistance": float(np.log(35.5 / 500.0)), "inlet_q95_celsius": 25.0, "inlet_measured_ratio": 1.0}
BLIND = {**NORMAL, "inlet_measured_ratio": 0.0}
LOOP, NODE = tuple(range(32)), tuple(range(8))
HALF_HOUR_S = 1800.0
NODES = {f"node_{i:02d}": 25.0 for i in range(8)}


def inlets(**other: object) -> dict[Signal, PlaceSeries]:
    return {Signal.INLET: series("node", **{**NODES, **other})}  # type: ignore[arg-type]


def resisting(
    now_s: float,
    rows: Sequence[int] = (),
    by: float = 0.1,
    minutes: int = COLUMNS,
    inlet: Mapping[Signal, PlaceSeries] | None = None,
    daily: Mapping[str, float] | None = None,
    layers: Mapping[str, int] | None = None,
) -> FleetHistory:
    """GPUs whose log R has been `by` above normal for so many minutes, at the load and the inlet of always."""
    celsius = np.full((64, COLUMNS), 60.0, np.float32)
    celsius[list(rows), -minutes:] = 24.5 + 35.5 * np.exp(by)
    return fleet_at(
        now_s,
        environment=inlets() if inlet is None else inlet,
        extra={Signal.GPU_TEMPERATURE: celsius},
        daily=daily or NORMAL,
        layers=layers,
    )


def test_a_loop_whose_resistance_has_risen_is_watched_and_alerts_nobody() -> None:
    (incident,) = step((), resisting(NOW_S, LOOP))
    assert (incident.layer, incident.domain, incident.state, incident.alertname) == (
        "cooling_loop",
        "loop-0",
        "watch",
        "",
    )
    assert incident.cause == "common cooling cause: thermal resistance 11 % above that of two weeks"


def test_a_node_whose_resistance_has_risen_is_watched_for_its_airflow() -> None:
    (incident,) = step((), resisting(NOW_S, NODE))
    assert (incident.domain, incident.state, incident.kind) == ("node-00", "watch", "airflow")


def test_where_no_loop_is_known_racks_stand_in_for_them() -> None:
    (incident,) = step((), resisting(NOW_S, NODE + tuple(range(8, 16)), layers={"rack": 2}))
    assert (incident.layer, incident.domain, incident.state) == ("rack", "r0", "watch")


@pytest.mark.parametrize(("minutes", "by", "found"), [(120, 0.07, 1), (20, 0.07, 0), (20, 0.13, 1), (120, 0.05, 0)])
def test_a_step_is_believed_in_two_half_hours_or_if_it_is_beyond_doubt(minutes: int, by: float, found: int) -> None:
    assert len(step((), resisting(NOW_S, LOOP, by, minutes))) == found


def test_steps_are_asked_for_once_a_half_hour() -> None:
    asked = [half_hour_ends(resisting(NOW_S + minutes * MINUTE_S)) for minutes in range(61)]
    assert [minutes for minutes, yes in enumerate(asked) if yes] == [0, 30, 60]
    assert open_steps(resisting(NOW_S + MINUTE_S, LOOP)) == {}


def test_a_heat_wave_that_is_measured_opens_nothing() -> None:
    warm = {**NODES, **dict.fromkeys(NODES, 33.0)}
    celsius = np.full((64, COLUMNS), 68.0, np.float32)
    history = fleet_at(NOW_S, environment=inlets(**warm), extra={Signal.GPU_TEMPERATURE: celsius}, daily=NORMAL)
    assert step((), history) == ()


def test_a_warm_room_that_nobody_measures_opens_nothing() -> None:
    everybody = resisting(NOW_S, range(64), 0.2, inlet={}, daily=BLIND)
    assert step((), everybody) == ()
    half_of_it = resisting(NOW_S, LOOP, 0.2, inlet={}, daily=BLIND)
    assert step((), half_of_it) == ()


def test_a_node_without_an_inlet_sensor_is_told_while_its_loop_stands_still() -> None:
    (incident,) = step((), resisting(NOW_S, NODE, 0.2, inlet={}, daily=BLIND))
    assert (incident.domain, incident.state) == ("node-00", "watch")
    alone = resisting(NOW_S, NODE, 0.2, inlet={}, daily=BLIND, layers={"row": 8})
    assert step((), alone) == ()


def test_a_node_without_an_inlet_sensor_is_not_told_while_its_whole_loop_is_warmer() -> None:
    history = resisting(NOW_S, NODE, 0.3, inlet={}, daily=BLIND)
    celsius = history.recent.values[Signal.GPU_TEMPERATURE].copy()
    celsius[8:32] = 24.5 + 35.5 * np.exp(0.1)
    values = {**history.recent.values, Signal.GPU_TEMPERATURE: celsius}
    assert step((), replace(history, recent=replace(history.recent, values=values))) == ()


def test_an_inlet_sensor_that_falls_silent_is_no_step() -> None:
    """The ledger's resistance is over a measured 20 C, and 25 C would be assumed now."""
    colder = {**NORMAL, "gpu_log_resistance": float(np.log(45.0 / 500.0))}
    assert step((), resisting(NOW_S, inlet={}, daily=colder)) == ()
    come_back = inlets(**dict.fromkeys(NODES, 10.0))
    assert step((), resisting(NOW_S, inlet=come_back, daily=BLIND)) == ()


def test_a_watch_that_begins_to_throttle_keeps_its_id_and_gets_its_name_then() -> None:
    (watched,) = step((), resisting(NOW_S, LOOP))
    later_s = NOW_S + 10 * MINUTE_S
    struck = replace(resisting(later_s, LOOP), events=onsets(*range(8), at_s=later_s - 300))
    (incident,) = step((watched,), struck, hot=range(8))
    assert (incident.id, incident.onset_s) == (watched.id, NOW_S)
    assert (incident.state, incident.alertname) == ("active", "CoolingIncident")
    assert (incident.domain, incident.first_mover) == ("loop-0", "GPU-000")


def test_a_watch_on_a_loop_and_a_prediction_on_its_racks_are_one() -> None:
    (watched,) = step((), resisting(NOW_S, LOOP))
    chances = {("rack", "r0"): 0.7, ("rack", "r1"): 0.6}
    (incident,) = step((watched,), resisting(NOW_S + MINUTE_S, LOOP), chances=chances)
    assert (incident.id, incident.state) == (watched.id, "predicted")
    assert (incident.alertname, incident.domain) == ("ThrottlingCascadePredicted", "loop-0")
    (at_once,) = step((), resisting(NOW_S, LOOP), chances=chances)
    assert (at_once.state, at_once.domain) == ("predicted", "loop-0")


def test_what_a_loop_has_in_common_is_not_put_down_to_its_first_node() -> None:
    known = step((), resisting(NOW_S, LOOP))
    (incident,) = step(known, resisting(NOW_S + MINUTE_S, LOOP), chances={("node", "node-01"): 0.7})
    assert (incident.domain, incident.state, incident.kind) == ("loop-0", "predicted", "common")


def test_a_watch_clears_when_the_step_is_gone_and_not_between_two_questions() -> None:
    known = step((), resisting(NOW_S, LOOP))
    states = []
    for minutes in range(10, 130, 10):
        known = step(known, resisting(NOW_S + minutes * MINUTE_S, LOOP if minutes <= 30 else ()))
        states += [incident.state for incident in known]
    # Seen last after 30 minutes; asked again in vain after 60, and calm for an hour after 90.
    assert states == ["watch"] * 8 + ["cleared"]


def test_an_alert_is_not_kept_open_by_resistance_alone() -> None:
    known = step((), resisting(NOW_S, LOOP), chances={("cooling_loop", "loop-0"): 0.9})
    for minutes in (10, 20, 30):
        known = step(known, resisting(NOW_S + minutes * MINUTE_S, LOOP))
    assert [incident.state for incident in known] == ["cleared"]
    (again,) = step(known, resisting(NOW_S + 2 * HALF_HOUR_S, LOOP))
    assert (again.state, again.alertname, again.id == known[0].id) == ("watch", "", False)


def test_two_loops_that_resist_are_two_watches() -> None:
    """Each of four: were it half of the fleet, nobody could say which half is the odd one."""
    history = resisting(NOW_S, range(16), layers={"rack": 1, "cooling_loop": 2})
    assert places_of(step((), history)) == [("cooling_loop", "loop-0")]
    both = resisting(NOW_S, range(32), layers={"rack": 1, "cooling_loop": 2})
    assert places_of(step((), both)) == [("cooling_loop", "loop-0"), ("cooling_loop", "loop-1")]


def test_a_node_that_is_watched_ends_in_the_loop_that_is_watched_later() -> None:
    known = step((), resisting(NOW_S, NODE))
    later = step(known, resisting(NOW_S + HALF_HOUR_S, LOOP, 0.2))
    assert [(i.domain, i.state) for i in later] == [("loop-0", "watch")]
    assert later[0].id == known[0].id


@settings(deadline=None, max_examples=20)
@given(st.floats(0.0, 0.3), st.floats(0.0, 0.3), st.sampled_from([NODE, LOOP]))
def test_hotter_is_never_safer(less: float, more: float, rows: tuple[int, ...]) -> None:
    def watched(by: float) -> int:
        return len(step((), resisting(NOW_S, rows, by)))

    assert watched(less) <= watched(less + more)
    assert watched(2 * CLEAR_SHIFT + less) == 1
