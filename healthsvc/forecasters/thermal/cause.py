"""The signature of a rise: who shares it, whether memory follows, whether it was one step (one cause a GPU)."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.medians import nan_median
from healthsvc.features.resistance import PEERS, Shifts, attribute, split_shifts
from healthsvc.fleet import DailyLedger, Topology
from healthsvc.fleet.causes import ThermalCause
from healthsvc.forecasters.thermal.path import PathFound

Numbers = NDArray[np.float64]
RECENT_DAYS, NORMAL_DAYS = 3, 14  # what holds now, against the days before
CLEAR_DRIFT_P = 0.5
MEMORY_FOLLOWS = 0.5  # share of the die's rise from which the memory's says that the plate is common to both
STEP_LEAD = 9.0  # by how much z^2 of one step must exceed that of the best drift


def place_shifts(daily: DailyLedger, topology: Topology, similar: NDArray[np.bool_]) -> tuple[Shifts, Numbers]:
    """Log R of the last 3 days above that of the 14 before, by level; and the rise of the inlet in celsius [gpu].

    similar bool[gpu, day]: days of like load and inlet, which alone are compared: fans that slow down when a cap begins
    or a warm week ends raise R as a failed fan does. So blind in the days after load or weather has turned.
    """
    log_r = np.where(similar, daily.get("gpu_log_resistance"), np.nan)
    inlet = daily.get("inlet_q95_celsius")
    recent, before = slice(-RECENT_DAYS, None), slice(-RECENT_DAYS - NORMAL_DAYS, -RECENT_DAYS)
    excess = nan_median(log_r[:, recent]) - nan_median(log_r[:, before])
    rise = nan_median(inlet[:, recent]) - nan_median(inlet[:, before])
    return split_shifts(excess.astype(np.float64), topology), rise.astype(np.float64)


def cause_of(
    die: PathFound,
    memory: PathFound,
    memory_ratio: Numbers,
    shifts: Shifts,
    inlet_rise: Numbers,
    blind: NDArray[np.bool_],
) -> NDArray[np.int8]:
    """A ThermalCause for each GPU [gpu]; NONE where nothing stands out. What more GPUs share outranks what fewer do.

    memory_ratio: log R of the memory against peers [gpu, day]; all NaN where there is no sensor. shifts, inlet_rise,
    blind: as `attribute` takes them.
    """
    cause = np.full(len(die.z), ThermalCause.NONE, np.int8)
    drifts = die.drift_p >= CLEAR_DRIFT_P
    memory_rise = _rise(memory_ratio, die.onset)
    share = memory_rise / np.maximum(die.excess, 1e-6)
    cause[drifts] = ThermalCause.THERMAL_PATH
    cause[drifts & (share < MEMORY_FOLLOWS)] = ThermalCause.INTERFACE
    cause[(drifts & (share >= MEMORY_FOLLOWS)) | (memory.drift_p >= CLEAR_DRIFT_P)] = ThermalCause.COLD_PLATE
    stepped = die.step_z**2 > np.maximum(die.z, 0.0) ** 2 + STEP_LEAD
    cause[drifts & stepped & ~(share >= MEMORY_FOLLOWS)] = ThermalCause.SENSOR
    return attribute(shifts, inlet_rise, cause, blind)


def _rise(ratio: Numbers, onset: Numbers) -> Numbers:
    """Median of the last days less that of the days before `onset` [gpu]; NaN without either."""
    column = np.arange(ratio.shape[1])[None, :]
    before = np.where(column < onset[:, None], ratio, np.nan)
    enough = np.sum(~np.isnan(before), axis=1) >= PEERS
    return np.where(enough, nan_median(ratio[:, -2 * RECENT_DAYS :]) - nan_median(before), np.nan)
