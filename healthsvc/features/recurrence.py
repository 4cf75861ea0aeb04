"""How much an event of the past raises the hazard of the next one: a self-exciting kernel of fixed scales.

multiplier(age) = 1 + frailty + sum_k weight_k exp(-age / scale_k), summed over episodes: recurrence is by far the
strongest signal there is (after one double-bit error on Titan's 30,207 GPUs the hazard was 480 times the base in days
1-7, 290 in 7-30, 70 in 30-90, 12 in 90-365 and 5.6 later; off-the-bus 230 / 69 / 29 / 4 / 5 on 20 repeats).
Blind to selection: those factors hold for GPUs that were left in service after the event.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, EventLog

MERGE_S = DAY_S  # events of one GPU within 24 h are one episode


@dataclass(frozen=True)
class Kernel:
    """weights: hazard multipliers at age 0, one a scale; frailty: what stays for ever after the first episode."""

    scales_days: tuple[float, ...]
    weights: tuple[float, ...]
    frailty: float

    def mass(self, age_s: NDArray[np.float64], horizon_s: float) -> NDArray[np.float64]:
        """Integral of the decaying part over (age, age + horizon], in multiples of base hazard x seconds."""
        total = np.zeros_like(age_s)
        for scale_days, weight in zip(self.scales_days, self.weights, strict=True):
            scale_s = scale_days * DAY_S
            total += weight * scale_s * np.exp(-age_s / scale_s) * -np.expm1(-horizon_s / scale_s)
        return total


def merge_episodes(log: EventLog) -> EventLog:
    """First event of each episode: events of one GPU less than 24 h after the one before belong to it."""
    if not len(log):
        return log
    order = np.lexsort((log.start_s, log.row))
    log = log.where(order)
    same = (np.diff(log.row) == 0) & (np.diff(log.start_s) < MERGE_S)
    return log.where(~np.concatenate([[False], same]))


def excitation(
    log: EventLog, gpu_count: int, now_s: float, horizons_s: tuple[float, ...], kernel: Kernel, strength: Any = 1.0
) -> NDArray[np.float64]:
    """Extra exposure [gpu, horizon] in base-hazard seconds: H = base x (horizon + excitation). Zero without events.

    strength: scalar, or one a merged episode (in the order of `merge_episodes(log)`).
    """
    episodes = log if not len(log) else log.where(log.start_s <= now_s)
    extra = np.zeros((gpu_count, len(horizons_s)))
    if not len(episodes):
        return extra
    age = now_s - episodes.start_s
    ever = np.zeros(gpu_count)
    np.maximum.at(ever, episodes.row, np.broadcast_to(strength, age.shape))
    for column, horizon_s in enumerate(horizons_s):
        np.add.at(extra[:, column], episodes.row, kernel.mass(age, horizon_s) * strength)
        extra[:, column] += ever * kernel.frailty * horizon_s
    return extra
