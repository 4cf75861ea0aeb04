"""Whether the days with errors come closer together: the power law of Crow and AMSAA.

Events of a process with intensity ~ t^(beta - 1): beta above 1 means that it gets worse, 1 that it stays, below 1 that
it gets better. What counts as an event is a day with any error, so that a stuck row which makes a million of them is
one event. Blind to a GPU with errors on nearly every day: its beta is 1 however many there are.
Source: Crow, Reliability analysis for complex, repairable systems (1974); MIL-HDBK-189C, time-truncated test.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from healthsvc.fleet import Floats

LEAST_DAYS = 5
LEVEL = 0.8
ROWS = 2048  # what fits the cache


@dataclass(frozen=True)
class Growth:
    """exponent, low, high [gpu]: beta and its 80 % interval, NaN with fewer than 5 error-days; days [gpu]: how many
    there were, NaN where nothing was observed."""

    exponent: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    days: NDArray[np.float64]


def fit_growth(counts: Floats, exposure: Floats, level: float = LEVEL) -> Growth:
    """counts, exposure [gpu, day], NaN = not observed; the clock runs only while the GPU is observed.

    beta = n / sum ln(T / t_k), with t_k the middle of an error-day; 2 n beta_true / beta is chi-square with 2 n degrees
    of freedom.
    """
    seen = ~np.isnan(counts) & (exposure > 0)
    struck = seen & (counts > 0)
    days = struck.sum(axis=1).astype(np.float64)
    exponent = np.full(days.shape, np.nan)
    enough = np.flatnonzero(days >= LEAST_DAYS)
    for first in range(0, len(enough), ROWS):
        rows = enough[first : first + ROWS]
        clock = np.where(seen[rows], exposure[rows], 0.0).astype(np.float64)
        middle = np.cumsum(clock, axis=1) - clock / 2.0
        at = np.where(struck[rows], middle / clock.sum(axis=1)[:, None], 1.0)
        exponent[rows] = days[rows] / -np.sum(np.log(at), axis=1)
    n = np.maximum(days, 1.0)
    tail = (1.0 - level) / 2.0
    most = np.arange(1.0, n.max(initial=1.0) + 1.0)
    low, high = (exponent * (gammaincinv(most, q) / most)[n.astype(np.intp) - 1] for q in (tail, 1.0 - tail))
    return Growth(exponent, low, high, np.where(seen.any(axis=1), days, np.nan))
