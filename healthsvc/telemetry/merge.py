"""Samples of many series onto the grid, all series of a device merged, without a loop over samples."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.telemetry.catalogue import Merge
from healthsvc.telemetry.decode import Samples


def _last_in_column(
    samples: Samples, rows: NDArray[np.intp], times_s: NDArray[np.float64], step_s: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Row, column and position of each series' last sample in each column (t - step, t]."""
    series = np.repeat(np.arange(len(rows)), samples.counts)
    column = np.searchsorted(times_s, samples.times_s, side="left")
    kept = np.flatnonzero(
        (rows[series] >= 0)
        & (column < len(times_s))
        & (samples.times_s > times_s[0] - step_s)  # also drops what a closed window repeats at its start
        & ~np.isnan(samples.values)
    )
    cell = series[kept] * len(times_s) + column[kept]
    kept = kept[np.append(cell[1:] != cell[:-1], True)] if len(kept) else kept
    return rows[series[kept]], column[kept], kept


def merge_samples(
    out: NDArray[np.float64],
    samples: Samples,
    rows: NDArray[np.intp],
    times_s: NDArray[np.float64],
    step_s: float,
    merge: Merge,
) -> None:
    """Write `samples` (in base units, NaN = no sample) into `out` [row, time], columns `times_s`.

    rows[series] is the row that each series belongs to, -1: nobody's. A cell gets the largest, smallest or newest of
    its series' last samples; what `out` holds already takes part ("last": gives way).
    """
    row, column, kept = _last_in_column(samples, rows, times_s, step_s)
    if not len(kept):
        return
    present, local = np.unique(row, return_inverse=True)
    patch = np.full((len(present), len(times_s)), np.nan)
    flat, cell, values = patch.reshape(-1), local * len(times_s) + column, samples.values[kept]
    before = out[present]
    if merge == "last":
        newest_last = np.lexsort((values, samples.times_s[kept]))  # a cell written twice keeps the later write
        flat[cell[newest_last]] = values[newest_last]
        out[present] = np.where(np.isnan(patch), before, patch)
        return
    extreme = np.fmax if merge == "max" else np.fmin
    extreme.at(flat, cell, values)
    out[present] = extreme(before, patch)
