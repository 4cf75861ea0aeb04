"""Days whose source said that something was missing: marked where they are read, and left out where we learn.

A partial answer lacks series without saying which, so a GPU that is merely not in it looks lost. Such a day is scored
by, because an operator would rather see half than nothing; its ledger file says that it is not complete, so it is read
again (at a restart, and for RETRIED_DAYS at every midnight); and training sees it as a day without telemetry.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from healthsvc.engine.joins import day_of
from healthsvc.fleet import DAY_S, FleetHistory
from healthsvc.telemetry.source import RawGrid

RETRIED_DAYS = 7  # a store that stays broken for longer is not asked for the same day every night


def partial_days(raw: RawGrid) -> frozenset[int]:
    """The days that the columns of an incomplete read lie in; none if it was complete."""
    if not raw.incomplete or not len(raw.times_s):
        return frozenset()
    # A column stands for the step before it: midnight belongs to the day that ends.
    return frozenset(np.unique((raw.times_s - 1.0) // DAY_S).astype(int).tolist())


def without_days(history: FleetHistory, days: Collection[int]) -> FleetHistory:
    """The history as if nobody had looked on `days`: no features, no exposure, no event that began there, no bins.

    The recent window is left as it is: learning takes from it which signals a GPU has, no level and no rate.
    """
    daily, events = history.daily, history.events
    refused = np.isin(daily.days, list(days))
    began = np.isin(np.floor(events.start_s / DAY_S), list(days))
    parts = tuple(part for part in history.onset_bins if day_of(part) not in days)
    if not refused.any() and not began.any() and len(parts) == len(history.onset_bins):
        return history
    features = {name: np.where(refused, np.nan, values).astype(values.dtype) for name, values in daily.features.items()}
    exposure_h = np.where(refused, 0, daily.exposure_h).astype(daily.exposure_h.dtype)
    completeness = np.where(refused, 0, daily.completeness).astype(daily.completeness.dtype)
    daily = replace(daily, features=features, exposure_h=exposure_h, completeness=completeness)
    return replace(history, daily=daily, events=events.where(~began), onset_bins=parts)
