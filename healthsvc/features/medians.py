"""Medians and quantiles that skip NaN, over an axis or over groups of rows. No warnings, no Python loop over rows."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import Floats


def nan_quantile(values: Floats, q: float) -> Floats:
    """Quantile along the last axis, skipping NaN; NaN where nothing was observed. Linear between order statistics."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan, values.dtype)
    ordered = np.sort(values, axis=-1)  # NaN sorts last
    count = np.sum(~np.isnan(values), axis=-1)
    position = np.maximum(count - 1, 0) * q
    low = np.floor(position).astype(np.intp)
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    weight = (position - low).astype(values.dtype)
    at_low = np.take_along_axis(ordered, low[..., None], axis=-1)[..., 0]
    at_high = np.take_along_axis(ordered, high[..., None], axis=-1)[..., 0]
    found: Floats = np.where(count > 0, at_low + weight * (at_high - at_low), np.nan).astype(values.dtype)
    return found


def nan_median(values: Floats) -> Floats:
    """Median along the last axis, skipping NaN."""
    return nan_quantile(values, 0.5)


def nan_mean(values: Floats) -> Floats:
    """Mean along the last axis, skipping NaN; NaN where nothing was observed."""
    seen = ~np.isnan(values)
    total = np.sum(np.where(seen, values, 0.0), axis=-1, dtype=np.float64)
    count = np.sum(seen, axis=-1, dtype=np.float64)
    mean: Floats = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return mean


def nan_last(values: Floats) -> Floats:
    """Newest observed value along the last axis; NaN if there is none."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan, values.dtype)
    seen = ~np.isnan(values)
    position = values.shape[-1] - 1 - np.argmax(seen[..., ::-1], axis=-1)
    latest: Floats = np.take_along_axis(values, position[..., None], axis=-1)[..., 0]
    return latest


def nan_sum(values: Floats) -> NDArray[np.float64]:
    """Sum along the last axis in float64, NaN where nothing was observed (an unobserved count is not zero)."""
    seen = ~np.isnan(values)
    total = np.sum(np.where(seen, values, 0.0), axis=-1, dtype=np.float64)
    return np.where(seen.any(axis=-1), total, np.nan)


def nan_max(values: Floats) -> Floats:
    """Largest observed value along the last axis; NaN if there is none."""
    seen = ~np.isnan(values)
    largest = np.max(np.where(seen, values, -np.inf), axis=-1, initial=-np.inf)
    peak: Floats = np.where(seen.any(axis=-1), largest, np.nan).astype(values.dtype)
    return peak


def group_rows(groups: NDArray[np.int32]) -> NDArray[np.intp]:
    """Rows of each group, [group, largest size], padded with -1; rows of unknown group (-1) appear nowhere."""
    count = int(groups.max(initial=-1)) + 1
    order = np.argsort(groups, kind="stable")
    order = order[groups[order] >= 0]
    sizes = np.bincount(groups[order], minlength=count) if count else np.zeros(0, np.intp)
    starts = np.cumsum(sizes) - sizes
    table = np.full((count, int(sizes.max(initial=0))), -1, np.intp)
    table[groups[order], np.arange(len(order)) - np.repeat(starts, sizes)] = order
    return table


def group_median(values: Floats, groups: NDArray[np.int32], at_least: int = 1) -> Floats:
    """Each row's group median [row, column], skipping NaN; NaN below `at_least` observed members or without a group."""
    table = group_rows(groups)
    if not table.size:
        return np.full_like(values, np.nan)
    members = values[np.maximum(table, 0)]  # [group, member, column]
    members = np.where((table >= 0)[:, :, None], members, np.nan)
    enough = np.sum(~np.isnan(members), axis=1) >= at_least
    middle = np.where(enough, nan_median(np.moveaxis(members, 1, -1)), np.nan)
    spread: Floats = np.where((groups >= 0)[:, None], middle[np.maximum(groups, 0)], np.nan).astype(values.dtype)
    return spread


def group_count(flags: NDArray[np.bool_], groups: NDArray[np.int32]) -> NDArray[np.int64]:
    """How many members of each row's group are flagged, itself included: [row] or [row, column]; 0 without a group."""
    count = int(groups.max(initial=-1)) + 1
    known = groups >= 0
    totals = np.zeros((count + 1, *flags.shape[1:]), np.int64)
    np.add.at(totals, groups[known], flags[known])
    totals[count] = 0
    return totals[np.where(known, groups, count)]
