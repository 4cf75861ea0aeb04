"""How a grid ended, for the grid that continues it, whoever has joined or left the fleet in between."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import Signal
from healthsvc.telemetry.framing.freshness import Rhythm
from healthsvc.telemetry.framing.seams import Last

Floats = NDArray[np.float64]
_KEPT_TAILS = 4  # of reads that others may continue: the live one, and walks through the past


@dataclass(frozen=True)
class Tail:
    """What the next grid has to know of each GPU, by row of `devices`.

    held[signal]: the last sample of slow GPUs' gauges and states, and its column's end, both [gpu]. energy, since_s
    [gpu]: the energy counter's last value, and since when it has that value. sticks [gpu]: the XID that the gauge
    shows behind the exporter's counts, NaN: none. rhythm: of its samples. lasts: of signals that have a pace.
    """

    devices: tuple[str, ...]
    held: Mapping[Signal, tuple[Floats, Floats]]
    energy: Floats
    since_s: Floats
    sticks: Floats
    rhythm: Rhythm
    lasts: Mapping[Signal, Last] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def unknown(cls, devices: tuple[str, ...]) -> "Tail":
        """Nothing seen yet."""
        nothing = np.full(len(devices), np.nan)
        return cls(devices, {}, nothing, nothing, nothing, Rhythm.unknown(len(devices)))

    def of(self, devices: tuple[str, ...]) -> "Tail":
        """With a row for each of `devices` and for no other; of whom nothing is known that row is empty."""
        if devices == self.devices:
            return self
        row = {device: i for i, device in enumerate(self.devices)}
        rows = np.array([row.get(device, -1) for device in devices], np.intp)

        def of(each: NDArray[Any], missing: float = np.nan) -> NDArray[Any]:
            found = np.full((len(rows), *each.shape[1:]), missing)
            found[rows >= 0] = each[rows[rows >= 0]]
            return found

        rhythm = Rhythm(of(self.rhythm.first_s, np.inf), of(self.rhythm.last_s, -np.inf), of(self.rhythm.spacings))
        return Tail(
            devices,
            {signal: (of(value), of(at_s, -np.inf)) for signal, (value, at_s) in self.held.items()},
            of(self.energy),
            of(self.since_s),
            of(self.sticks),
            rhythm,
            {
                signal: Last(of(last.value), of(last.at_s, -np.inf), of(last.believed), of(last.believed_at_s, -np.inf))
                for signal, last in self.lasts.items()
            },
        )

    def with_absent(self, before: "Tail") -> "Tail":
        """With the rows of those behind it who were known `before` and are not here now: a slow GPU is not found in
        every column."""
        here = frozenset(self.devices)
        absent = tuple(device for device in before.devices if device not in here)
        if not absent:
            return self
        now, then = self.of((*self.devices, *absent)), before.of((*self.devices, *absent))
        there = np.arange(len(now.devices)) < len(self.devices)

        def both(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
            return np.where(there.reshape(-1, *[1] * (one.ndim - 1)), one, other)

        nobody, never = np.full(len(now.devices), np.nan), np.full(len(now.devices), -np.inf)
        unseen = Last.unknown(len(now.devices))
        held, lasts = {}, {}
        for signal in now.held.keys() | then.held.keys():
            one, other = now.held.get(signal, (nobody, never)), then.held.get(signal, (nobody, never))
            held[signal] = both(one[0], other[0]), both(one[1], other[1])
        for signal in now.lasts.keys() | then.lasts.keys():
            a, b = now.lasts.get(signal, unseen), then.lasts.get(signal, unseen)
            believed, believed_at_s = both(a.believed, b.believed), both(a.believed_at_s, b.believed_at_s)
            lasts[signal] = Last(both(a.value, b.value), both(a.at_s, b.at_s), believed, believed_at_s)
        return Tail(
            now.devices,
            held,
            both(now.energy, then.energy),
            both(now.since_s, then.since_s),
            both(now.sticks, then.sticks),
            Rhythm(
                both(now.rhythm.first_s, then.rhythm.first_s),
                both(now.rhythm.last_s, then.rhythm.last_s),
                both(now.rhythm.spacings, then.rhythm.spacings),
            ),
            lasts,
        )


@dataclass
class Freshness:
    """What reads know of each other: every GPU's interval, and how the newest grids ended, by their last column."""

    interval_s: dict[str, float] = field(default_factory=dict)
    tails: dict[float, Tail] = field(default_factory=dict)

    def keep(self, end_s: float, tail: Tail) -> None:
        """Remember it in the place of the oldest."""
        self.tails.pop(end_s, None)
        self.tails[end_s] = tail
        while len(self.tails) > _KEPT_TAILS:
            del self.tails[next(iter(self.tails))]
