"""How far memory is from having no spare row left, and when it would be there.

Row remapping repairs up to 8 uncorrectable rows of a bank and 512 of a GPU; the attempt after that fails and is
terminal (NVIDIA GPU memory error management, Ampere and later). Which bank a row belongs to is not exported, so what is
told is the worst case, that all rows of the ledger's days were of one bank. Blind to rows remapped before it begins.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from healthsvc.features.medians import nan_sum
from healthsvc.fleet import DAY_S, QUANTILES, FleetHistory, Signal
from healthsvc.fleet.meaning import ROWS_A_BANK

Numbers = NDArray[np.float64]

LONGEST_DAYS = 180
AHEAD_S = np.arange(1.0, LONGEST_DAYS + 1.0) * DAY_S


def spares_at_worst(history: FleetHistory) -> Numbers:
    """Spare rows left in the fullest bank [gpu], if every row remapped in the ledger's days was of that bank.

    NaN where remaps are not exported; 0 once a bank reports none or a remap has failed, and 1 at least where the banks
    are exported and none of them is without.
    """
    remaps = history.daily.get("uncorrectable_remaps_rows")
    rows = nan_sum(remaps) if remaps.shape[1] else np.full(len(remaps), np.nan)
    recent = history.recent
    without = recent.last(Signal.BANKS_NONE)
    left = np.maximum(ROWS_A_BANK - rows, np.where(without == 0, 1.0, 0.0))
    return np.where((without >= 1) | (recent.last(Signal.REMAP_FAILURE) >= 1), 0.0, left)


def time_to_exhaustion_s(
    left: Numbers, expected: Callable[[NDArray[np.intp], tuple[float, ...]], Numbers]
) -> NDArray[np.float32]:
    """When the spares of the worst case are used up [gpu, quantile]; NaN: not within 180 days, or no row was remapped,
    or at worst none is left already, which is no time.

    left: spares_at_worst; expected(rows, ahead_s): uncorrectable events expected within each time ahead [row, time].
    The n-th event of a Poisson process with that mean comes before t with probability gammainc(n, mean(t)). Blind to
    the events that the coming ones will excite: the true time is rather shorter.
    """
    found = np.full((len(left), len(QUANTILES)), np.nan, np.float32)
    worn = np.flatnonzero((left < ROWS_A_BANK) & (left > 0))
    if not len(worn):
        return found
    chance = gammainc(left[worn, None], expected(worn, tuple(AHEAD_S.tolist())))
    for column, q in enumerate(QUANTILES):
        reached = chance >= q
        found[worn, column] = np.where(reached.any(axis=1), AHEAD_S[np.argmax(reached, axis=1)], np.nan)
    return found
