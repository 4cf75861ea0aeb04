"""From labels to events: merging, and what is dropped for which reason."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.evaluation.episodes import Drop
from healthsvc.evaluation.labels import Label
from healthsvc.evaluation.precursors import precursor_of
from healthsvc.fleet import EventKind, EventLog
from tests.evaluation.cases import DAY_S, LABELS, LOOP, MINUTE_S, START_S, day, episodes, label

MINUTE = MINUTE_S / DAY_S


def reasons(*labels: Label) -> list[tuple[str, Drop]]:
    return [(row.scope, reason) for row, reason in episodes(*labels).dropped]


def test_events_within_a_day_are_one_with_the_graver_grade_and_the_earliest_start() -> None:
    found = episodes(
        label("GPU-a", "memory", 5, 5.1, line=2, precursor=False),
        label("GPU-a", "memory", 5.9, grade="T1", line=3, precursor=True),
    ).events
    assert [(e.start_s, e.grade, e.end_s, e.precursor, e.lines) for e in found] == [
        (day(5), "T1", float("inf"), False, (2, 3))
    ]


def test_events_more_than_a_day_apart_or_of_another_class_or_gpu_stay_apart() -> None:
    rows = [label("GPU-a", "memory", 5, 5), label("GPU-a", "memory", 6.01, 6.01)]
    rows += [label("GPU-a", "device_loss", 5, 5), label("GPU-c", "memory", 5, 5)]
    assert len(episodes(*rows).events) == 4


def test_what_happens_while_an_event_lasts_is_part_of_it() -> None:
    assert len(episodes(label("GPU-a", "thermal", 5), label("GPU-a", "thermal", 30, grade="T1")).events) == 1


def test_what_follows_a_terminal_event_is_dropped_until_the_gpu_is_replaced() -> None:
    dead = label("GPU-a", "memory", 5, grade="T1")
    assert reasons(dead, label("GPU-a", "memory", 9)) == [("GPU-a", Drop.AFTER_TERMINAL)]
    replaced = label("GPU-a", "memory", 5, 7, grade="T1")
    assert reasons(replaced, label("GPU-a", "memory", 9)) == []
    assert reasons(dead, label("GPU-a", "device_loss", 9)) == []


def test_gpus_that_follow_a_broken_link_of_their_node_are_dropped() -> None:
    first = label("GPU-a", "device_loss", 5, 6, note="XID 79, then silent")
    follower = label("GPU-b", "device_loss", 5 + 9 * MINUTE, 6, note="XID 74")
    assert reasons(first, follower) == [("GPU-b", Drop.SYMPATHETIC)]
    assert reasons(first, label("GPU-c", "device_loss", 5 + 9 * MINUTE, 6, note="XID 74")) == []  # another node
    assert reasons(first, label("GPU-b", "device_loss", 5 + 11 * MINUTE, 6, note="XID 74")) == []
    assert reasons(first, label("GPU-b", "device_loss", 5 + 9 * MINUTE, 6, note="XID 79")) == []


def test_a_members_heat_inside_its_domains_throttling_is_the_domains() -> None:
    together = label(LOOP, "throttling", 5, 5.5)
    assert reasons(together, label("GPU-b", "thermal", 5.1, 5.2)) == [("GPU-b", Drop.IN_THROTTLING_DOMAIN)]
    assert reasons(together, label("GPU-b", "thermal", 5 - 20 * MINUTE, 5.2)) == [("GPU-b", Drop.IN_THROTTLING_DOMAIN)]
    assert reasons(together, label("GPU-b", "thermal", 6, 6.2)) == []
    assert reasons(together, label("GPU-b", "memory", 5.1, 5.2)) == []


def test_events_during_maintenance_are_dropped() -> None:
    work = label("node:n1", "maintenance", 5, 6)
    assert reasons(work, label("GPU-a", "device_loss", 5.5, 5.6)) == [("GPU-a", Drop.IN_MAINTENANCE)]
    assert reasons(work, label("GPU-c", "device_loss", 5.5, 5.6)) == []
    assert reasons(work, label(LOOP, "throttling", 5.5, 5.6)) == [(LOOP, Drop.IN_MAINTENANCE)]  # 2 of its 3 GPUs


def test_our_own_output_and_gpus_without_telemetry_are_no_events() -> None:
    own, elsewhere = label("GPU-a", "memory", 5, source="service"), label("GPU-z", "memory", 6)
    assert reasons(own, elsewhere) == [("GPU-a", Drop.NOT_JUDGED), ("GPU-z", Drop.UNKNOWN_SCOPE)]


def test_decoys_are_kept_apart_from_events() -> None:
    found = episodes(*LABELS)
    assert len(found.events) == 5
    assert [(d.scope, d.scenario) for d in found.decoys] == [("GPU-b", "constant_hot")]


@settings(deadline=None, max_examples=40)
@given(st.permutations(LABELS))
def test_the_order_of_rows_does_not_matter(rows: list[Label]) -> None:
    assert episodes(*rows) == episodes(*LABELS)


def log(kind: EventKind, at_day: float, value: float = 1.0, row: int = 0) -> EventLog:
    at = np.array([day(at_day)])
    return EventLog(np.array([row], np.int32), at, at, np.array([kind], np.int16), np.array([value]))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (log(EventKind.XID, 40, 63), True),
        (log(EventKind.XID, 40, 163), True),
        (log(EventKind.XID, 40, 48), False),  # an event of its own, not a precursor
        (log(EventKind.UNCORRECTABLE_REMAP, 40), True),
        (log(EventKind.GAP, 40), True),
        (log(EventKind.LOST, 50 - 10 * MINUTE), False),  # this is the event
        (log(EventKind.XID, 19, 63), False),  # more than 30 days before
        (log(EventKind.XID, 40, 63, row=1), False),  # another GPU
        (EventLog(), False),
    ],
)
def test_a_precursor_is_what_the_telemetry_of_thirty_days_shows(events: EventLog, expected: bool) -> None:
    none = np.full((2, 1), np.nan)
    days = np.array([int(START_S // DAY_S) + 45])
    rows = {"GPU-a": 0, "GPU-b": 1}
    assert precursor_of(label("GPU-a", "memory", 50), rows, events, days, none) is expected


def test_a_hot_day_is_a_precursor_once_it_is_over() -> None:
    first, rows = int(START_S // DAY_S), {"GPU-a": 0}
    for at_day, sigma, expected in ((45, 3.1, True), (45, 2.9, False), (50, 9.0, False), (10, 9.0, False)):
        excess = np.array([[np.nan, sigma]])
        days = np.array([first + at_day - 1, first + at_day])
        assert precursor_of(label("GPU-a", "thermal", 50.5), rows, EventLog(), days, excess) is expected


def test_a_label_that_says_so_outranks_the_telemetry_and_an_unobserved_gpu_is_not_known() -> None:
    nothing = (EventLog(), np.zeros(0, np.int64), np.zeros((1, 0)))
    assert precursor_of(label("GPU-a", "memory", 50, precursor=True), {"GPU-a": 0}, *nothing) is True
    assert precursor_of(label("GPU-z", "memory", 50), {"GPU-a": 0}, *nothing) is None
    assert precursor_of(label(LOOP, "throttling", 50), {"GPU-a": 0}, *nothing) is None
