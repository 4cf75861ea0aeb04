"""What thresholds cost: drains for nothing against failures that nobody saw coming.

Source: the cost model of Boixaderas et al., SC 2020: c_drain x FP + c_fail x FN.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from healthsvc.evaluation.probability import Array, known_cases


@dataclass(frozen=True)
class CostCurve:
    """cost [ratio, threshold], in drains: false positives + ratio x false negatives, where ratio = c_fail / c_drain.

    false_positives and false_negatives int64[threshold]; n GPU-horizons with `events` events among them.
    """

    thresholds: Array
    ratios: Array
    false_positives: NDArray[np.int64]
    false_negatives: NDArray[np.int64]
    cost: Array
    n: int
    events: int

    def best(self) -> Array:
        """The cheapest threshold for each ratio [ratio]; of equal ones the highest, which drains least."""
        backwards = self.cost[:, ::-1].argmin(axis=1)
        return np.asarray(self.thresholds[len(self.thresholds) - 1 - backwards])

    def in_money(self, drain_cost: float) -> Array:
        """cost [ratio, threshold] in the currency of drain_cost, the price of one drain."""
        return self.cost * drain_cost


def cost_curve(p: ArrayLike, y: ArrayLike, thresholds: ArrayLike, ratios: ArrayLike) -> CostCurve:
    """Costs of acting on p >= threshold; p and y [case] as for `probability_metrics`, NaN cases left out.

    Blind to the drain that a right alert costs too, and to an event that is found several times: p and y are cases
    (GPU-horizons), so give disjoint ones. Raises ValueError when there is no threshold.
    """
    chance, happened, _ = known_cases(p, y)
    levels, price = np.sort(np.atleast_1d(np.asarray(thresholds, np.float64))), np.atleast_1d(np.asarray(ratios))
    if not len(levels):
        raise ValueError("thresholds = []: give at least one")
    quiet, dying = np.sort(chance[happened == 0]), np.sort(chance[happened == 1])
    false_positives = len(quiet) - np.searchsorted(quiet, levels, side="left")
    false_negatives = np.searchsorted(dying, levels, side="left")
    cost = false_positives + price[:, None].astype(np.float64) * false_negatives
    return CostCurve(levels, price.astype(np.float64), false_positives, false_negatives, cost, len(chance), len(dying))
