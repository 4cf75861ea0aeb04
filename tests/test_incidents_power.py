"""Power that fails over many nodes is one incident of the facility, wherever it strikes and however it flaps."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.fleet import EventKind, EventLog, FleetHistory, Floats, GpuId, Incident, Signal, Topology
from healthsvc.incidents.power import TOGETHER_S, _together, braked_now
from tests import naive_incidents
from tests.histories import NOW_S
from tests.incident_cases import COLUMNS, MINUTE_S, fleet_at, ids, onsets, places_of, step

NODES = 36
HOUR_S = 3600.0
LAYERS = {"rack": 4, "cooling_loop": 12, "power_feed": 9}
NOTHING = Topology({}, {})


def node_gpus(*nodes: int) -> list[int]:
    return [8 * node + i for node in nodes for i in range(8)]


def seconds(rows: Sequence[int], braked: Sequence[int] | slice, of_step: float = 0.5) -> Floats:
    """The power brake counter: these GPUs braked for a share of these columns."""
    values = np.zeros((8 * NODES, COLUMNS), np.float32)
    for row in rows:
        values[row, braked] = of_step * MINUTE_S
    return values


def braked_fleet(
    now_s: float,
    rows: Sequence[int],
    minutes: int = 5,
    log: EventLog | None = None,
    layers: dict[str, int] | None = None,
) -> FleetHistory:
    """Whose GPUs `rows` have been braked for so many minutes; log: their onsets, told by default."""
    told = onsets(*rows, at_s=now_s - minutes * MINUTE_S, kind=EventKind.POWER_BRAKE) if log is None else log
    counter = seconds(rows, slice(-minutes, None))
    return fleet_at(now_s, NODES, layers or LAYERS, told, extra={Signal.POWER_BRAKE_THROTTLE: counter})


def test_nine_nodes_of_a_feed_that_are_braked_are_one_incident_of_that_feed() -> None:
    rows = node_gpus(*range(9, 18))
    (incident,) = step((), braked_fleet(NOW_S, rows))
    assert (incident.layer, incident.domain, incident.state) == ("power_feed", "feed-1", "active")
    assert (incident.alertname, incident.kind) == ("FacilityPowerIncident", "power")
    assert incident.cause == "power brake on 72 GPUs of 9 nodes"
    assert incident.members == ids(rows)
    assert (incident.onset_s, incident.began_s) == (NOW_S, NOW_S - 5 * MINUTE_S)
    assert incident.first_mover == "GPU-072"


def test_nine_nodes_scattered_over_the_fleet_are_one_incident_of_the_fleet_and_its_members_are_they_alone() -> None:
    rows = node_gpus(*range(0, 36, 4))
    history = braked_fleet(NOW_S, rows)
    (incident,) = step((), history)
    assert (incident.layer, incident.domain, incident.members) == ("fleet", "all", ids(rows))
    gpus = tuple(replace(gpu, cluster="east") for gpu in history.gpus)
    window = replace(history.recent, gpus=gpus)
    (incident,) = step((), replace(history, recent=window))
    assert (incident.layer, incident.domain) == ("fleet", "east")


def test_without_a_topology_beyond_nodes_it_is_one_incident_of_the_fleet() -> None:
    rows = node_gpus(*range(9))
    history = braked_fleet(NOW_S, rows)
    nodes = Topology({"node": history.topology.groups["node"]}, {"node": history.topology.names["node"]})
    (incident,) = step((), replace(history, topology=nodes))
    assert (incident.layer, incident.members) == ("fleet", ids(rows))


def test_of_places_that_are_as_large_the_power_feed_is_named() -> None:
    (incident,) = step((), braked_fleet(NOW_S, node_gpus(0, 1, 2, 3), layers={"rack": 4, "row": 4, "power_feed": 4}))
    assert places_of([incident]) == [("power_feed", "feed-0")]


def test_a_rack_within_a_feed_is_the_smallest_that_holds_them() -> None:
    (incident,) = step((), braked_fleet(NOW_S, node_gpus(4, 5, 6, 7)))
    assert places_of([incident]) == [("rack", "r1")]


def test_two_nodes_open_nothing_and_the_third_opens_it() -> None:
    assert step((), braked_fleet(NOW_S, node_gpus(0, 1))) == ()
    assert len(step((), braked_fleet(NOW_S, [0, 8, 16]))) == 1


def test_brakes_that_began_hours_apart_have_no_common_cause() -> None:
    log = EventLog()
    for hours, node in enumerate((0, 9, 18)):
        log = log.merged(onsets(*node_gpus(node), at_s=NOW_S - (hours + 1) * HOUR_S, kind=EventKind.POWER_BRAKE))
    history = braked_fleet(NOW_S, node_gpus(0, 9, 18), minutes=COLUMNS, log=log)
    assert step((), history) == ()


def test_brakes_that_were_released_open_nothing() -> None:
    rows = node_gpus(*range(9))
    log = onsets(*rows, at_s=NOW_S - 30 * MINUTE_S, kind=EventKind.POWER_BRAKE)
    counter = seconds(rows, slice(-30, -12))
    assert step((), fleet_at(NOW_S, NODES, LAYERS, log, extra={Signal.POWER_BRAKE_THROTTLE: counter})) == ()


def test_a_brake_that_lasts_for_36_hours_is_one_incident_from_begin_to_end() -> None:
    rows = node_gpus(*range(9, 18))
    began_s = NOW_S - 5 * MINUTE_S
    log = onsets(*rows, at_s=began_s, kind=EventKind.POWER_BRAKE)
    known: tuple[Incident, ...] = ()
    seen = set()
    for hours in range(37):
        history = braked_fleet(NOW_S + hours * HOUR_S, rows, min(5 + 60 * hours, COLUMNS), log)
        known = step(known, history)
        seen.add((len(known), known[0].id, known[0].state, known[0].began_s))
    assert seen == {(1, f"power_feed:feed-1:{NOW_S:.0f}", "active", began_s)}


def test_a_service_that_starts_in_the_middle_of_it_opens_it_at_once() -> None:
    rows = node_gpus(*range(9, 18))
    log = onsets(*rows, at_s=NOW_S - 20 * HOUR_S, kind=EventKind.POWER_BRAKE)
    (incident,) = step((), braked_fleet(NOW_S, rows, COLUMNS, log))
    assert (incident.domain, incident.began_s) == ("feed-1", NOW_S - 20 * HOUR_S)


def test_a_brake_that_flaps_is_one_incident_until_thirty_minutes_after_its_last_pull() -> None:
    rows = node_gpus(*range(9, 18))
    log = onsets(*rows, at_s=NOW_S - 5 * MINUTE_S, kind=EventKind.POWER_BRAKE)
    known: tuple[Incident, ...] = ()
    told = []
    for minutes in range(0, 60, 5):
        # Ten transitions a second: every sample of a pull shows a part of it. Pulls last five minutes, pauses fifteen.
        counter = seconds(rows, [c for c in range(COLUMNS) if 115 <= c + minutes <= 140 and (c + minutes) % 20 >= 15])
        now_s = NOW_S + minutes * MINUTE_S
        history = fleet_at(now_s, NODES, LAYERS, log, extra={Signal.POWER_BRAKE_THROTTLE: counter})
        known = step(known, history)
        told += [(minutes, incident.id, incident.state) for incident in known]
    assert {name for _, name, _ in told} == {f"power_feed:feed-1:{NOW_S:.0f}"}
    assert [minutes for minutes, _, state in told if state == "active"] == list(range(0, told[-1][0], 5))
    assert told[-1][2] == "cleared"


def test_nodes_that_join_later_are_of_the_same_incident() -> None:
    first = step((), braked_fleet(NOW_S, node_gpus(9, 10, 11)))
    rows = node_gpus(*range(9, 18))
    (incident,) = step(first, braked_fleet(NOW_S + 5 * MINUTE_S, rows))
    assert (incident.id, incident.domain) == (first[0].id, "feed-1")
    assert incident.members == ids(rows)


def test_what_spreads_beyond_its_feed_moves_to_the_fleet() -> None:
    first = step((), braked_fleet(NOW_S, node_gpus(*range(9))))
    rows = node_gpus(*range(27))
    (incident,) = step(first, braked_fleet(NOW_S + 5 * MINUTE_S, rows))
    assert (incident.id, incident.layer) == (first[0].id, "fleet")
    assert incident.members == ids(rows)


def test_a_few_nodes_of_another_feed_move_it_to_the_fleet_too_and_its_feed_stays_in() -> None:
    first = step((), braked_fleet(NOW_S, node_gpus(0, 1, 2, 3, 7, 8)))
    assert places_of(first) == [("power_feed", "feed-0")]
    (incident,) = step(first, braked_fleet(NOW_S + 5 * MINUTE_S, node_gpus(0, 1, 2, 3, 7, 8, 20, 21)))
    assert (incident.id, incident.layer) == (first[0].id, "fleet")
    assert sorted(incident.members) == sorted(ids(node_gpus(*range(9), 20, 21)))


def test_one_braked_member_keeps_it_open() -> None:
    known = step((), braked_fleet(NOW_S, node_gpus(*range(9))))
    for minutes in (20, 40, 60):
        known = step(known, braked_fleet(NOW_S + minutes * MINUTE_S, [5]))
        assert [(i.state, i.last_true_s) for i in known] == [("active", NOW_S + minutes * MINUTE_S)]


def test_two_feeds_that_fail_hours_apart_are_two_incidents() -> None:
    first = step((), braked_fleet(NOW_S, node_gpus(*range(9))))
    later_s = NOW_S + 3 * HOUR_S
    log = onsets(*node_gpus(*range(9)), at_s=NOW_S - 300, kind=EventKind.POWER_BRAKE)
    log = log.merged(onsets(*node_gpus(*range(18, 27)), at_s=later_s - 300, kind=EventKind.POWER_BRAKE))
    found = step(first, braked_fleet(later_s, node_gpus(*range(9), *range(18, 27)), COLUMNS, log))
    assert sorted(places_of(found)) == [("power_feed", "feed-0"), ("power_feed", "feed-2")]


def test_where_only_clock_event_bits_are_exported_bit_seven_tells_it() -> None:
    rows = node_gpus(*range(9, 18))
    bits = np.full((8 * NODES, COLUMNS), 4.0, np.float32)  # power cap: no fault
    bits[rows, -5:] = 0x88
    history = fleet_at(NOW_S, NODES, LAYERS, extra={Signal.CLOCK_EVENT_REASONS: bits})
    (incident,) = step((), history)
    assert (incident.domain, incident.began_s) == ("feed-1", NOW_S - 5 * MINUTE_S)
    bits[rows, -5:] = 0x44  # power cap and hardware thermal: another kind
    assert step((), fleet_at(NOW_S, NODES, LAYERS, extra={Signal.CLOCK_EVENT_REASONS: bits})) == ()


def test_a_gpu_with_the_counter_is_judged_by_the_counter_alone() -> None:
    bits = np.full((8 * NODES, COLUMNS), 0x88, np.float32)
    counter = np.full((8 * NODES, COLUMNS), np.nan, np.float32)
    counter[8:] = 0.0
    signals = {Signal.CLOCK_EVENT_REASONS: bits, Signal.POWER_BRAKE_THROTTLE: counter}
    assert np.flatnonzero(braked_now(fleet_at(NOW_S, NODES, LAYERS, extra=signals))).tolist() == list(range(8))


def test_power_and_cooling_of_the_same_gpus_are_two_incidents() -> None:
    rows = node_gpus(0, 1, 2, 3)
    both = onsets(*rows, kind=EventKind.POWER_BRAKE).merged(onsets(*rows))
    found = step((), braked_fleet(NOW_S, rows, log=both), hot=rows)
    assert sorted(incident.alertname for incident in found) == ["CoolingIncident", "FacilityPowerIncident"]


def test_gpus_whose_node_is_not_known_open_nothing_by_themselves() -> None:
    rows = node_gpus(*range(9))
    history = braked_fleet(NOW_S, rows)
    assert step((), replace(history, topology=NOTHING)) == ()
    group = np.repeat(np.array([0, 1] + [-1] * 34, np.int32), 8)
    two = replace(history.topology, groups={"node": group}, names={"node": ("node-00", "node-01")})
    assert step((), replace(history, topology=two)) == ()


def test_identity_is_the_device_and_not_the_row() -> None:
    first = step((), braked_fleet(NOW_S, node_gpus(*range(9, 18))))
    later = braked_fleet(NOW_S + MINUTE_S, node_gpus(*range(9, 18)))
    (incident,) = step(first, later.take(np.arange(len(later.gpus))[::-1]))
    assert (incident.id, sorted(incident.members)) == (first[0].id, sorted(first[0].members))
    assert isinstance(later.gpus[0], GpuId)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=30))
def test_who_was_braked_together_agrees_with_one_moment_after_the_other(brakes: list[tuple[int, int]]) -> None:
    began_s = np.array([300.0 * bins for bins, _ in brakes])
    node = np.array([number for _, number in brakes], np.int32)
    fast = sorted(sorted(group.tolist()) for group in _together(began_s, node))
    slow = naive_incidents.brakes_together(began_s.tolist(), node.tolist(), TOGETHER_S, 3)
    assert fast == sorted(sorted(group) for group in slow)


@pytest.mark.parametrize("dose", [0.0, 0.005])
def test_a_brake_below_one_percent_of_ten_minutes_is_none(dose: float) -> None:
    counter = seconds(node_gpus(*range(9)), slice(-10, None), of_step=dose)
    assert step((), fleet_at(NOW_S, NODES, LAYERS, extra={Signal.POWER_BRAKE_THROTTLE: counter})) == ()
