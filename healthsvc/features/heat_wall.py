"""Heat that holds the clocks down, by its signs: pinned at the limit, clock and power down, and busy all the while.

For GPUs whose exporter tells of no throttling at all, as with dcgm-exporter's default counters. Measured on a P100
without fans of its own: 79 to 80 C and not a degree more, three below its slowdown limit, the clock from 1328 down to
999 MHz, power from 230 down to 110 W, utilization 99 to 100 %. A power cap looks otherwise: power stays at its height.
"""

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import FleetWindow, Floats, Signal
from healthsvc.fleet.boards import MAX_OPERATING, SLOWDOWN, limit_in_force

NEAR_LIMIT_CELSIUS = 4.0
PINNED_CELSIUS = 2.0  # below the highest that it has shown
BUSY = 0.95
RUN = 3  # samples
CLOCK_DOWN, POWER_DOWN = 0.97, 0.9  # of the highest that it has shown while it was busy


def at_heat_wall(window: FleetWindow, rows: NDArray[np.intp] | slice) -> Floats:
    """Whole steps of three samples in a row or more that show all signs [row, time], in seconds; NaN where one of the
    four is not sampled, or the board's limit is neither reported nor known.

    Blind to throttling that is older than the window, whose heights it has not seen, and to a limit below the board's.
    An operator who lowers clocks or power within the window cools the GPU, which is then no longer pinned.
    """
    heat, clock = window.get(Signal.GPU_TEMPERATURE)[rows], window.get(Signal.SM_CLOCK)[rows]
    power, busy = window.get(Signal.POWER)[rows], window.get(Signal.GPU_UTILIZATION)[rows]
    known = ~(np.isnan(heat) | np.isnan(clock) | np.isnan(power) | np.isnan(busy))
    found: Floats = np.where(known, 0.0, np.nan).astype(np.float32)
    limit = _limit(window)[rows]
    found[np.isnan(limit)] = np.nan
    loaded = known & (busy >= BUSY)
    warm = np.flatnonzero(np.where(loaded, heat, -np.inf).max(axis=1, initial=-np.inf) >= limit - NEAR_LIMIT_CELSIUS)
    if not len(warm):  # few GPUs ever are
        return found
    heat, loaded = heat[warm], loaded[warm]
    height = np.where(loaded, heat, -np.inf).max(axis=1, keepdims=True)
    pinned = (heat >= height - PINNED_CELSIUS) & (heat >= limit[warm, None] - NEAR_LIMIT_CELSIUS)
    slow = _below_height(clock[warm], loaded, CLOCK_DOWN) & _below_height(power[warm], loaded, POWER_DOWN)
    found[warm] = np.where(_in_runs(loaded & pinned & slow), np.float32(window.step_s), found[warm])
    return found


def _limit(window: FleetWindow) -> NDArray[np.float64]:
    """The lower of the two limits at which clocks go down, in celsius [gpu]; NaN where neither is known."""
    operating = limit_in_force(window.last(Signal.GPU_MAX_OPERATING_LIMIT), window.gpus, MAX_OPERATING)
    return np.fmin(operating, limit_in_force(window.last(Signal.GPU_SLOWDOWN_LIMIT), window.gpus, SLOWDOWN))


def _in_runs(signs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Without runs shorter than RUN along time: power is a mean of some time and the clock is not, so that for a sample
    or two of a load that comes and goes both can be down."""
    if signs.shape[1] < RUN:
        return np.zeros_like(signs)
    whole = np.logical_and.reduce([signs[:, i : signs.shape[1] - RUN + 1 + i] for i in range(RUN)])
    kept = np.zeros_like(signs)
    for i in range(RUN):
        kept[:, i : signs.shape[1] - RUN + 1 + i] |= whole
    return kept


def _below_height(values: Floats, loaded: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Where a value is below this share of the row's highest under load [row, time]."""
    height = np.where(loaded, values, -np.inf).max(axis=1, keepdims=True)
    below: NDArray[np.bool_] = values < share * height
    return below
