"""Environment series of several stretches of time put behind one another."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from healthsvc.fleet.arrays import align_rows
from healthsvc.fleet.history import PlaceSeries
from healthsvc.fleet.signals import Signal

# What sites put around a node's name to name its management controller.
_CONTROLLER = re.compile(r"(?:(?:bmc|ipmi|idrac|ilo|oob|mgmt)[-_.])?(.+?)(?:[-_.](?:bmc|ipmi|idrac|ilo|oob|mgmt|ib))?")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")


def join_places(parts: Sequence[tuple[Mapping[Signal, PlaceSeries], int]]) -> dict[Signal, PlaceSeries]:
    """One series a signal, for every place of any part in order of name; what a part lacks is NaN there.

    parts: the series of one stretch each, oldest first, with its width in columns (a stretch may hold no series). The
    newest part says which layer a signal belongs to; older series of another layer name other places and are NaN.
    """
    joined: dict[Signal, PlaceSeries] = {}
    for signal in sorted({signal for part, _ in parts for signal in part}):
        layer = next(part[signal].layer for part, _ in reversed(parts) if signal in part)
        known = [
            series if (series := part.get(signal)) is not None and series.layer == layer else None for part, _ in parts
        ]
        names = tuple(sorted({name for series in known if series is not None for name in series.names}))
        blocks = []
        for series, (_, width) in zip(known, parts, strict=True):
            if series is None:
                blocks.append(np.full((len(names), width), np.nan, np.float32))
                continue
            number = {name: row for row, name in enumerate(series.names)}
            rows = np.array([number.get(name, -1) for name in names], np.intp)
            blocks.append(align_rows(series.values.astype(np.float32, copy=False), rows))
        joined[signal] = PlaceSeries(layer, names, np.concatenate(blocks, axis=1))
    return joined


def first_of(parts: Sequence[PlaceSeries]) -> PlaceSeries:
    """One signal from several sources, the earlier winning, place by place and sample by sample.

    The first that has a sample says the layer; sources that speak of places of another layer are left out.
    """
    told = [part for part in parts if part.names and not np.isnan(part.values).all()] or list(parts[:1])
    told = [part for part in told if part.layer == told[0].layer]
    names = tuple(sorted({name for part in told for name in part.names}))
    number = {name: row for row, name in enumerate(names)}
    values = np.full((len(names), told[0].values.shape[1]), np.nan, np.float32)
    for part in told:
        rows = np.array([number[name] for name in part.names], np.intp)
        values[rows] = np.where(np.isnan(values[rows]), part.values, values[rows])
    return PlaceSeries(told[0].layer, names, values)


def at_nodes(series: PlaceSeries, nodes: Sequence[str], controllers: Mapping[str, str]) -> PlaceSeries:
    """The series of nodes under the names in `nodes`, as far as theirs can be recognised; the others stay.

    controllers: name of a management controller -> node. A name is recognised without its domain and without what
    marks a controller (node1-bmc.mgmt.example), if only one node is called so. Blind to addresses.
    """
    known = set(nodes)
    if known.issuperset(series.names):
        return series
    short: dict[str, set[str]] = {}
    for node in nodes:
        short.setdefault(_short(node), set()).add(node)
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(series.names):
        exact = {name} & known or ({controllers[name]} if name in controllers else set())
        found = exact or short.get(_short(name), set())
        groups.setdefault(next(iter(found)) if len(found) == 1 else name, []).append(row)
    parts = [
        PlaceSeries(
            series.layer, tuple(groups), series.values[[rows[min(k, len(rows) - 1)] for rows in groups.values()]]
        )
        for k in range(max(map(len, groups.values())))
    ]
    joined = parts[0] if len(parts) == 1 else first_of(parts)
    order = sorted(range(len(joined.names)), key=joined.names.__getitem__)
    return replace(joined, names=tuple(joined.names[i] for i in order), values=joined.values[order])


def _short(name: str) -> str:
    """A name without domain and controller's marks, in small letters; an address stays."""
    if _ADDRESS.fullmatch(name):
        return name
    told = _CONTROLLER.fullmatch(name.lower().partition(".")[0])
    return told[1] if told else name.lower()
