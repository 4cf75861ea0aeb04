"""Samples of many series onto the grid, all series of a device merged, without a loop over samples."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.telemetry.catalogue.rows import Merge

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Rows = NDArray[np.intp]
_FARTHEST = 2.0**40  # columns; times that are farther away do not fit into an integer


def columns_of(times_s: Floats, grid_s: Floats, step_s: float) -> NDArray[np.int64]:
    """The column (t - step, t] of each sample; below 0 or beyond the last one: outside the grid."""
    position = times_s - grid_s[0]
    position /= step_s
    np.ceil(position, out=position)
    if len(position) and (position.max() > _FARTHEST or position.min() < -_FARTHEST):
        np.clip(position, -_FARTHEST, _FARTHEST, out=position)
    column: NDArray[np.int64] = position.astype(np.int64)
    return column


def last_in_column(values: Floats, column: NDArray[np.int64], series: Rows, columns: int) -> NDArray[np.intp]:
    """Positions of each series' last sample in each column of the grid; NaN is no sample."""
    kept = np.flatnonzero((column >= 0) & (column < columns) & ~np.isnan(values))
    cell = series[kept] * columns + column[kept]
    return kept[np.append(cell[1:] != cell[:-1], True)] if len(kept) else kept


def merge_samples(
    out: Floats,
    values: Floats,
    times_s: Floats,
    counts: Counts,
    rows: Rows,
    columns: slice,
    grid_s: Floats,
    step_s: float,
    merge: Merge,
    fresh: bool,
) -> None:
    """Write samples (in base units, NaN = no sample) into `out` [row, time], its `columns`.

    rows[series] is the row that each series belongs to. A cell gets the largest, smallest or newest of its series' last
    samples; what `out` holds already takes part ("last": gives way). grid_s: the times of those columns. fresh: `out`
    holds nothing in those rows and columns.
    """
    if not len(values):
        return
    width, first = len(grid_s), columns.start or 0
    column = columns_of(times_s, grid_s, step_s)
    if fresh and np.bincount(rows).max() <= 1:
        # One series a row: a column's later sample overwrites its earlier one, as it should.
        cell = np.repeat(rows * out.shape[1] + first, counts)
        cell += column
        usable = _usable(values, column, width)
        if usable is not None:
            cell, values = cell[usable], values[usable]
        out.reshape(-1)[cell] = values
        return
    series = np.repeat(np.arange(len(rows)), counts)
    kept = last_in_column(values, column, series, width)
    if not len(kept):
        return
    present, local = np.unique(rows[series[kept]], return_inverse=True)
    patch = np.full((len(present), width), np.nan)
    flat, cell, values = patch.reshape(-1), local * width + column[kept], values[kept]
    before = out[present, first : first + width]
    if merge == "last":
        newest_last = np.lexsort((values, times_s[kept]))  # a cell written twice keeps the later write
        flat[cell[newest_last]] = values[newest_last]
        out[present, first : first + width] = np.where(np.isnan(patch), before, patch)
        return
    extreme = np.fmax if merge == "max" else np.fmin
    extreme.at(flat, cell, values)
    out[present, first : first + width] = extreme(before, patch)


def _usable(values: Floats, column: NDArray[np.int64], width: int) -> NDArray[np.bool_] | None:
    """Which samples are some and lie on the grid; None: all of them."""
    inside = column.min() >= 0 and column.max() < width
    if inside and not np.isnan(values.min()):
        return None
    return (column >= 0) & (column < width) & ~np.isnan(values)
