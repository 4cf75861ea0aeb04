"""Failure thresholds from a false-alert budget, on a calibration block and never on the test block.

The threshold of a class is the smallest P(T2, 7 d) that keeps its false alerts within the budget. A budget of b false
alerts per 1,000 GPU-months can only be told apart from a worse one with 3 / b thousand GPU-months (with none seen, the
95 % bound is 3 / exposure): below that exposure the shipped threshold stands, and also where no threshold keeps within
the budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import MONTH_S, PROBABILITY_CAP, Floats

CHOSEN, SHIPPED, NONE_FITS = "calibration block", "shipped", "shipped: none met the budget"
RULE_OF_THREE = 3.0
CANDIDATES = 200


@dataclass(frozen=True)
class Budget:
    """False alerts per 1,000 GPU-months, per class, for "failure predicted"."""

    per_1000_gpu_months: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"thermal": 1.0, "memory": 1.5, "device_loss": 1.0})
    )

    def needed_gpu_months(self, failure_class: str) -> float:
        """Exposure below which a threshold cannot be chosen."""
        return RULE_OF_THREE / self.per_1000_gpu_months[failure_class] * 1000.0


@dataclass(frozen=True)
class Threshold:
    """source: CHOSEN, or SHIPPED (too little exposure) or NONE_FITS; false_alerts: of this threshold, on the block."""

    p_7d: float
    source: str
    exposure_gpu_months: float
    false_alerts: int


def raises(p: Floats, threshold: float) -> NDArray[np.bool_]:
    """Where an alert would be raised, bool[time, gpu]: p reaches the threshold after having been below half of it.

    NaN keeps the state before it: silence neither raises nor clears. The hold of the live stages is left out, so this
    counts a few more alerts than they raise.
    """
    up = np.zeros(p.shape[1], bool)
    raised = np.zeros(p.shape, bool)
    for step in range(len(p)):
        now = np.where(np.isnan(p[step]), up, np.where(up, p[step] >= threshold / 2, p[step] >= threshold))
        raised[step] = now & ~up
        up = now.astype(bool)
    return raised


def choose_threshold(
    failure_class: str,
    p: Floats,
    excused: NDArray[np.bool_],
    step_s: float,
    budget: Budget,
    shipped: float,
) -> Threshold:
    """The threshold of a class from its calibration block.

    p: P(T2, 7 d) [time, gpu], NaN = unknown. excused bool[time, gpu]: an alert raised there is not false (its event
    lies ahead within the horizon, or the GPU is under maintenance or past a detection).
    """
    exposure = float(np.sum(~np.isnan(p)) * step_s / MONTH_S)

    def false_alerts(threshold: float) -> int:
        return int((raises(p, threshold) & ~excused).sum())

    if exposure < budget.needed_gpu_months(failure_class):
        return Threshold(shipped, SHIPPED, exposure, false_alerts(shipped))
    allowed = budget.per_1000_gpu_months[failure_class] * exposure / 1000.0
    seen = p[~np.isnan(p)]
    candidates = np.unique(np.geomspace(max(float(seen.min()), 1e-6), PROBABILITY_CAP, CANDIDATES))
    low, high = 0, len(candidates) - 1  # false alerts fall as the threshold rises, up to a run that splits in two
    while low < high:
        middle = (low + high) // 2
        if false_alerts(float(candidates[middle])) <= allowed:
            high = middle
        else:
            low = middle + 1
    chosen = float(candidates[low])
    false = false_alerts(chosen)
    if false > allowed:  # not even the highest is quiet enough: a threshold that breaks its budget is none
        return Threshold(shipped, NONE_FITS, exposure, false_alerts(shipped))
    return Threshold(chosen, CHOSEN, exposure, false)
