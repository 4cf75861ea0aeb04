"""One incident in place of many alerts: opened by a fact at once, by a forecast as predicted, on the right place."""

from dataclasses import replace

import numpy as np
import pytest

from healthsvc.features.facts import DOMAIN_LAYERS
from healthsvc.fleet import (
    DomainForecast,
    EventKind,
    EventLog,
    FleetHistory,
    Incident,
    Placement,
    PlaceSeries,
    Signal,
    build_topology,
)
from healthsvc.incidents import IncidentPolicy, update_incidents
from tests.histories import NOW_S, flat_window, make_daily, make_events

GPUS = 32  # four nodes of eight, two nodes a rack, two racks on two loops
MINUTE_S = 60.0
POLICY = IncidentPolicy(domain_p_2h=0.5)
PLACES = {
    f"node-{i:02d}": {"rack": f"r{i // 2}", "cooling_loop": f"loop-{i // 2}", "power_feed": f"feed-{i // 2}"}
    for i in range(4)
}


def history_at(now_s: float, events: EventLog | None = None, flow: dict[str, float] | None = None) -> FleetHistory:
    """Four nodes; flow: litres per minute of each loop, rated at 100."""
    window = flat_window(GPUS, columns=10)
    window = replace(window, times_s=window.times_s - NOW_S + now_s)
    environment = {}
    if flow is not None:
        names = tuple(flow)
        newest = np.array(list(flow.values()), np.float32)[:, None] * np.ones((1, 10), np.float32)
        environment = {
            Signal.COOLANT_FLOW: PlaceSeries("cooling_loop", names, newest),
            Signal.RATED_COOLANT_FLOW: PlaceSeries("cooling_loop", names, np.full_like(newest, 100.0)),
        }
    topology = build_topology(window.gpus, Placement(PLACES))
    return FleetHistory(window, make_daily(window.gpus, 0, {}), events or EventLog(), topology, environment)


def domains_of(history: FleetHistory, chances: dict[tuple[str, str], float] | None = None) -> DomainForecast:
    """Every domain of the fleet; chances: P(at least 3 members, 2 h) of those that are not calm."""
    places, members = [], []
    for layer in DOMAIN_LAYERS:
        group = history.topology.group(layer, GPUS)
        for number, name in enumerate(history.topology.names[layer]):
            places.append((layer, name))
            members.append(np.flatnonzero(group == number).astype(np.int32))
    probability = np.full((len(places), 3, 3), 0.001, np.float32)
    for place, chance in (chances or {}).items():
        probability[places.index(place)] = chance
    none = np.zeros(len(places))
    horizons = (1800.0, 7200.0, 86_400.0)
    return DomainForecast(
        tuple(places), horizons, probability, none.astype(np.float32), none.astype(np.int32), tuple(members)
    )


def onsets(*rows: int, at_s: float = NOW_S - 5 * MINUTE_S) -> EventLog:
    return make_events(*((row, at_s, EventKind.THERMAL_THROTTLE, 0.5) for row in rows))


def hot_rows(*rows: int) -> np.ndarray:
    hot = np.zeros(GPUS, bool)
    hot[list(rows)] = True
    return hot


def step(
    known: tuple[Incident, ...],
    history: FleetHistory,
    hot: tuple[int, ...] = (),
    chances: dict[tuple[str, str], float] | None = None,
) -> tuple[Incident, ...]:
    return update_incidents(known, history, domains_of(history, chances), hot_rows(*hot), POLICY)


def ids(rows: range) -> tuple[str, ...]:
    return tuple(f"GPU-{row:03d}" for row in rows)


# -- what opens -------------------------------------------------------------------------------------------------------


def test_flow_below_half_of_rated_opens_one_active_incident_on_its_loop_at_once() -> None:
    (incident,) = step((), history_at(NOW_S, flow={"loop-0": 95.0, "loop-1": 42.0}))
    assert (incident.layer, incident.domain, incident.state) == ("cooling_loop", "loop-1", "active")
    assert (incident.alertname, incident.onset_s) == ("CoolingIncident", NOW_S)
    assert incident.cause == "coolant flow at 42 % of rated"
    assert incident.first_mover == "coolant flow of loop-1"
    assert incident.members == ids(range(16, 32))


@pytest.mark.parametrize("flow", [{"loop-0": 50.0, "loop-1": 99.0}, {"loop-0": np.nan, "loop-1": np.nan}])
def test_half_the_flow_or_an_unmeasured_one_opens_nothing(flow: dict[str, float]) -> None:
    assert step((), history_at(NOW_S, flow=flow)) == ()


def test_flow_whose_rating_is_not_known_opens_nothing() -> None:
    history = history_at(NOW_S, flow={"loop-0": 10.0})
    rated = PlaceSeries("cooling_loop", ("loop-0",), np.full((1, 10), np.nan, np.float32))
    history = replace(history, environment={**history.environment, Signal.RATED_COOLANT_FLOW: rated})
    assert step((), history) == ()


def test_half_of_a_node_beginning_to_throttle_together_opens_an_incident() -> None:
    events = onsets(0, 1, 2).merged(onsets(5, at_s=NOW_S - 10 * MINUTE_S))
    (incident,) = step((), history_at(NOW_S, events), hot=(0, 1, 2, 5))
    assert (incident.layer, incident.domain) == ("node", "node-00")
    assert (incident.state, incident.alertname) == ("active", "CoolingIncident")
    assert incident.cause == "airflow of the node: 4 of 8 GPUs began to throttle by heat within 10 minutes"
    assert incident.first_mover == "GPU-005"  # it began five minutes before the others


@pytest.mark.parametrize("rows", [(0, 1), (0, 1, 2)])
def test_fewer_than_half_of_a_node_open_nothing(rows: tuple[int, ...]) -> None:
    assert step((), history_at(NOW_S, onsets(*rows)), hot=rows) == ()


def test_onsets_far_apart_open_nothing() -> None:
    events = onsets(0, 1).merged(onsets(2, 3, at_s=NOW_S - 25 * MINUTE_S))
    assert step((), history_at(NOW_S, events), hot=(0, 1, 2, 3)) == ()


def test_another_kind_of_throttling_opens_no_cooling_incident() -> None:
    power = make_events(*((row, NOW_S - 300, EventKind.POWER_BRAKE, 0.5) for row in range(8)))
    assert step((), history_at(NOW_S, power)) == ()


def test_a_forecast_above_the_threshold_opens_a_predicted_incident() -> None:
    history = history_at(NOW_S)
    assert step((), history, chances={("node", "node-02"): 0.49}) == ()
    (incident,) = step((), history, chances={("node", "node-02"): 0.51})
    assert (incident.state, incident.alertname) == ("predicted", "ThrottlingCascadePredicted")
    assert (incident.layer, incident.domain, incident.first_mover) == ("node", "node-02", "")


def test_an_unknown_forecast_opens_nothing() -> None:
    assert step((), history_at(NOW_S), chances={("node", "node-02"): np.nan}) == ()


# -- where it sits ----------------------------------------------------------------------------------------------------


def test_an_incident_sits_on_the_smallest_domain_that_holds_four_fifths_of_the_affected() -> None:
    spread = tuple(range(6)) + tuple(range(8, 14))  # both nodes of rack r0
    (incident,) = step((), history_at(NOW_S, onsets(*spread)), hot=spread)
    assert (incident.layer, incident.domain) == ("rack", "r0")
    mostly_one = (*range(8), 8, 9)  # eight of ten on node-00: exactly four fifths
    (incident,) = step((), history_at(NOW_S, onsets(*mostly_one)), hot=mostly_one)
    assert (incident.layer, incident.domain) == ("node", "node-00")


def test_two_places_that_share_nothing_are_two_incidents() -> None:
    events = onsets(*range(8), *range(16, 24))
    found = step((), history_at(NOW_S, events), hot=(*range(8), *range(16, 24)))
    assert [(i.layer, i.domain) for i in found] == [("node", "node-00"), ("node", "node-02")]


def test_a_measured_cause_outranks_a_count_of_victims() -> None:
    history = history_at(NOW_S, onsets(*range(8)), flow={"loop-0": 10.0, "loop-1": 99.0})
    (incident,) = step((), history, hot=tuple(range(8)))
    assert (incident.layer, incident.domain) == ("cooling_loop", "loop-0")
    assert incident.cause == "coolant flow at 10 % of rated"


def test_overlapping_candidates_are_one_incident_and_later_ones_join_it() -> None:
    first = step((), history_at(NOW_S, onsets(*range(8))), hot=tuple(range(8)))
    later_s = NOW_S + 10 * MINUTE_S
    history = history_at(later_s, onsets(*range(16), at_s=later_s - 300), flow={"loop-0": 20.0, "loop-1": 99.0})
    (incident,) = step(first, history, hot=tuple(range(16)))
    assert (incident.id, incident.alertname, incident.onset_s) == (first[0].id, "CoolingIncident", NOW_S)
    assert incident.cause == "coolant flow at 20 % of rated"
    assert incident.first_mover == first[0].first_mover
    assert (incident.layer, incident.domain) == ("cooling_loop", "loop-0")  # it holds more than the node did
    assert incident.members == ids(range(16))


def test_an_incident_never_moves_to_a_place_that_holds_less() -> None:
    loop = step((), history_at(NOW_S, flow={"loop-0": 20.0}))
    later_s = NOW_S + 10 * MINUTE_S
    history = history_at(later_s, onsets(*range(8), at_s=later_s - 300), flow={"loop-0": 99.0})
    (incident,) = step(loop, history, hot=tuple(range(8)))
    assert (incident.layer, incident.domain, incident.members) == ("cooling_loop", "loop-0", ids(range(16)))


def test_a_gpu_that_comes_to_the_place_of_an_incident_joins_it() -> None:
    (opened,) = step((), history_at(NOW_S, onsets(*range(8))), hot=tuple(range(8)))
    known = (replace(opened, members=ids(range(7))),)  # the eighth was not there yet
    (incident,) = step(known, history_at(NOW_S + MINUTE_S, onsets(*range(8))), hot=tuple(range(8)))
    assert (incident.domain, sorted(incident.members)) == ("node-00", sorted(ids(range(8))))


# -- how it lives -----------------------------------------------------------------------------------------------------


def test_a_prediction_that_comes_true_keeps_its_name() -> None:
    predicted = step((), history_at(NOW_S), chances={("node", "node-01"): 0.9})
    later_s = NOW_S + MINUTE_S
    history = history_at(later_s, onsets(*range(8, 14), at_s=later_s - 300))
    (incident,) = step(predicted, history, hot=tuple(range(8, 14)))
    assert (incident.id, incident.state) == (predicted[0].id, "active")
    assert incident.alertname == "ThrottlingCascadePredicted"
    assert incident.cause.startswith("airflow of the node: 6 of 8 GPUs began to throttle")
    assert incident.first_mover == "GPU-008"


def test_a_fact_does_not_become_a_forecast_again() -> None:
    active = step((), history_at(NOW_S, onsets(*range(8))), hot=tuple(range(8)))
    later = history_at(NOW_S + 20 * MINUTE_S)
    (incident,) = step(active, later, hot=tuple(range(8)), chances={("node", "node-00"): 1.0})
    assert (incident.state, incident.cause) == ("active", active[0].cause)
    assert incident.last_true_s == NOW_S + 20 * MINUTE_S


def test_an_incident_clears_after_thirty_calm_minutes_and_is_then_gone() -> None:
    known = step((), history_at(NOW_S, flow={"loop-0": 99.0, "loop-1": 10.0}))
    for minutes, state in ((1, "active"), (29, "active"), (30, "cleared")):
        known = step(known, history_at(NOW_S + minutes * MINUTE_S, flow={"loop-0": 99.0, "loop-1": 99.0}))
        assert [i.state for i in known] == [state]
    assert known[0].cleared_s == NOW_S + 30 * MINUTE_S
    assert step(known, history_at(NOW_S + 31 * MINUTE_S)) == ()


def test_a_relapse_within_the_calm_minutes_begins_them_anew() -> None:
    known = step((), history_at(NOW_S, flow={"loop-0": 10.0}))
    for minutes, flow in ((20, 99.0), (25, 10.0), (50, 99.0)):
        known = step(known, history_at(NOW_S + minutes * MINUTE_S, flow={"loop-0": flow}))
    assert [(i.state, i.last_true_s) for i in known] == [("active", NOW_S + 25 * MINUTE_S)]


def test_a_cleared_incident_is_not_reopened_under_its_old_id() -> None:
    known = step((), history_at(NOW_S, flow={"loop-0": 10.0}))
    known = step(known, history_at(NOW_S + 30 * MINUTE_S, flow={"loop-0": 99.0}))
    (again,) = step(known, history_at(NOW_S + 31 * MINUTE_S, flow={"loop-0": 10.0}))
    assert (again.state, again.id == known[0].id) == ("active", False)
