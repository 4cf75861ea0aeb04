"""How a large question is split: devices by prefix of their UUID, time by whole grid columns.

Lists of whole UUIDs are never sent: some 400 of them meet the limits of URLs, headers and query lengths.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_PREFIXES = 32  # in one query
SPILL = 0.1  # share of devices that a shard may return unasked, before its prefixes are made longer
_AFTER_ANY = "\U0010ffff"
_SPECIAL = re.compile(r'([\\.+*?()|\[\]{}^$"])')


@dataclass(frozen=True)
class Shard:
    """Devices that one query covers: a label matcher ("" for all), and how many devices will answer."""

    matcher: str
    devices: int


def _under(ordered: Sequence[str], prefix: str) -> int:
    """How many of the sorted names start with `prefix`."""
    return bisect_left(ordered, prefix + _AFTER_ANY) - bisect_left(ordered, prefix)


def _longer(wanted: Sequence[str], prefix: str) -> list[str]:
    """The prefixes, one character past what all wanted names under `prefix` share, that cover those names."""
    start = bisect_left(wanted, prefix)
    inside = wanted[start : start + _under(wanted, prefix)]
    pairs = zip(inside[0], inside[-1], strict=False)  # sorted: what these two share, all share
    shared = next((k for k, (a, b) in enumerate(pairs) if a != b), len(inside[0]))
    return sorted({name[: shared + 1] for name in inside}) if shared < len(inside[0]) else [inside[0]]


def cover(wanted: Sequence[str], known: Sequence[str], most: int) -> list[tuple[str, int]]:
    """Prefixes, with the number of known names under each, that cover `wanted` with little else.

    None holds more than `most` known names, unless that is one name. `wanted` is a part of `known`; both are sorted.
    """
    open_prefixes = [""]
    done: list[tuple[str, int]] = []
    while open_prefixes:
        prefix = open_prefixes.pop()
        inside, asked = _under(known, prefix), _under(wanted, prefix)
        crowded = inside > most
        wasteful = inside - asked > SPILL * max(asked, 1) and len(open_prefixes) + len(done) < MOST_PREFIXES * 4
        longer = _longer(wanted, prefix) if crowded or wasteful else [prefix]
        if longer == [prefix]:  # small enough, or a whole name: nothing longer covers it
            done.append((prefix, inside))
        else:
            open_prefixes.extend(reversed(longer))
    return done


def shards(label: str, wanted: Sequence[str], known: Sequence[str], most: int) -> list[Shard]:
    """Matchers on `label` that together cover `wanted`, each with at most `most` known devices where possible."""
    names = sorted(set(wanted))
    everyone = sorted({*known, *names})
    packs: list[tuple[list[str], int]] = []
    for prefix, inside in cover(names, everyone, most):
        if packs and packs[-1][1] + inside <= most and len(packs[-1][0]) < MOST_PREFIXES:
            packs[-1] = ([*packs[-1][0], prefix], packs[-1][1] + inside)
        else:
            packs.append(([prefix], inside))
    return [Shard(prefix_matcher(label, prefixes), devices) for prefixes, devices in packs]


def prefix_matcher(label: str, prefixes: Sequence[str]) -> str:
    """UUID=~"GPU-0.*|GPU-1.*"; the empty prefix asks for every series that has the label."""
    if "" in prefixes:
        return f'{label}!=""'
    pattern = "|".join(_SPECIAL.sub(r"\\\1", prefix) + ".*" for prefix in prefixes)
    return '{}=~"{}"'.format(label, pattern.replace("\\", "\\\\").replace('"', '\\"'))


def column_chunks(columns: int, most: int) -> list[tuple[int, int]]:
    """[first, last) column pairs of nearly equal size, none with more than `most` columns."""
    pieces = max(-(-columns // max(most, 1)), 1)
    edges = [round(columns * k / pieces) for k in range(pieces + 1)]
    return list(pairwise(edges))
