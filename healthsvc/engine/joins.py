"""Days of the ledger put behind one another, and which day a part of the onset bins is of."""

from dataclasses import replace

import numpy as np

from healthsvc.features.daily import DAILY_FEATURES
from healthsvc.fleet import DAY_S, DailyLedger, Floats, GpuId, OnsetBins


def day_of(part: OnsetBins) -> int:
    """The day that a part is of; it holds at least one bin."""
    return int(part.start_s[0] // DAY_S)


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


def days_since(daily: DailyLedger, first_day: int) -> DailyLedger:
    """The days from `first_day` on, in order; the same object where that is all of them."""
    order = np.argsort(daily.days)
    keep = order[daily.days[order] >= first_day]
    if np.array_equal(keep, np.arange(len(daily.days))):
        return daily
    return replace(
        daily,
        days=daily.days[keep],
        features={name: values[:, keep] for name, values in daily.features.items()},
        exposure_h=daily.exposure_h[:, keep],
        completeness=daily.completeness[:, keep],
    )


def day_by_day(daily: DailyLedger) -> DailyLedger:
    """The same numbers with each day contiguous, so that joining another one is a block copy."""
    return replace(
        daily,
        features={name: np.asfortranarray(values) for name, values in daily.features.items()},
        exposure_h=np.asfortranarray(daily.exposure_h),
        completeness=np.asfortranarray(daily.completeness),
    )
