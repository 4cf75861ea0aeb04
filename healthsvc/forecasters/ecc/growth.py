"""Whether a GPU's days with correctable errors come closer together, from the ledger's finished days."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.growth import LEAST_DAYS, fit_growth
from healthsvc.fleet import DailyLedger

GROWTH = ("exponent", "low", "high", "days")


def growth_arrays(daily: DailyLedger) -> dict[str, NDArray[np.float64]]:
    """exponent with its 80 % interval, and error-days of the ledger, each [gpu]: NaN exponent below 5 error-days."""
    finished = len(daily.days) - int(daily.unfinished)
    found = fit_growth(daily.get("sbe_errors")[:, :finished], daily.exposure_h[:, :finished])
    return {name: getattr(found, name) for name in GROWTH}


__all__ = ["GROWTH", "LEAST_DAYS", "growth_arrays"]
