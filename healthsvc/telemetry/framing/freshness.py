"""How long a sample is believed: the interval of each GPU's own samples, values held over it, and frozen exporters.

A fleet is scraped at many intervals. On a grid finer than a GPU's interval its gauges are held until its next sample is
due, so that it shows no gaps; longer gaps stay gaps. Counters are not held: what they gained lands on the next sample.

An exporter can go on serving what it once read (gpu-monitoring-tools 188: the engine restarted, /health green).
An energy counter tells: it cannot stand still while the board draws power. Judged over FROZEN_S, which is twenty of the
exporter's own collection intervals (30 s), never over one scrape. Blind to a frozen exporter that gives no energy, and
for the first FROZEN_S of the standstill as long as a read does not reach beyond it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import LIVENESS, STATES, Signal
from healthsvc.telemetry.framing.units import LOWEST_WATTS

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
LONGEST_HELD_S = 300.0  # a sample is believed no longer, however slow its source
_LATE = 1.25  # a scrape may come this much late
_FINER = 1.2  # the grid is finer than the source from here on
ENOUGH = 5  # samples tell an interval; gaps among fewer would be taken for one
_REMEMBERED = 8
_SPACINGS_LOOKED_AT = 16
FROZEN_S = 600.0
_BLOCK = 256  # rows at once, so that what is looked at together stays in the cache


@dataclass(frozen=True)
class Rhythm:
    """What reads too short to tell an interval have seen of it: first_s and last_s [gpu], the moments of a GPU's first
    and last sample (infinite: none), and spacings [gpu, _REMEMBERED], the newest last, NaN where there are fewer.
    """

    first_s: Floats
    last_s: Floats
    spacings: Floats

    @classmethod
    def unknown(cls, gpus: int) -> "Rhythm":
        """Nothing seen yet; the arrays are to be written to."""
        return cls(np.full(gpus, np.inf), np.full(gpus, -np.inf), np.full((gpus, _REMEMBERED), np.nan))

    def see(self, times_s: Floats, counts: NDArray[np.int64], rows: Rows) -> None:
        """Samples of series that belong to these rows."""
        some = np.flatnonzero(counts > 0)
        ends = np.cumsum(counts)[some]
        first, last = times_s[ends - counts[some]], times_s[ends - 1]
        np.minimum.at(self.first_s, rows[some], first)
        np.maximum.at(self.last_s, rows[some], last)
        few = np.flatnonzero((counts[some] > 1) & (counts[some] < ENOUGH))
        spacing = (last[few] - first[few]) / (counts[some][few] - 1)
        np.fmin.at(self.spacings[:, -1], rows[some][few], spacing)

    def after(self, before: "Rhythm") -> "Rhythm":
        """This rhythm as the continuation of `before`."""
        spacings = before.spacings.copy()
        seen = np.isfinite(self.first_s)
        seam = np.where(seen & np.isfinite(before.last_s), self.first_s - before.last_s, np.nan)
        for new in (seam, self.spacings[:, -1]):
            rows = np.flatnonzero(new > 0)
            spacings[rows, :-1] = spacings[rows, 1:]
            spacings[rows, -1] = new[rows]
        return Rhythm(self.first_s, np.where(seen, self.last_s, before.last_s), spacings)

    def intervals(self) -> Floats:
        """The usual spacing [gpu], NaN where too few are known."""
        known = np.count_nonzero(~np.isnan(self.spacings), axis=1)
        return np.where(known >= ENOUGH - 1, _lower_quartile(self.spacings, known), np.nan)


def intervals(times_s: Floats, counts: NDArray[np.int64]) -> Floats:
    """Usual spacing of each series' samples [series], NaN for fewer than ENOUGH samples.

    The lower quartile of some places: a missed scrape can only make a spacing longer.
    """
    found = np.full(len(counts), np.nan)
    enough = np.flatnonzero(counts >= ENOUGH)
    first, places = (np.cumsum(counts) - counts)[enough], np.linspace(0.0, 1.0, _SPACINGS_LOOKED_AT)
    at = first[:, None] + np.floor(places * (counts[enough] - 2)[:, None]).astype(np.int64)
    if len(enough):
        found[enough] = _lower_quartile(times_s[at + 1] - times_s[at], np.full(len(enough), len(places)))
    return found


def _lower_quartile(values: Floats, known: NDArray[np.intp]) -> Floats:
    """Of the first `known` of each sorted row; NaN is sorted last."""
    place = np.maximum(known - 1, 0) // 4
    quartile: Floats = np.take_along_axis(np.sort(values, axis=1), place[:, None], axis=1)[:, 0]
    return quartile


def held_for(interval_s: Floats, step_s: float) -> Floats:
    """How long the samples of GPUs with these intervals are believed [gpu]; 0: no longer than their column."""
    slow = interval_s > _FINER * step_s
    return np.where(slow, _LATE * np.minimum(interval_s, LONGEST_HELD_S), 0.0)


def hold(grid: Floats, grid_s: Floats, held_s: Floats, before: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Fill `grid` [gpu, time] where the newest earlier sample is not too old yet; returns the last samples and their
    times [gpu].

    A sample counts as old as the end of its column. A missed scrape may be hidden for one column.
    """
    rows = np.flatnonzero(held_s > 0)
    last, last_s = np.full(len(grid), np.nan), np.full(len(grid), -np.inf)
    if not len(rows) or not grid.shape[1]:
        return last, last_s
    part = grid[rows]
    column = np.arange(part.shape[1])
    newest = np.maximum.accumulate(np.where(np.isnan(part), -1, column), axis=1)
    value = np.take_along_axis(part, np.maximum(newest, 0), axis=1)
    at_s = np.where(newest >= 0, grid_s[np.maximum(newest, 0)], -np.inf)
    if before is not None:
        value = np.where(newest >= 0, value, before[0][rows, None])
        at_s = np.where(newest >= 0, at_s, before[1][rows, None])
    believed = grid_s - at_s < held_s[rows, None]
    last[rows], last_s[rows] = value[:, -1], at_s[:, -1]
    grid[rows] = np.where(np.isnan(part) & believed, value, part)
    return last, last_s


def frozen(
    energy: Floats, power: Floats | None, grid_s: Floats, before: tuple[Floats, Floats] | None
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Where the energy counter has stood still too long though power was drawn [gpu, time]; and its last value and
    since when it has that value [gpu]. before: those two at the end of the grid that this one continues.

    A standstill counts from its second column on. Without a power reading nothing is frozen, nor where one of them is
    too low: a board that is switched off uses no energy.
    """
    count, width = energy.shape
    was, since = before if before is not None else (np.full(count, np.nan), np.full(count, np.nan))
    if not width:
        return np.zeros(energy.shape, bool), was, since
    known = ~np.isnan(energy)
    newest = np.maximum.accumulate(np.where(known, np.arange(width), -1), axis=1)
    filled = np.where(newest >= 0, np.take_along_axis(energy, np.maximum(newest, 0), axis=1), was[:, None])
    earlier = np.concatenate([was[:, None], filled[:, :-1]], axis=1)
    changed = known & (filled != earlier)
    at = np.maximum.accumulate(np.where(changed, np.arange(width), -1), axis=1)
    began = np.where(at >= 0, grid_s[np.maximum(at, 0)], since[:, None])
    still = known & (grid_s - began >= FROZEN_S)
    found = np.zeros(energy.shape, bool)
    if power is not None:
        rows = np.flatnonzero(still.any(axis=1))
        for block in np.split(rows, range(_BLOCK, len(rows), _BLOCK)):
            found[block] = _stood(changed[block], still[block], power[block], grid_s > began[block])
    return found, filled[:, -1], began[:, -1]


def _stood(
    changed: NDArray[np.bool_], still: NDArray[np.bool_], power: Floats, after: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Of runs of one value, which begin where it has `changed`, the columns `after` their first, if the run is `still`
    too long and draws power throughout; all [gpu, time]."""
    if not len(changed):
        return changed
    changed[:, 0] = True
    starts = np.flatnonzero(changed)
    lowest = np.fmin.reduceat(np.where(after, power, np.nan).reshape(-1), starts)  # NaN, without any: meets no limit
    long = np.logical_or.reduceat(still.reshape(-1), starts)
    with np.errstate(invalid="ignore"):
        stood = long & (lowest >= LOWEST_WATTS)
    found: NDArray[np.bool_] = after & np.repeat(stood, np.diff(np.append(starts, changed.size))).reshape(after.shape)
    return found


GAUGES = tuple(signal for signal in Signal if signal.kind == "gauge")
HELD = frozenset({*GAUGES, *STATES})
STALE = frozenset({*LIVENESS, Signal.MEMORY_TEMPERATURE, Signal.GPU_TEMPERATURE_MARGIN})
