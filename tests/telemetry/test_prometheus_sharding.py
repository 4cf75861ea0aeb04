"""Splitting a question loses no device and no column."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.telemetry.server.sharding import MOST_PREFIXES, column_chunks, prefix_matcher, shards

NAMES = st.lists(st.text("0123456789abcdef-", min_size=1, max_size=6).map("GPU-".__add__), min_size=1, unique=True)


def answers(matcher: str, names: list[str]) -> set[str]:
    """The names that Prometheus would match."""
    if matcher.endswith('!=""'):
        return set(names)
    pattern = re.compile(matcher.partition('=~"')[2][:-1].replace("\\\\", "\\"))
    return {name for name in names if pattern.fullmatch(name)}


@given(NAMES, st.integers(1, 20), st.data())
def test_every_wanted_device_is_asked_for(known: list[str], most: int, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    parts = shards("UUID", wanted, known, most)
    assert set().union(*(answers(part.matcher, known) for part in parts)) >= set(wanted)
    assert all(len(answers(part.matcher, known)) == part.devices for part in parts)


def test_a_large_fleet_is_split_evenly_and_tersely() -> None:
    numbers = np.random.default_rng(7).integers(0, 2**32, 20_000)
    fleet = [f"GPU-{number:08x}" for number in numbers]
    parts = shards("UUID", fleet, fleet, 2000)
    assert len(parts) <= 16
    assert all(part.devices <= 2000 for part in parts)
    assert all(part.matcher.count("|") < MOST_PREFIXES and len(part.matcher) < 500 for part in parts)


def test_one_device_of_many_is_asked_for_alone() -> None:
    fleet = [f"GPU-{number:08x}" for number in range(0, 10_000, 7)]
    (part,) = shards("uuid", [fleet[500]], fleet, 2000)
    assert part.matcher == f'uuid=~"{fleet[500]}.*"'
    assert part.devices == 1


def test_special_characters_of_a_serial_are_escaped() -> None:
    assert prefix_matcher("UUID", ["a.b", 'c"d']) == 'UUID=~"a\\\\.b.*|c\\\\\\"d.*"'


@pytest.mark.parametrize(("columns", "most"), [(1, 1), (10, 3), (10, 100), (7, 0), (1440, 333)])
def test_chunks_cover_every_column_once(columns: int, most: int) -> None:
    chunks = column_chunks(columns, most)
    assert [k for first, last in chunks for k in range(first, last)] == list(range(columns))
    assert max(last - first for first, last in chunks) <= max(most, 1)


def test_a_name_inside_another_name_ends_the_search() -> None:
    (part,) = shards("UUID", ["a", "ab", "abc"], ["a", "ab", "abc"], 1)
    assert part.matcher == 'UUID=~"a.*"'
