"""The air that a GPU gets where nobody measures it, told by the temperatures of its node's other GPUs."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.daily import FLOOR_CORRECTION_CELSIUS
from healthsvc.features.medians import group_rows
from healthsvc.fleet import Floats

LEAST_OTHERS = 2


def pseudo_inlet(temperature: Floats, power: Floats, log_resistance: Floats, node: NDArray[np.int32]) -> Floats:
    """Median over the other GPUs j of the node of T_j + 0.5 - R_j P_j [gpu, bin]: what all of them feel, i left out.

    temperature in celsius and power in watts [gpu, bin]; log_resistance [gpu], R in K/W; NaN with fewer than two
    others that are observed and whose R is known. A GPU's own heat never moves its own value: else a GPU that runs hot
    would look like warm air. Its level is as good as the inlet that R was worked out with (`daily.inlet` assumes one
    where none is measured), so only its changes mean something. Blind to a change of R, and to load that has not
    settled.
    """
    felt = temperature + FLOOR_CORRECTION_CELSIUS - np.exp(log_resistance)[:, None].astype(np.float32) * power
    table = group_rows(node)
    found = np.full(felt.shape, np.nan, np.float32)
    there = table >= 0
    for at in range(felt.shape[1] if table.size else 0):  # a day of a large fleet at once would be large
        members = np.where(there, felt[:, at][np.maximum(table, 0)], np.nan)
        found[table[there], at] = _median_of_others(members)[there]
    return found


def _median_of_others(values: Floats) -> Floats:
    """For each value of the last axis the median of the others, skipping NaN; NaN with fewer than two of them."""
    order = np.argsort(values, axis=-1)  # NaN sorts last
    ranked = np.take_along_axis(values, order, axis=-1)
    rank = np.argsort(order, axis=-1)
    count = np.sum(~np.isnan(values), axis=-1, keepdims=True)
    own = rank < count
    others = count - own
    middle = np.maximum(others - 1, 0)

    def ranked_at(place: NDArray[np.intp]) -> Floats:
        # What lies above the one that is left out moves down by one.
        skipped = place + (own & (place >= rank))
        return np.take_along_axis(ranked, np.minimum(skipped, values.shape[-1] - 1), axis=-1)

    median = (ranked_at(middle // 2) + ranked_at((middle + 1) // 2)) / 2
    chosen: Floats = np.where(others >= LEAST_OTHERS, median, np.nan)
    return chosen
