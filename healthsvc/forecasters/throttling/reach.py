"""When a failing that goes on reaches the members of a domain, in closed form: what picks the domains to simulate.

A failing that has lasted d lasts r longer with probability (d / (d + r))^a, the same for all members. So at least k
members are reached within a horizon if it lasts until the k-th of them is.
"""

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import LEAST_MEMBERS
from healthsvc.forecasters.throttling.heat_path import LAG_S, HeatPath

Numbers = NDArray[np.float64]
LEAST_PACE_PER_S = 1e-9  # of rise: ten thousandths a day are standing still


def needed_s(path: HeatPath, margin_celsius: Numbers) -> Numbers:
    """How much longer it has to go on until each GPU is at its limit [..., gpu], margin_celsius [..., gpu]; inf where
    nothing rises or no limit is known. The resistance counts `LAG_S` ahead: that much temperature has not shown yet."""
    rise = np.maximum(path.rise_celsius, 1.0)
    pace = path.rate_per_s + path.warming_celsius_per_s / rise
    left = np.log1p(np.maximum(margin_celsius, 0.0) / rise)
    known = (pace > LEAST_PACE_PER_S) & ~np.isnan(margin_celsius)
    lag = np.where(path.rate_per_s > 0, LAG_S, 0.0)
    return np.where(known, np.maximum(left / np.where(known, pace, 1.0) - lag, 0.0), np.inf)


def reached(
    table: NDArray[np.intp],
    hot: NDArray[np.bool_],
    path: HeatPath,
    needed: Numbers,
    horizons_s: tuple[float, ...],
    goes_on: float,
) -> Numbers:
    """P(at least k members throttle) [domain, k, horizon] for k = 1..3, of those that throttle now and those that the
    failing reaches; table [domain, member] of rows, -1 where there is none."""
    member = table >= 0
    wait = np.where(member, np.where(hot[table], 0.0, needed[table]), np.inf)
    order = np.argsort(wait, axis=1)[:, :LEAST_MEMBERS]
    wait = np.take_along_axis(wait, order, axis=1)
    age = np.take_along_axis(path.age_s[table], order, axis=1)
    with np.errstate(invalid="ignore"):
        lasts = np.where(np.isinf(wait), 0.0, (age / (age + np.where(np.isinf(wait), 0.0, wait))) ** goes_on)
    within = wait[:, :, None] <= np.array(horizons_s)
    return np.asarray(np.minimum.accumulate(lasts, axis=1)[:, :, None] * within)
