"""XIDs to the grid: which code is shown in which column, so that every new one is seen as a change.

The gauge holds the last XID. Where err_code is a label, every code is a series of its own, and an old one may still be
stored beside the new one; the column shows the one that was born last. Two that are born in one column are shown one
after the other: a column has room for one. The exporters' own counts tell repeats: their grid shows a code where its
count rose, and 0 elsewhere.
Sources: dcgm-exporter gpu_collector.go, expcollector.go; nvidia_gpu_exporter METRICS.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.telemetry.catalogue.rows import Counts
from healthsvc.telemetry.framing.merge import last_in_column, merge_samples

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


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
        self, kind: Counts, devices: tuple[str, ...], before: Mapping[tuple[str, int], float] | None
    ) -> tuple[Floats, dict[tuple[str, int], float]]:
        """Codes where their count rose, 0 where it is known that none did [row, time]; and the last counts.

        before: the last counts of the grid that this one continues; without one the first count of a code is not
        known to be new in the first column.
        """
        out = np.full((len(devices), self.width), np.nan)
        last: dict[tuple[str, int], float] = dict(before or {})
        news: dict[int, list[tuple[int, int]]] = {}
        for (row, code), line in self.lines.items():
            known = np.flatnonzero(~np.isnan(line))
            if not len(known):
                continue
            out[row, known] = 0.0
            counts = line[known]
            own = last.get((devices[row], code), 0.0 if before is not None else np.nan)
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
