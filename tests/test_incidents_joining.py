"""One incident a case: what a wide place owes to a narrow one, what joins, and what more onsets than expected say."""

from dataclasses import replace

import numpy as np
import pytest

from healthsvc.fleet import Signal
from healthsvc.incidents import IncidentPolicy, update_incidents
from tests.histories import NOW_S
from tests.incident_cases import MINUTE_S, POLICY, fleet_at, forecast_of, ids, onsets, places_of, series, step

WIDE = {"rack": 2, "cooling_loop": 4, "row": 16, "power_feed": 8}
LOOP_0, LOOP_1 = range(32), range(32, 64)


def test_two_loops_that_fail_at_once_are_two_incidents() -> None:
    failing = {
        Signal.COOLANT_FLOW: series("cooling_loop", loop_0=30.0, loop_1=100.0, loop_2=20.0, loop_3=100.0),
        Signal.RATED_COOLANT_FLOW: series("cooling_loop", loop_0=100.0, loop_1=100.0, loop_2=100.0, loop_3=100.0),
    }
    history = fleet_at(NOW_S, 16, WIDE, environment=failing)
    row = {("row", "row-0"): 1.0, ("cooling_loop", "loop-0"): 0.9, ("cooling_loop", "loop-2"): 0.9}
    assert places_of(step((), history, chances=row)) == [("cooling_loop", "loop-0"), ("cooling_loop", "loop-2")]


def test_two_loops_that_are_likely_to_fail_do_not_make_a_row() -> None:
    chances = {("row", "row-0"): 0.95, ("cooling_loop", "loop-0"): 0.8, ("cooling_loop", "loop-3"): 0.8}
    found = step((), fleet_at(NOW_S, 20, {"cooling_loop": 4, "row": 20}), chances=chances)
    assert places_of(found) == [("cooling_loop", "loop-0"), ("cooling_loop", "loop-3")]


def test_a_node_that_throttles_does_not_make_its_loop() -> None:
    """P(at least 3 of the loop) is 1 as soon as one of its nodes throttles."""
    chances = {("node", "node-00"): 1.0, ("rack", "r0"): 1.0, ("cooling_loop", "loop-0"): 1.0}
    (incident,) = step((), fleet_at(NOW_S, layers={"rack": 4, "cooling_loop": 4}), hot=range(8), chances=chances)
    assert (incident.layer, incident.domain) == ("node", "node-00")


def test_a_loop_whose_other_nodes_are_at_watch_is_one_incident_from_its_first_node_on() -> None:
    chances = {("node", "node-00"): 0.6, ("cooling_loop", "loop-0"): 0.9}
    history = fleet_at(NOW_S, layers={"cooling_loop": 4})
    (alone,) = step((), history, chances=chances)
    assert (alone.layer, alone.domain) == ("node", "node-00")
    (incident,) = step((), history, chances=chances, watch=[("node", "node-01"), ("node", "node-02")])
    assert (incident.layer, incident.domain) == ("cooling_loop", "loop-0")
    raised = {**chances, ("node", "node-01"): 0.1, ("node", "node-03"): 0.1}
    assert places_of(step((), history, chances=raised)) == [("cooling_loop", "loop-0")]


@pytest.mark.parametrize("hot", [[3], [0, 1, 2]])
def test_those_who_throttle_already_do_not_say_where_a_forecast_will_come_true(hot: list[int]) -> None:
    (incident,) = step((), fleet_at(NOW_S), hot=hot, chances={("cooling_loop", "loop-0"): 0.9})
    assert incident.members == ids(LOOP_0)


def test_one_that_throttles_still_does_not_say_where_those_sit_who_began() -> None:
    (incident,) = step((), fleet_at(NOW_S, events=onsets(*range(16))), hot=[3])
    assert (incident.layer, incident.domain) == ("rack", "r0")


def test_two_nodes_that_were_two_incidents_end_in_the_loop_that_fails() -> None:
    first = step((), fleet_at(NOW_S), chances={("node", "node-00"): 0.9})
    both = step(first, fleet_at(NOW_S + MINUTE_S), chances={("node", "node-00"): 0.9, ("node", "node-02"): 0.9})
    assert [i.state for i in both] == ["predicted", "predicted"]
    later = step(both, fleet_at(NOW_S + 2 * MINUTE_S), chances={("cooling_loop", "loop-0"): 0.9})
    states = {incident.id: (incident.state, incident.domain) for incident in later}
    assert states[first[0].id] == ("predicted", "loop-0")
    ended = next(incident for incident in later if incident.id != first[0].id)
    assert (ended.state, ended.cleared_s, ended.evidence) == (
        "cleared",
        NOW_S + 2 * MINUTE_S,
        f"one with {first[0].id}",
    )


def test_places_that_overlap_are_never_opened_twice_in_one_cycle() -> None:
    """A tray and a rack of nodes 0 to 3 share only the loop of nodes 0 to 4, and node 4 has its own trouble."""
    history = fleet_at(NOW_S, 10, {"tray": 2, "rack": 3, "cooling_loop": 5})
    chances = {("tray", "tray-1"): 0.9, ("rack", "r0"): 0.9, ("node", "node-04"): 0.9}
    watch = [("node", f"node-0{i}") for i in range(3)]
    (incident,) = step((), history, chances=chances, watch=watch)
    assert (incident.domain, incident.members) == ("loop-0", ids(range(40)))


def test_of_an_alert_and_an_older_watch_that_turn_out_to_be_one_the_alert_goes_on() -> None:
    (alert,) = step((), fleet_at(NOW_S), chances={("node", "node-02"): 0.9})
    (watched,) = step((), fleet_at(NOW_S), chances={("node", "node-00"): 0.9})
    older = replace(watched, state="watch", alertname="", onset_s=NOW_S - 3600.0)
    found = step((older, alert), fleet_at(NOW_S + MINUTE_S), chances={("cooling_loop", "loop-0"): 0.9})
    assert {i.id: (i.state, i.onset_s) for i in found} == {
        alert.id: ("predicted", NOW_S),
        older.id: ("cleared", NOW_S - 3600.0),
    }


def test_more_onsets_than_heat_and_load_explain_are_an_incident() -> None:
    calm = step((), fleet_at(NOW_S), excess_p={("rack", "r1"): 2e-6, ("node", "node-02"): 2e-7})
    assert calm == ()
    (incident,) = step((), fleet_at(NOW_S), excess_p={("rack", "r1"): 5e-7})
    assert (incident.layer, incident.domain, incident.state) == ("rack", "r1", "active")
    assert (incident.alertname, incident.kind) == ("CoolingIncident", "common")
    assert incident.cause.endswith("more GPUs began to throttle in half an hour than their heat and load explain")


def test_an_excess_that_one_node_makes_sits_on_that_node() -> None:
    (incident,) = step((), fleet_at(NOW_S), excess_p={("node", "node-01"): 1e-9, ("cooling_loop", "loop-0"): 1e-9})
    assert (incident.layer, incident.domain) == ("node", "node-01")


def test_the_thresholds_are_those_of_the_policy() -> None:
    strict = IncidentPolicy.of({"domain_p_2h": 0.9, "excess_p": {"rack": 1e-12}})
    assert step((), fleet_at(NOW_S), chances={("rack", "r0"): 0.8}, policy=strict) == ()
    assert step((), fleet_at(NOW_S), excess_p={("rack", "r0"): 1e-9}, policy=strict) == ()
    assert len(step((), fleet_at(NOW_S), excess_p={("rack", "r0"): 1e-13}, policy=strict)) == 1


def test_a_layer_without_a_threshold_has_the_one_for_wider_places_or_the_strictest() -> None:
    assert IncidentPolicy().excess_of("row") == 1e-6
    assert IncidentPolicy.of({"domain_p_2h": 0.5, "excess_p": {"node": 1e-7, "rack": 1e-5}}).excess_of("row") == 1e-7
    assert IncidentPolicy.of({"domain_p_2h": 0.4}) == IncidentPolicy(domain_p_2h=0.4)
    with pytest.raises(KeyError, match="domain_p_2h"):
        IncidentPolicy.of({})


def test_incidents_that_were_kept_over_a_restart_go_on_as_they_were() -> None:
    known = step((), fleet_at(NOW_S), chances={("cooling_loop", "loop-0"): 0.9, ("cooling_loop", "loop-1"): 0.9})
    stored = tuple(replace(incident) for incident in known)
    later = fleet_at(NOW_S + 20 * MINUTE_S, events=onsets(*LOOP_1, at_s=NOW_S + 15 * MINUTE_S))
    after = step(stored, later, hot=LOOP_1)
    assert [(i.id, i.state) for i in after] == [(known[0].id, "predicted"), (known[1].id, "active")]


def test_the_order_of_the_gpus_changes_nothing() -> None:
    history = fleet_at(NOW_S, events=onsets(*range(8), *range(40, 48)))
    order = np.random.default_rng(2).permutation(64)
    hot = np.isin(np.arange(64), [*range(8), *range(40, 48)])
    there = step((), history, hot=np.flatnonzero(hot).tolist())
    here = step((), history.take(order), hot=np.flatnonzero(hot[order]).tolist())
    assert [replace(i, members=()) for i in here] == [replace(i, members=()) for i in there]
    assert [sorted(i.members) for i in here] == [sorted(i.members) for i in there]


def test_a_row_that_is_a_little_likelier_than_its_failing_loop_is_not_the_place() -> None:
    history = fleet_at(NOW_S, 16, WIDE)
    chances = {("row", "row-0"): 0.52, ("cooling_loop", "loop-1"): 0.46}
    assert places_of(step((), history, chances=chances)) == [("cooling_loop", "loop-1")]
    assert step((), history, chances={("cooling_loop", "loop-1"): 0.46}) == ()


def test_three_of_a_row_that_throttle_each_for_itself_are_no_cascade() -> None:
    history = fleet_at(NOW_S, 16, WIDE)
    certain = forecast_of(history, {("row", "row-0"): 1.0})
    hot = np.zeros(len(history.gpus), bool)
    hot[[0, 40, 90]] = True
    row = certain.domains.index(("row", "row-0"))
    counted = np.zeros(len(certain.domains), np.int32)
    counted[row] = 3
    assert update_incidents((), history, replace(certain, throttling=counted), hot, POLICY) == ()
    counted[row] = 13
    assert places_of(update_incidents((), history, replace(certain, throttling=counted), hot, POLICY)) == [
        ("row", "row-0")
    ]
