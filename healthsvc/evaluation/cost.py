"""What thresholds cost: drains for nothing against failures that nobody saw coming.

Source: the cost model of Boixaderas et al., SC 2020: c_drain x FP + c_fail x FN.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

THRESHOLDS = np.geomspace(1e-4, 1.0, 13)  # three a decade
RATIOS = np.array([1.0, 3.0, 10.0, 30.0, 100.0])  # c_fail / c_drain, of which every site has its own


@dataclass(frozen=True)
class CostCurve:
    """cost [ratio, threshold], in drains: false positives + ratio x false negatives, where ratio = c_fail / c_drain.

    false_positives and false_negatives int64[threshold]. best [ratio]: the cheapest threshold; of equal ones the
    highest, which drains least.
    """

    thresholds: NDArray[np.float64]
    ratios: NDArray[np.float64]
    false_positives: NDArray[np.int64]
    false_negatives: NDArray[np.int64]
    cost: NDArray[np.float64]
    best: NDArray[np.float64]


def cost_curve(p: NDArray[np.float64], y: NDArray[np.float64]) -> CostCurve:
    """Costs of acting on p >= threshold; p and y [case], without NaN.

    Blind to the drain that a right alert costs too, and to an event that is found several times: p and y are cases
    (GPU-horizons), so give disjoint ones.
    """
    quiet, dying = np.sort(p[y == 0]), np.sort(p[y == 1])
    false_positives = len(quiet) - np.searchsorted(quiet, THRESHOLDS, side="left")
    false_negatives = np.searchsorted(dying, THRESHOLDS, side="left")
    cost = false_positives + RATIOS[:, None] * false_negatives
    best = THRESHOLDS[::-1][cost[:, ::-1].argmin(axis=1)]
    return CostCurve(THRESHOLDS, RATIOS, false_positives, false_negatives, cost, best)
