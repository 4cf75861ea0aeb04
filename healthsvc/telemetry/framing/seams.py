"""The first sample of a read against the last one of the read before: a live read is too short to judge itself.

A sample that leaves the last believed one as no hardware can is left out, unless the sample before it had left in the
same way: what is seen twice is a step.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import Signal
from healthsvc.telemetry.framing.hygiene import FASTEST, SPIKE_S, SPIKES
from healthsvc.telemetry.framing.units import SLACK_S

Floats = NDArray[np.float64]
JUDGED = (*(signal for signal in SPIKES if signal is not Signal.INLET), *FASTEST)


@dataclass(frozen=True)
class Last:
    """The last sample of each GPU [gpu] at the end of its column, and the last that was believed."""

    value: Floats
    at_s: Floats
    believed: Floats
    believed_at_s: Floats

    @classmethod
    def unknown(cls, gpus: int) -> "Last":
        """Nothing seen yet."""
        nothing, never = np.full(gpus, np.nan), np.full(gpus, -np.inf)
        return cls(nothing, never, nothing, never)


def judge(grid: Floats, grid_s: Floats, signal: Signal, before: Last) -> tuple[int, Last]:
    """Takes the first sample of each GPU out of `grid` [gpu, time] where it cannot follow; how many, and the end."""
    known = ~np.isnan(grid)
    rows = np.flatnonzero(known.any(axis=1))
    if not len(rows):
        return 0, before
    first = np.argmax(known[rows], axis=1)
    last = grid.shape[1] - 1 - np.argmax(known[rows, ::-1], axis=1)
    value, at_s = grid[rows, first], grid_s[first]
    follows = _follows(value, at_s, before.believed[rows], before.believed_at_s[rows], signal)
    confirmed = _follows(value, at_s, before.value[rows], before.at_s[rows], signal) & (
        before.value[rows] != before.believed[rows]
    )
    wrong = ~follows & ~confirmed
    # With a later sample in this read the series have judged the first one already, unless it stands alone.
    wrong &= (first == last) | ~_follows(grid[rows, last], grid_s[last], value, at_s, signal)
    end = Last(*(each.copy() for each in (before.value, before.at_s, before.believed, before.believed_at_s)))
    end.value[rows], end.at_s[rows] = grid[rows, last], grid_s[last]
    grid[rows[wrong], first[wrong]] = np.nan
    good = ~(wrong & (first == last))
    end.believed[rows[good]], end.believed_at_s[rows[good]] = grid[rows[good], last[good]], grid_s[last[good]]
    return int(np.count_nonzero(wrong)), end


def _follows(value: Floats, at_s: Floats, before: Floats, before_s: Floats, signal: Signal) -> NDArray[np.bool_]:
    """Whether `value` can come after `before`; anything can come after nothing."""
    apart_s = at_s - before_s
    with np.errstate(invalid="ignore"):
        if signal in SPIKES:
            far = (np.abs(value - before) > SPIKES[signal]) & (apart_s <= SPIKE_S)
        else:
            far = value - before > FASTEST[signal] * (apart_s + SLACK_S)
    return ~far


def judge_all(
    values: Mapping[Signal, Floats], grid_s: Floats, before: Mapping[Signal, Last]
) -> tuple[dict[Signal, int], dict[Signal, Last]]:
    """Every signal that has a pace: how many samples were left out, and how each ends."""
    gone: dict[Signal, int] = {}
    ends = dict(before)
    for signal in JUDGED:
        if signal in values:
            known = before.get(signal) or Last.unknown(len(values[signal]))
            gone[signal], ends[signal] = judge(values[signal], grid_s, signal, known)
    return gone, ends
