"""XIDs: every new code is a change on the grid, in the column where it is born; repeats are known from counts."""

import numpy as np
import pytest

from healthsvc.features.events import detect_events
from healthsvc.fleet import EventKind, Signal
from healthsvc.telemetry.framing.grid import frame
from healthsvc.telemetry.framing.read_memory import ReadMemory
from healthsvc.telemetry.source import RawGrid
from tests.telemetry.framed import GPU, OTHER, Pairs, grid, line, of, samples

XID, TOTAL, WINDOW = "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_EXP_XID_ERRORS_COUNT"
SMI = "nvidia_smi_xid_errors_total"
ALIVE = "DCGM_FI_DEV_GPU_TEMP"
TIMES = np.arange(1.0, 11) * 60.0


def minutes(first: int, last: int, value: float, late_s: float = 0.0) -> Pairs:
    return [(60.0 * k + late_s, value) for k in range(first, last + 1)]


def alive() -> tuple[dict[str, str], Pairs]:
    return of(), minutes(1, 10, 50.0)


def xids(raw: RawGrid) -> list[tuple[float, float]]:
    """(column end, code) of every XID event that the engine sees."""
    window, _ = frame(raw)
    log = detect_events(window, np.zeros(len(raw.gpus), np.int32), -np.inf)
    return [
        (at, code) for at, code, kind in zip(log.start_s, log.value, log.kind, strict=True) if kind == EventKind.XID
    ]


def framed(metric: str, *series: tuple[dict[str, str], Pairs], memory: ReadMemory | None = None) -> RawGrid:
    return grid({ALIVE: samples(alive()), metric: samples(*series)}, TIMES, memory=memory)


def test_a_new_code_shows_beside_the_old_one_that_is_still_stored() -> None:
    old, new = (of(err_code="31"), minutes(1, 10, 31, late_s=0.0)), (of(err_code="79"), minutes(5, 10, 79, late_s=-20))
    raw = framed(XID, old, new)
    assert line(raw, Signal.XID) == [31.0] * 4 + [79.0] * 6
    assert xids(raw) == [(300.0, 79.0)]


def test_a_code_that_comes_again_after_another_is_an_event_again() -> None:
    first, again = minutes(1, 3, 79), minutes(8, 10, 79)
    raw = framed(XID, (of(err_code="79"), [*first, *again]), (of(err_code="48"), minutes(4, 7, 48)))
    assert xids(raw) == [(240.0, 48.0), (480.0, 79.0)]


def test_two_codes_born_in_one_column_are_two_events() -> None:
    raw = framed(XID, (of(err_code="63"), minutes(4, 4, 63, -30)), (of(err_code="48"), minutes(4, 10, 48, -5)))
    assert xids(raw) == [(240.0, 63.0), (300.0, 48.0)]


def test_a_change_of_pod_is_no_new_xid() -> None:
    raw = framed(XID, (of(err_code="31", pod="a"), minutes(1, 5, 31)), (of(err_code="31", pod="b"), minutes(6, 10, 31)))
    assert xids(raw) == []


def test_replicas_that_see_a_new_code_late_do_not_bring_back_the_old_one() -> None:
    series = []
    for replica, late_s in (("a", -40.0), ("b", -1.0)):
        born = 5 if replica == "a" else 6
        series.append((of(err_code="31", replica=replica), minutes(1, born - 1, 31, late_s)))
        series.append((of(err_code="79", replica=replica), minutes(born, 10, 79, late_s)))
    assert xids(framed(XID, *series)) == [(300.0, 79.0)]


def test_a_gauge_without_the_label_says_by_itself_what_came_when() -> None:
    pairs = [(60.0 * k, value) for k, value in enumerate([0, 0, 31, 31, 79, 79, 79, 79, 79, 79], 1)]
    assert xids(framed(XID, (of(), pairs))) == [(180.0, 31.0), (300.0, 79.0)]


def test_totals_tell_repeats_of_one_code() -> None:
    pairs = [(60.0 * k, value) for k, value in enumerate([1, 1, 1, 2, 2, 4, 4, 4, 4, 4], 1)]
    raw = framed(TOTAL, (of(xid="31"), pairs))
    assert xids(raw) == [(240.0, 31.0), (360.0, 31.0)]


def test_the_first_total_of_a_code_is_an_event() -> None:
    assert xids(framed(TOTAL, (of(xid="79"), minutes(6, 10, 1)))) == [(360.0, 79.0)]


def test_totals_there_from_the_first_column_on_are_old() -> None:
    assert xids(framed(TOTAL, (of(xid="79"), minutes(1, 10, 3)))) == []


def test_a_change_of_pod_does_not_repeat_totals() -> None:
    raw = framed(TOTAL, (of(xid="31", pod="a"), minutes(1, 5, 3)), (of(xid="31", pod="b"), minutes(5, 10, 3)))
    assert xids(raw) == []


def test_a_total_that_begins_anew_counts_since_the_exporters_start() -> None:
    pairs = [(60.0 * k, value) for k, value in enumerate([5, 5, 5, 1, 1, 1, 1, 1, 1, 1], 1)]
    assert xids(framed(TOTAL, (of(xid="31"), pairs))) == [(240.0, 31.0)]


def test_repeats_in_neighbouring_columns_are_two_events() -> None:
    pairs = [(60.0 * k, value) for k, value in enumerate([1, 1, 2, 3, 3, 3, 3, 3, 3, 3], 1)]
    assert [code for _, code in xids(framed(TOTAL, (of(xid="31"), pairs)))] == [31.0, 31.0]


def test_a_window_count_is_never_differenced() -> None:
    pairs = [(60.0 * k, value) for k, value in enumerate([0, 0, 2, 2, 2, 2, 1, 1, 0, 0], 1)]
    assert xids(framed(WINDOW, (of(xid="48"), pairs))) == [(180.0, 48.0)]


def test_an_empty_window_count_has_no_xid_label() -> None:
    raw = framed(WINDOW, (of(), minutes(1, 10, 0)))
    assert xids(raw) == []
    assert line(raw, Signal.XID) == [0.0] * 10


def test_the_gauge_that_sticks_adds_nothing_once_there_are_totals() -> None:
    answers = {
        ALIVE: samples(alive()),
        XID: samples((of(err_code="31"), minutes(1, 10, 31))),
        TOTAL: samples((of(xid="79"), [pair for pair in minutes(5, 10, 1) if pair[0] != 420.0])),
    }
    assert xids(grid(answers, TIMES)) == [(300.0, 79.0)]


@pytest.mark.parametrize("cut", [2, 4, 5, 6])
def test_totals_are_understood_across_two_reads(cut: int) -> None:
    counts = [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    memory, events = ReadMemory(), []
    for part in (slice(0, cut), slice(cut, 10)):
        pairs = [(60.0 * (k + 1), counts[k]) for k in range(10)[part]]
        answers = {ALIVE: samples(alive()), TOTAL: samples((of(xid="31"), pairs))}
        raw = grid(answers, TIMES[part], memory=memory)
        events += [float(code) for code in raw.values[Signal.XID][0] if code > 0]
    assert events == [31.0]


def column_by_column(
    gauge: list[float], counts: dict[str, list[float | None]], metric: str, partial: frozenset[int] = frozenset()
) -> list[float | None]:
    """The line of reads of one column each: a gauge, and counts by code, whose series are gone where there are none."""
    memory, found = ReadMemory(), []
    for k, shown in enumerate(gauge):
        at_s = 60.0 * (k + 1)
        answers = {ALIVE: samples((of(), [(at_s, 50.0)])), XID: samples((of(), [(at_s, shown)]))}
        born = [(of(xid=code), [(at_s, value)]) for code, each in counts.items() if (value := each[k]) is not None]
        if born:
            answers[metric] = samples(*born)
        found += line(grid(answers, np.array([at_s]), memory=memory, partial=k in partial), Signal.XID)
    return found


@pytest.mark.parametrize("metric", [TOTAL, WINDOW, SMI, TOTAL.lower()])
def test_the_first_count_that_a_fleet_ever_shows_is_an_event(metric: str) -> None:
    assert column_by_column([0, 79, 79, 79], {"79": [None, 1, 1, 1]}, metric) == [0, 79, 0, 0]


def test_counts_in_the_first_read_of_all_are_old() -> None:
    assert column_by_column([79, 79], {"79": [1, 1]}, TOTAL) == [0, 0]


def test_a_partial_read_makes_no_old_count_new() -> None:
    assert column_by_column([79] * 3, {"79": [None, 1, 1]}, TOTAL, partial=frozenset({0})) == [79, 0, 0]
    # Once a whole read is known, what a partial one hides has not been forgotten.
    counts: dict[str, list[float | None]] = {"79": [1, None, 1, 2]}
    assert column_by_column([79] * 4, counts, TOTAL, partial=frozenset({1}))[2:] == [0, 79]


def test_a_sliding_count_that_vanishes_when_quiet_is_born_again() -> None:
    counts: dict[str, list[float | None]] = {"31": [None, 1, 1, None, None, 1, 1]}
    assert column_by_column([0, *[31.0] * 6], counts, WINDOW) == [0, 31, 0, 0, 0, 31, 0]


def test_a_partial_read_hides_a_sliding_count_without_ending_it() -> None:
    counts: dict[str, list[float | None]] = {"31": [None, 1, None, 1]}
    assert column_by_column([0, 31, 31, 31], counts, WINDOW, partial=frozenset({2})) == [0, 31, 0, 0]


def test_a_sliding_count_that_vanishes_within_a_read_is_born_again() -> None:
    assert xids(framed(WINDOW, (of(xid="31"), [*minutes(2, 4, 1), *minutes(8, 9, 1)]))) == [(120, 31.0), (480, 31.0)]


def test_a_missed_scrape_repeats_no_sliding_count() -> None:
    answers = {ALIVE: samples((of(), [pair for pair in minutes(1, 10, 50) if pair[0] != 300.0]))}
    answers[WINDOW] = samples((of(xid="31"), [pair for pair in minutes(2, 9, 1) if pair[0] != 300.0]))
    assert xids(grid(answers, TIMES)) == [(120.0, 31.0)]


def test_the_gauge_speaks_again_when_it_shows_another_code_than_the_one_that_stuck() -> None:
    counts: dict[str, list[float | None]] = {"31": [None, 1, None, None, None]}
    assert column_by_column([0, 31, 31, 79, 79], counts, WINDOW) == [0, 31, 0, 79, 79]
    assert column_by_column([0, 31, 31, 79, 31], counts, WINDOW) == [0, 31, 0, 79, 31]


def test_what_sticks_in_one_gpus_gauge_is_news_in_anothers() -> None:
    memory, found = ReadMemory(), []
    gpus = grid({ALIVE: samples((of(), []), (of(OTHER), []))}, TIMES).gpus
    for k, (code, other) in enumerate([(0, 0), (31, 0), (31, 31)], 1):
        at_s = 60.0 * k
        shown = ((GPU, code), (OTHER, other))
        answers = {XID: samples(*((of(device), [(at_s, float(value))]) for device, value in shown))}
        if k == 2:
            answers[WINDOW] = samples((of(xid="31"), [(at_s, 1.0)]))
        found.append(grid(answers, np.array([at_s]), memory=memory, gpus=gpus).values[Signal.XID][:, 0].tolist())
    assert found == [[0, 0], [31, 0], [0, 31]]


def test_a_code_that_comes_again_behind_a_gap_is_an_event_again() -> None:
    pairs = [(60.0 * k, value) for k, value in ((1, 1.0), (2, 2.0), (4, 3.0), (5, 3.0))]
    assert xids(framed(TOTAL, (of(xid="31"), pairs))) == [(120.0, 31.0), (240.0, 31.0)]
