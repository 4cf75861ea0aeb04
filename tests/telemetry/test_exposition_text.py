"""Text to samples: each line for itself, names as written, and nothing that a page can hold breaks the reader."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from healthsvc.telemetry import exposition
from healthsvc.telemetry.exposition import MOST_LABELS, Reader
from tests.telemetry.scrapes import parse

WANTED = frozenset({"x"})


def values(text: str) -> dict[str, list[float]]:
    return {m: s.values.tolist() for m, s in parse(text, 600.0).samples.items()}


def test_names_stay_as_written_whatever_their_type() -> None:
    text = "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 5\nx_total 6\n"
    assert values(text) == {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": [5.0], "x_total": [6.0]}


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ('x{a="1",b="2"} 7', {"a": "1", "b": "2"}),
        ('x{a="1", b="2",} 7', {"a": "1", "b": "2"}),
        ("x 7", {}),
        ("x{} 7", {}),
        ('x{a="}"} 7', {"a": "}"}),
        ('x{a="say \\"} 9\\" and # so"} 7', {"a": 'say "} 9" and # so'}),
        ('x{a="line\\nbreak",b="back\\\\slash"} 7', {"a": "line\nbreak", "b": "back\\slash"}),
        ('x{a="ends in \\\\"} 7', {"a": "ends in \\"}),
        ('{__name__="x",a="1"} 7', {"a": "1"}),
        ('\tx{a="1"}\t7  ', {"a": "1"}),
    ],
)
def test_labels_are_what_they_say(line: str, labels: dict[str, str]) -> None:
    found = parse(line, 600.0)
    assert found.rejected == {}
    assert found.samples["x"].labels == (labels,)
    assert found.samples["x"].values.tolist() == [7.0]


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "x y",
        "x{",
        'x{a="1"',
        'x{a="1"}',
        "x{a=1} 7",
        'x{a="1",a="2"} 7',
        'x{...,a="1"} 7',
        'x{a="1"} 1_000',
        'x{a="1"} 7 5 6',
        "x 7 later",
        "9x 7",
        '{a="1"} 7',
        "\x00\x01\x02",
        "<html><body>502 Bad Gateway</body></html>",
    ],
)
def test_a_broken_line_costs_only_itself(line: str) -> None:
    found = parse(f"before 1\n{line}\nafter 2\n", 600.0)
    assert found.rejected == {"malformed": 1}
    assert {m: s.values.tolist() for m, s in found.samples.items()} == {"before": [1.0], "after": [2.0]}


def test_times_are_those_that_are_written() -> None:
    assert parse("x 7 1700000000.123", 600.0).samples["x"].times_s.tolist() == [1700000000.123]
    assert parse("x 7", 600.0).samples["x"].times_s.tolist() == [600.0]


def test_an_exemplar_is_no_part_of_the_sample() -> None:
    assert values('x_total{a="1"} 7 1700000001 # {trace="abc"} 1 1700000000\n') == {"x_total": [7.0]}


def test_label_sets_of_megabytes_are_named_and_left_out() -> None:
    text = 'x{a="' + "y" * 10_000_000 + '"} 7\nx{a="1"} 8\n' + "z" * 10_000_000 + "\n"
    found = parse(text, 600.0)
    assert found.rejected == {"oversized_labels": 2}
    assert found.samples["x"].values.tolist() == [8.0]
    assert MOST_LABELS < 10_000_000


@pytest.mark.timeout(30)
@pytest.mark.parametrize("fill", ["}", '}"', "\\", '\\"', '\\"}', '\\\\"}', "} ", '"}"'])
def test_a_line_of_braces_costs_no_more_than_any_other(fill: str) -> None:
    """Each brace may be the one that closes the labels: to look again from the start at each of them takes hours."""
    reader = Reader()
    reader.read('x{a="' + fill * (2_000_000 // len(fill)) + "\n" + ('x{a="' + fill * 4000 + "\n") * 50)
    assert sum(reader.take().rejected.values()) == 51


@pytest.mark.parametrize("over", [0, 1])
def test_labels_may_have_their_full_length(over: int) -> None:
    head = 'x{a="' + "y" * (MOST_LABELS - 7 + over) + '"}'
    assert len(head) == MOST_LABELS + over
    assert parse(head + " 7", 600.0).rejected == ({"oversized_labels": 1} if over else {})
    name = "x" * (MOST_LABELS + over)
    assert parse(name + " 7", 600.0).rejected == ({"oversized_labels": 1} if over else {})


def test_infinite_numbers_are_passed_on_to_be_rejected_by_signal() -> None:
    found = parse("x +Inf\ny -Inf\nz NaN\n", 600.0).samples
    assert [float(found[m].values[0]) for m in "xy"] == [math.inf, -math.inf]
    assert np.isnan(found["z"].values[0])


def test_one_series_over_many_lines_and_pieces_is_one_series() -> None:
    reader = Reader()
    reader.read('x{a="1",b="2"} 7 1\nx{b="2",a="1"} 8 2\n')
    first = reader.take()
    reader.read('x{a="1",b="2"} 9 3\n')
    second = reader.take()
    assert first.samples["x"].counts.tolist() == [2]
    assert first.samples["x"].values.tolist() == [7.0, 8.0]
    assert second.samples["x"].values.tolist() == [9.0]


def test_only_wanted_metrics_are_kept() -> None:
    reader = Reader(WANTED)
    reader.read('x 1 5\ny 2 5\n{__name__="x",a="1"} 3 5\n{UUID="1", __name__="x"} 4 5\n{"x"} 5 6\n{__name__="y"} 6 5\n')
    found = reader.take()
    assert found.samples.keys() == {"x"}
    assert found.samples["x"].values.tolist() == [1.0, 5.0, 3.0, 4.0]
    assert found.rejected == {}


def test_series_of_other_metrics_are_neither_parsed_nor_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counting(text: str) -> Iterable[Metric]:
        parsed.append(text)
        return text_string_to_metric_families(text)

    monkeypatch.setattr(exposition, "text_string_to_metric_families", counting)
    monkeypatch.setattr(exposition, "MOST_SERIES", 2)
    reader = Reader(WANTED)
    for i in range(100):
        reader.read(f'y{{a="{i}"}} 1 5\n{{__name__="y",a="{i}"}} 1 5\n{{a="x",__name__="y",b="{i}"}} 1 5\n')
    assert len(parsed) == 100  # "x" may have been the name in the last
    reader.read('x{a="1"} 1 5\nx{a="2"} 1 5\n')
    found = reader.take()
    assert found.samples["x"].values.tolist() == [1.0, 1.0]
    assert found.rejected == {}


def test_too_many_series_are_named_as_such_and_those_known_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "MOST_SERIES", 2)
    reader = Reader(WANTED)
    reader.read("".join(f'x{{a="{i}"}} {i} {at}\n' for at in (5, 6) for i in range(3)))
    found = reader.take()
    assert found.samples["x"].values.tolist() == [0.0, 0.0, 1.0, 1.0]
    assert found.rejected == {"too_many_series": 2}


@pytest.mark.parametrize("line", ["9y 7 5", "y\x01 7 5", "<html> 7 5", '{a="1"} 7 5', "y{ 7 5", "y"])
def test_a_line_that_names_no_metric_is_malformed_whatever_is_wanted(line: str) -> None:
    reader = Reader(WANTED)
    reader.read(line)
    assert reader.take().rejected == {"malformed": 1}


def test_a_sample_without_any_time_is_malformed() -> None:
    reader = Reader()
    reader.read("x 1\n")
    assert reader.take().rejected == {"malformed": 1}


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    found = parse(text, 600.0)
    lines = sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.split("\n"))
    assert sum(len(s.values) for s in found.samples.values()) + sum(found.rejected.values()) == lines
