"""Parts of the memory put behind one another: days of the ledger, columns of the environment."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from healthsvc.features.daily import DAILY_FEATURES
from healthsvc.fleet import DailyLedger, Floats, GpuId, PlaceSeries, Signal, align_rows


def empty_ledger(gpus: tuple[GpuId, ...] = ()) -> DailyLedger:
    """A ledger without a day."""
    none = np.zeros((len(gpus), 0), np.float32)
    return DailyLedger(gpus, np.zeros(0, np.int64), dict.fromkeys(DAILY_FEATURES, none), none, none)


def joined_days(before: DailyLedger, after: DailyLedger) -> DailyLedger:
    """Two ledgers of the same GPUs, one behind the other; days of `after` replace equal ones."""
    keep = ~np.isin(before.days, after.days)

    def joined(old: Floats, new: Floats) -> Floats:
        return np.concatenate([old if keep.all() else old[:, keep], new], axis=1)

    return DailyLedger(
        after.gpus,
        np.concatenate([before.days[keep], after.days]),
        {name: joined(before.get(name), after.get(name)) for name in DAILY_FEATURES},
        joined(before.exposure_h, after.exposure_h),
        joined(before.completeness, after.completeness),
        after.unfinished,
    )


def day_by_day(daily: DailyLedger) -> DailyLedger:
    """The same numbers with each day contiguous, so that joining another one is a block copy."""
    return replace(
        daily,
        features={name: np.asfortranarray(values) for name, values in daily.features.items()},
        exposure_h=np.asfortranarray(daily.exposure_h),
        completeness=np.asfortranarray(daily.completeness),
    )


def joined_places(
    before: Mapping[Signal, PlaceSeries], after: Mapping[Signal, PlaceSeries], columns: int, fresh: int
) -> dict[Signal, PlaceSeries]:
    """Environment series one behind the other, the newest `columns` kept; a place that one part lacks is NaN there.

    fresh: columns of `after`, which may hold no series at all.
    """
    found: dict[Signal, PlaceSeries] = {}
    for signal in {*before, *after}:
        parts = [part[signal] for part in (before, after) if signal in part]
        names = tuple(sorted({name for part in parts for name in part.names}))
        blocks = []
        for part, width in ((before, columns), (after, fresh)):
            other = next(iter(part.values()), None)
            width = other.values.shape[1] if other is not None else width
            series = part.get(signal)
            if series is None:
                blocks.append(np.full((len(names), width), np.nan, np.float32))
                continue
            number = {name: row for row, name in enumerate(series.names)}
            rows = np.array([number.get(name, -1) for name in names], np.intp)
            blocks.append(align_rows(series.values.astype(np.float32), rows))
        found[signal] = PlaceSeries(parts[-1].layer, names, np.concatenate(blocks, axis=1)[:, -columns:])
    return found
