"""incidents.csv: what is read, what is refused, and that each refusal names line, value and cure."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.evaluation.labels import (
    LABEL_CLASSES,
    SOURCES,
    Label,
    LabelError,
    parse_labels,
    read_labels,
)
from healthsvc.fleet import CLASSES, GRADES, rfc3339

HEADER = "scope,start,end,class,grade,source,precursor,scenario,note\n"
GOOD = "GPU-a,2026-01-05T00:00:00Z,2026-01-05T01:00:00+01:00,memory,T2,operator,true,hbm_wear,XID 48\n"


def refused(*rows: str) -> str:
    with pytest.raises(LabelError) as caught:
        parse_labels(HEADER + "".join(f"{row}\n" for row in rows), "i.csv")
    return str(caught.value)


def test_a_row_is_read_in_full() -> None:
    assert parse_labels(HEADER + GOOD) == (
        Label("GPU-a", 1767571200.0, 1767571200.0, "memory", "T2", "operator", True, "hbm_wear", "XID 48", 2),
    )


def test_an_empty_end_is_open_and_the_last_three_columns_may_be_missing() -> None:
    text = "scope,start,end,class,grade,source\nrack:r3,2026-01-05T00:00:00Z,,throttling,T2,auto\n"
    (label,) = parse_labels(text)
    assert (label.end_s, label.precursor, label.note) == (float("inf"), None, "")


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("GPU-a,2026-01-05T00:00:00Z,,termal,T2,operator,,,", "class = 'termal': no such class; choose one of thermal"),
        ("GPU-a,2026-01-05T00:00:00Z,,memory,T3,operator,,,", "grade = 'T3': no such grade; choose one of T2, T1"),
        ("GPU-a,2026-01-05T00:00:00Z,,memory,,operator,,,", "grade = ''"),
        ("GPU-a,2026-01-05T00:00:00Z,,none,T2,operator,,hot,", "none has no grade; leave it empty"),
        ("node:n1,2026-01-05T00:00:00Z,,maintenance,T1,operator,,,", "maintenance has no grade"),
        ("rack:r1,2026-01-05T00:00:00Z,,throttling,T1,operator,,,", "grade = 'T1': throttling is always T2"),
        ("GPU-a,2026-01-05T00:00:00Z,,memory,T2,nobody,,,", "source = 'nobody'"),
        ("GPU-a,2026-01-05T00:00:00Z,,memory,T2,operator,maybe,,", "precursor = 'maybe': write true or false"),
        ("GPU-a,2026-01-05,,memory,T2,operator,,,", "start = '2026-01-05': no RFC 3339 time; write it like"),
        ("GPU-a,2026-01-05T00:00:00,,memory,T2,operator,,,", "no RFC 3339 time"),
        ("GPU-a,2026-02-31T00:00:00Z,,memory,T2,operator,,,", "no RFC 3339 time"),
        ("GPU-a,,,memory,T2,operator,,,", "start = ''"),
        ("GPU-a,2026-01-05T00:00:00Z,2026-01-04T00:00:00Z,memory,T2,operator,,,", "before start"),
        (",2026-01-05T00:00:00Z,,memory,T2,operator,,,", "scope = ''"),
        ("shelf:r1,2026-01-05T00:00:00Z,,throttling,T2,operator,,,", "scope = 'shelf:r1': neither a GPU nor a place"),
        ("rack:,2026-01-05T00:00:00Z,,throttling,T2,operator,,,", "neither a GPU nor a place"),
        ("rack:r1,2026-01-05T00:00:00Z,,memory,T2,operator,,,", "memory befalls single GPUs"),
        ("GPU-a,2026-01-05T00:00:00Z,,throttling,T2,operator,,,", "throttling befalls places"),
        ("GPU-a,2026-01-05T00:00:00Z,,memory,T2,operator,,", "8 cells; the header has 9"),
    ],
)
def test_an_impossible_row_is_named_by_line_value_and_cure(row: str, complaint: str) -> None:
    told = refused(GOOD.strip(), row)
    assert told.startswith("i.csv:3: ")
    assert complaint in told
    assert len(told.splitlines()) == 1


def test_all_that_is_wrong_is_told_at_once() -> None:
    bad = "GPU-a,yesterday,,memory,T9,operator,,,"
    lines = refused(bad, "", bad).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["i.csv:2"] * 2 + ["i.csv:4"] * 2


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (GOOD, "is a duplicate of line 2"),
        (GOOD.replace("T2", "T1"), "is T1 here and T2 in line 2; keep the graver row"),
        (GOOD.replace("01:00:00+01:00", "09:00:00Z"), "ends otherwise in line 2"),
    ],
)
def test_the_same_moment_told_twice_is_a_conflict(other: str, complaint: str) -> None:
    told = refused(GOOD.strip(), other.strip())
    assert told.startswith("i.csv:3: ")
    assert complaint in told


def test_a_service_event_that_grows_into_a_terminal_one_is_no_conflict() -> None:
    later = "GPU-a,2026-01-05T00:30:00Z,,memory,T1,operator,,,\n"
    assert len(parse_labels(HEADER + GOOD + later)) == 2


def test_our_own_output_is_read_but_not_judged_and_conflicts_with_nothing() -> None:
    own = GOOD.replace("operator", "service")
    assert [label.judged for label in parse_labels(HEADER + GOOD + own + own)] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "i.csv:1: no header"),
        ("scope,start\n", "columns missing: end, class, grade, source"),
        (HEADER.replace("note", "notes"), "columns unknown: notes"),
        (HEADER.replace("note", "scope"), "columns twice: scope"),
        (HEADER + 'GPU-a,"open\n', "i.csv:2: "),
    ],
)
def test_a_file_that_is_no_table_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(LabelError, match=r"i\.csv") as caught:
        parse_labels(text, "i.csv")
    assert complaint in str(caught.value)


def test_a_row_after_a_note_of_several_lines_keeps_its_line() -> None:
    told = refused(GOOD.strip().replace("XID 48", '"two\nlines"'), "GPU-b,x,,memory,T2,operator,,,")
    assert told.startswith("i.csv:4: start = 'x'")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match=r"nowhere.csv: No such file"):
        read_labels(tmp_path / "nowhere.csv")
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b"\xe9")
    with pytest.raises(LabelError, match="is not UTF-8"):
        read_labels(tmp_path / "latin.csv")


@st.composite
def some_labels(draw: st.DrawFn) -> Label:
    what = draw(st.sampled_from(LABEL_CLASSES))
    scope = "GPU-a" if what in CLASSES else "rack:r 1"
    grade = draw(st.sampled_from(GRADES)) if what in CLASSES else "T2" if what == "throttling" else ""
    start_s = draw(st.integers(0, 2_000_000_000))
    end_s = draw(st.one_of(st.just(float("inf")), st.integers(start_s, start_s + 10**8).map(float)))
    words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=9).map(str.strip)
    source, precursor = draw(st.sampled_from(SOURCES)), draw(st.sampled_from((None, True, False)))
    return Label(scope, float(start_s), end_s, what, grade, source, precursor, draw(words), draw(words), 2)


@settings(deadline=None, max_examples=40)
@given(some_labels())
def test_any_label_that_is_written_is_read(label: Label) -> None:
    out = io.StringIO()
    known = "" if label.precursor is None else str(label.precursor)
    times = (rfc3339(label.start_s), rfc3339(label.end_s))
    what = (label.failure_class, label.grade, label.source, known, label.scenario, label.note)
    csv.writer(out).writerow((label.scope, *times, *what))
    assert parse_labels(HEADER + out.getvalue()) == (label,)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "i.csv").write_text(HEADER + GOOD, "utf-8")
    assert read_labels(tmp_path / "i.csv") == parse_labels(HEADER + GOOD)
