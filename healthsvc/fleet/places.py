"""Environment series of several stretches of time put behind one another."""

from collections.abc import Mapping, Sequence

import numpy as np

from healthsvc.fleet.history import PlaceSeries, align_rows
from healthsvc.fleet.signals import Signal


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
