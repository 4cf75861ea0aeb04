"""XIDs to the grid: which code is shown in which column, so that every new one is seen as a change.

The gauge holds the last XID. Where err_code is a label, every code is a series of its own, and an old one may still be
stored beside the new one; the column shows the one that was born last. Two that are born in one column are shown one
after the other: a column has room for one. The exporters' own counts tell repeats: their grid shows a code where its
count rose, and 0 elsewhere. Until a code's first count it may have no series, so one that is born has risen from zero,
also across the seam of two reads.
Sources: dcgm-exporter gpu_collector.go, expcollector.go; nvidia_gpu_exporter METRICS.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.telemetry.catalogue import GPU_ROWS, Row
from healthsvc.telemetry.catalogue.rows import Counts
from healthsvc.telemetry.framing.merge import last_in_column, merge_samples

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Totals = dict[tuple[str, int], float]  # (device_id, code) -> count
_COUNTING = tuple(row for row in GPU_ROWS if row.code_label)


def several_codes(values: Floats, counts: NDArray[np.int64], rows: Rows) -> NDArray[np.bool_]:
    """The series [series] of rows in which several steady series differ: each is one code, as the err_code label does.

    A series whose value changes is a gauge without that label, and says by itself what came when.
    """
    steady, level = np.zeros(len(counts), bool), np.full(len(counts), np.nan)
    some = np.flatnonzero(counts > 0)
    if len(some):
        starts = (np.cumsum(counts) - counts)[some]
        level[some] = np.fmax.reduceat(values, starts)
        steady[some] = np.fmin.reduceat(values, starts) == level[some]
    size = int(rows.max(initial=-1)) + 1
    high, low = np.full(size, -np.inf), np.full(size, np.inf)
    np.fmax.at(high, rows, level)
    np.fmin.at(low, rows, level)
    restless = np.zeros(size, bool)
    restless[rows[~steady & (counts > 0)]] = True
    apart = (high > low) & ~restless
    found: NDArray[np.bool_] = apart[rows]
    return found


def show_newborn(
    out: Floats,
    values: Floats,
    column: NDArray[np.int64],
    times_s: Floats,
    series: Rows,
    rows: Rows,
    columns: slice,
) -> None:
    """Write the codes of rows with several of them into `out` [row, time]: in each column the one born last.

    series[sample], rows[series]. What was there from the first column on is as old as the other; there the newest
    sample counts.
    """
    first, last = columns.start or 0, columns.stop
    width = last - first
    kept = last_in_column(values, column, series, width)
    owner, code, at, time_s = rows[series[kept]], values[kept], column[kept], times_s[kept]
    for row in np.unique(owner).tolist():  # few: GPUs with XIDs of several kinds
        mine = owner == row
        own, where, when = code[mine], at[mine], time_s[mine]
        shown = np.full(width, np.nan)
        order = np.lexsort((own, when))
        shown[where[order]] = own[order]  # the newest sample of each column
        births = sorted((float(when[own == each].min()), float(each)) for each in np.unique(own))
        born_at = {each: int(where[own == each].min()) for _, each in births}
        for _, each in births:  # later ones cover earlier ones as long as they are there
            if born_at[each] > 0:
                shown[where[own == each]] = each
        busy = -1
        for _, each in births:
            if born_at[each] <= 0:
                continue
            place = max(born_at[each], busy + 1)
            if place >= width:
                break
            if place > busy:
                shown[place], busy = each, place
        out[row, first:last] = np.where(np.isnan(shown), out[row, first:last], shown)


@dataclass
class CodeCounts:
    """Counts by (row of the grid, code), all series of a pair merged: what a code_label metric gives.

    lines[pair]: float64[time], NaN = no sample.
    """

    width: int
    lines: dict[tuple[int, int], Floats] = field(default_factory=dict)

    def add(
        self,
        values: Floats,
        times_s: Floats,
        counts: NDArray[np.int64],
        rows: Rows,
        codes: Rows,
        columns: slice,
        grid_s: Floats,
        step_s: float,
    ) -> None:
        """Samples of series [series] that belong to these rows and codes; the larger of two counts stays."""
        pairs = sorted(set(zip(rows.tolist(), codes.tolist(), strict=True)))
        number = {pair: i for i, pair in enumerate(pairs)}
        part = np.full((len(pairs), self.width), np.nan)
        lines = np.array([number[pair] for pair in zip(rows.tolist(), codes.tolist(), strict=True)], np.intp)
        merge_samples(part, values, times_s, counts, lines, columns, grid_s, step_s, "max", False)
        for pair, line in zip(pairs, part, strict=True):
            known = self.lines.get(pair)
            self.lines[pair] = line if known is None else np.fmax(known, line)

    def grid(
        self,
        kind: Counts,
        devices: tuple[str, ...],
        before: Mapping[tuple[str, int], float] | None,
        alive: NDArray[np.bool_] | None = None,
    ) -> tuple[Floats, Totals]:
        """Codes where their count rose, 0 where it is known that none did [row, time]; and the last counts.

        before: the last counts of the grid that this one continues; without one the first count of a code is not
        known to be new in the first column. alive [row, time]: where a sliding count without a sample is 0. Blind to a
        total that begins anew and is as high as before at its next sample.
        """
        out = np.full((len(devices), self.width), np.nan)
        last: Totals = went_quiet(kind, before or {}, devices, alive)
        news: dict[int, list[tuple[int, int]]] = {}
        for (row, code), line in self.lines.items():
            told = np.flatnonzero(~np.isnan(line))
            if not len(told):
                continue
            out[row, told] = 0.0
            if kind == "window" and alive is not None:
                line = np.where(np.isnan(line) & alive[row], 0.0, line)
            known = np.flatnonzero(~np.isnan(line))
            counts = line[known]
            own = (before or {}).get((devices[row], code), 0.0 if before is not None else np.nan)
            previous = np.append(own, counts[:-1])
            if np.isnan(own) and known[0] > 0:
                previous[0] = 0.0  # its series was born here
            rose = counts > previous
            if kind == "total":  # counted anew since the exporter's start
                rose |= (counts < previous) & (counts > 0)
            last[devices[row], code] = float(counts[-1])
            if code > 0:
                news.setdefault(row, []).extend((int(k), code) for k in known[rose])
        for row, events in news.items():
            _lay_out(out[row], sorted(events))
        return out, last


def went_quiet(
    kind: Counts, before: Mapping[tuple[str, int], float], devices: tuple[str, ...], alive: NDArray[np.bool_] | None
) -> Totals:
    """The last counts `before` without those that may have slid out of their window: whoever is alive and shows no
    count has none. Totals stay."""
    if kind != "window" or alive is None or not before:
        return dict(before)
    living = {devices[row] for row in np.flatnonzero(alive.any(axis=1)).tolist()}
    return {(device, code): count for (device, code), count in before.items() if device not in living}


def count_codes(
    codes: Mapping[Row, CodeCounts],
    devices: tuple[str, ...],
    before: Mapping[str, Totals] | None,
    alive: NDArray[np.bool_] | None,
    partial: bool,
) -> tuple[Floats | None, dict[str, Totals]]:
    """The grids of all metrics that count codes as one, the first in `codes` first; and, by metric in small letters,
    the last counts, which the next read has to know `before` it.

    A metric without series has counted nothing yet, unless the read is partial: then an old count may only be missing,
    and would look new in the next read.
    """
    shown: Floats | None = None
    last: dict[str, Totals] = {}
    for row, counted in codes.items():
        name = row.metric.lower()
        grid, totals = counted.grid(row.counts, devices, before.get(name) if before is not None else None, alive)
        last[name] = last.get(name, {}) | totals
        shown = grid if shown is None else filled(shown, grid)
    for row in _COUNTING:
        name = row.metric.lower()
        known = before.get(name) if before is not None else None
        if partial and known is None:
            last.pop(name, None)
        elif name not in last:
            last[name] = went_quiet(row.counts, known or {}, devices, alive)
    return shown, last


def filled(first: Floats, second: Floats) -> Floats:
    """XIDs of two metrics: where the first has nothing yet, the second."""
    return np.where(np.logical_or.accumulate(~np.isnan(first), axis=1), first, second)


def behind_counts(counts: Floats | None, gauge: Floats, sticks: Floats) -> tuple[Floats, Floats]:
    """The gauge [row, time] where it has something to add to `counts`, which stand elsewhere; and what sticks [row].

    Once there are counts the gauge, which shows an old code for ever, has nothing to add. In a later read without
    counts it again has nothing to add until it shows another code than the one that stuck in it; 0 until then.
    """
    known = ~np.isnan(gauge)
    same = np.logical_and.accumulate(~known | (gauge == sticks[:, None]), axis=1)
    shown = np.where(known & same, 0.0, gauge)
    newest = gauge.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    value = np.where(known.any(axis=1), gauge[np.arange(len(gauge)), newest], sticks)
    still = np.where(same[:, -1], sticks, np.nan)
    if counts is None:
        return shown, still
    counted = np.logical_or.accumulate(~np.isnan(counts), axis=1)
    return np.where(counted, counts, shown), np.where(counted[:, -1], value, still)


def _lay_out(line: Floats, events: list[tuple[int, int]]) -> None:
    """Write each (column, code) into `line`, later where the column is taken or would hide that the code came again."""
    busy, shown = -1, 0
    for column, code in events:
        place = max(column, busy + 1)
        if code == shown and place == busy + 1 and busy >= 0:
            place += 1
        if place >= len(line):
            return
        if code == shown:
            line[place - 1] = 0.0
        line[place], busy, shown = code, place, code
