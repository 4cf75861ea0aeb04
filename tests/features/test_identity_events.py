"""Who the GPUs are may change: what is a swap, a move, a rename, and what is nothing."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.features.identity_events import IdentityEvent, Known, as_log, decommissioned, identity_events
from healthsvc.fleet import EventKind, GpuId, Sighting
from tests import naive


def gpu(device: str, host: str = "n1", index: str = "0", slot: str = "") -> GpuId:
    return GpuId(device, host, index, "H100", slot)


def node(host: str, devices: str, first: int = 0) -> list[GpuId]:
    return [gpu(d, host, str(first + i), f"bus-{first + i}") for i, d in enumerate(devices)]


def known(*gpus: GpuId, **cut: Sequence[str]) -> Known:
    return Known({g.device_id: g for g in gpus}, {d: frozenset(names) for d, names in cut.items()})


def kinds(
    before: Known, now: Sequence[GpuId], present: str = "", cut: dict[str, Sequence[str]] | None = None
) -> dict[str, str]:
    """Device -> what happened to it, when `now` are seen at once and `present` are the others that answer."""
    told = [Sighting(60.0, g, frozenset((cut or {}).get(g.device_id, ()))) for g in now]
    there = {g.device_id for g in now} | set(present)
    events, _ = identity_events(before, told, lambda device, _: device in there)
    assert all(event.at_s == 60.0 for event in events)
    return {event.device_id: event.kind.name for event in events}


def test_a_new_board_in_a_silent_boards_socket_is_a_swap() -> None:
    assert kinds(known(*node("n1", "abc")), [gpu("x", "n1", "1", "bus-1")], present="ac") == {"x": "SWAP"}


def test_a_new_board_beside_a_living_one_in_its_socket_is_no_swap() -> None:
    assert kinds(known(*node("n1", "abc")), [gpu("x", "n1", "1", "bus-1")], present="abc") == {}


def test_a_new_board_in_a_free_socket_is_no_swap() -> None:
    assert kinds(known(*node("n1", "abc")), [gpu("x", "n1", "3", "bus-3")], present="abc") == {}


def test_a_socket_whose_board_was_carried_away_in_the_same_column_is_swapped() -> None:
    now = [gpu("x", "n1", "1", "bus-1"), gpu("b", "n2", "5", "bus-5")]
    assert kinds(known(*node("n1", "abc"), *node("n2", "d")), now, present="acd") == {"x": "SWAP", "b": "MOVE"}


def test_without_bus_addresses_the_index_is_the_socket() -> None:
    assert kinds(known(gpu("a"), gpu("b", index="1")), [gpu("x", index="1")], present="a") == {"x": "SWAP"}
    assert kinds(known(gpu("a", slot="bus-0")), [gpu("x")]) == {"x": "SWAP"}


def test_an_index_that_was_dealt_anew_makes_no_swap_of_another_bus_address() -> None:
    assert kinds(known(gpu("a", slot="bus-0")), [gpu("x", slot="bus-7")]) == {}


def test_nobody_is_swapped_in_a_fleet_that_is_seen_for_the_first_time() -> None:
    assert kinds(Known(), node("n1", "abc")) == {}


def test_a_board_on_another_host_has_moved() -> None:
    before = known(*node("n1", "abc"), *node("n2", "d"))
    assert kinds(before, [gpu("b", "n2", "1", "bus-1")], present="acd") == {"b": "MOVE"}
    assert kinds(before, [gpu("b", "n9", "1", "bus-1")], present="ac") == {"b": "MOVE"}  # the others have stayed


def test_a_host_that_is_called_something_else_as_a_whole_is_renamed() -> None:
    assert kinds(known(*node("n1", "abc"), *node("n2", "d")), node("n1.example", "abc"), present="d") == dict.fromkeys(
        "abc", "RENAME"
    )


def test_a_lost_member_does_not_keep_its_host_from_being_renamed() -> None:
    assert kinds(known(*node("n1", "abc")), node("new", "ab")) == {"a": "RENAME", "b": "RENAME"}


def test_boards_that_go_to_a_known_host_or_into_other_sockets_have_moved() -> None:
    before = known(*node("n1", "abc"), *node("n2", "d", 7))
    assert set(kinds(before, node("n2", "abc"), present="d").values()) == {"MOVE"}
    assert set(kinds(before, node("n3", "abc", first=4), present="d").values()) == {"MOVE"}


def test_one_of_many_boards_on_a_host_nobody_knows_has_moved_while_its_old_host_is_dark() -> None:
    assert kinds(known(*node("n1", "abcd")), [gpu("b", "n9", "1", "bus-1")]) == {"b": "MOVE"}


def test_another_index_or_bus_address_on_the_same_host_is_a_re_enumeration() -> None:
    before = known(*node("n1", "abc"))
    assert kinds(before, [gpu("a", "n1", "2", "bus-0")], present="bc") == {"a": "RE_ENUMERATION"}
    assert kinds(before, [gpu("a", "n1", "0", "bus-9")], present="bc") == {"a": "RE_ENUMERATION"}


def test_a_label_that_appears_or_vanishes_is_no_event() -> None:
    bare, full = GpuId("a", "n1", "0"), GpuId("a", "n1", "0", "H100", "bus-0", "east")
    assert kinds(known(bare), [full]) == {}
    assert kinds(known(full), [bare]) == {}
    assert kinds(known(full), [GpuId("a")]) == {}


def test_other_mig_instances_are_a_re_partitioning_and_unknown_ones_are_nothing() -> None:
    before = known(gpu("a"), gpu("b"), a=("1", "2"))
    assert kinds(before, [gpu("a"), gpu("b")], cut={"a": ("1", "2", "3"), "b": ("7",)}) == {"a": "REPARTITION"}
    assert kinds(before, [gpu("a")]) == {"a": "REPARTITION"}  # whole again
    events, now = identity_events(before, [Sighting(1.0, gpu("a"), None)], lambda *_: True)
    assert (events, now.instances["a"]) == ([], frozenset({"1", "2"}))
    events, _ = identity_events(before, [Sighting(1.0, gpu("a"), frozenset("123"))], lambda *_: True)
    assert events == [IdentityEvent("a", 1.0, EventKind.REPARTITION, 3.0)]


def test_who_is_gone_with_the_whole_host_is_decommissioned_and_who_is_gone_alone_is_not() -> None:
    before = [*node("n1", "ab"), *node("n2", "cd"), GpuId("e")]
    assert [g.device_id for g in decommissioned(before, node("n2", "c"))] == ["a", "b"]
    assert [g.device_id for g in decommissioned(before, [gpu("a", "n3"), gpu("b", "n3"), *node("n2", "cd")])] == []


def test_a_day_on_which_nobody_reports_decommissions_nobody() -> None:
    assert decommissioned(node("n1", "ab"), ()) == ()


def test_the_log_holds_those_that_have_a_row_in_order_of_time() -> None:
    events = [IdentityEvent("b", 9.0, EventKind.MOVE), IdentityEvent("a", 3.0, EventKind.SWAP)]
    log = as_log([*events, IdentityEvent("z", 1.0, EventKind.MOVE)], {"a": 4, "b": 2})
    assert (log.row.tolist(), log.start_s.tolist(), log.kind.tolist()) == ([4, 2], [3, 9], [15, 16])
    np.testing.assert_array_equal(log.start_s, log.end_s)
    assert len(as_log([], {})) == 0


PLACES = st.tuples(st.sampled_from(["n1", "n2", "n3", ""]), st.sampled_from("012"))
FLEETS = st.dictionaries(st.sampled_from("abcdef"), PLACES, max_size=6)


@given(courses=st.lists(FLEETS, min_size=1, max_size=5))
def test_the_events_are_those_of_the_slow_twin(courses: list[dict[str, tuple[str, str]]]) -> None:
    """Columns one after the other, in each some devices somewhere; what has changed is handed over."""
    state, found, plain = Known(), [], []
    memory: dict[str, tuple[str, str]] = {}
    for at_s, column in enumerate(courses):
        told = [
            Sighting(float(at_s), GpuId(d, host, slot=slot))
            for d, (host, slot) in sorted(column.items())
            if state.gpus.get(d) != GpuId(d, host, slot=slot)
        ]
        events, state = identity_events(state, told, lambda d, _: d in column)  # noqa: B023 - used at once
        found += [(e.device_id, e.at_s, e.kind.name) for e in events]
        plain += [(d, float(at_s), kind) for d, kind in naive.identity_changes(memory, column)]
        memory |= column
    assert sorted(found) == sorted(plain)


@given(courses=st.lists(FLEETS, min_size=1, max_size=6), cut=st.integers(0, 6))
def test_whether_it_is_told_at_once_or_in_two_parts_is_the_same(
    courses: list[dict[str, tuple[str, str]]], cut: int
) -> None:
    told = [
        Sighting(float(at_s), GpuId(d, host, slot=slot))
        for at_s, column in enumerate(courses)
        for d, (host, slot) in sorted(column.items())
    ]

    def present(device: str, at_s: float) -> bool:
        return device in courses[int(at_s)]

    whole, _ = identity_events(Known(), told, present)
    first, state = identity_events(Known(), [s for s in told if s.at_s < cut], present)
    second, _ = identity_events(state, [s for s in told if s.at_s >= cut], present)
    assert first + second == whole
