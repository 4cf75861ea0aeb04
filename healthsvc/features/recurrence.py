"""How much an event of the past raises the hazard of the next one: a self-exciting kernel of fixed scales.

multiplier(age) = 1 + frailty + sum_k weight_k exp(-age / scale_k), summed over episodes: recurrence is by far the
strongest signal there is (after one double-bit error on Titan's 30,207 GPUs the hazard was 480 times the base in days
1-7, 290 in 7-30, 70 in 30-90, 12 in 90-365 and 5.6 later; off-the-bus 230 / 69 / 29 / 4 / 5 on 20 repeats).
Blind to selection: those factors hold for GPUs that were left in service after the event.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, EventLog


@dataclass(frozen=True)
class Kernel:
    """weights: hazard multipliers at age 0, one a scale; frailty: what stays for ever after the first episode."""

    scales_days: tuple[float, ...]
    weights: tuple[float, ...]
    frailty: float

    def mass(self, age_s: NDArray[np.float64], horizon_s: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Integral of the decaying part over (age, age + horizon], in multiples of base hazard x seconds."""
        total = np.zeros_like(age_s)
        for scale_days, weight in zip(self.scales_days, self.weights, strict=True):
            scale_s = scale_days * DAY_S
            total += weight * scale_s * np.exp(-age_s / scale_s) * -np.expm1(-horizon_s / scale_s)
        return total


def merge_episodes(log: EventLog) -> EventLog:
    """One episode a GPU and UTC day: the day's newest event.

    Fixed days, because a chain of neighbouring events merged into one would make a GPU that fails more often look
    safer. Blind to midnight: an incident across it is two episodes.
    """
    if not len(log):
        return log
    day = np.floor(log.start_s / DAY_S)
    order = np.lexsort((log.start_s, log.row))
    log, day = log.where(order), day[order]
    followed = (np.diff(log.row) == 0) & (np.diff(day) == 0)
    return log.where(~np.concatenate([followed, [False]]))


def excitation(
    log: EventLog, gpu_count: int, now_s: float, horizons_s: tuple[float, ...], kernel: Kernel, strength: float = 1.0
) -> NDArray[np.float64]:
    """Extra exposure [gpu, horizon] in base-hazard seconds: H = base x (horizon + excitation). Zero without events.

    log: merged episodes; strength: of each, in units of the episodes that the kernel was fitted to.
    """
    episodes = log.where(log.start_s <= now_s)
    extra = np.zeros((gpu_count, len(horizons_s)))
    if not len(episodes):
        return extra
    age = now_s - episodes.start_s
    ever = np.zeros(gpu_count)
    np.maximum.at(ever, episodes.row, strength)
    for column, horizon_s in enumerate(horizons_s):
        np.add.at(extra[:, column], episodes.row, kernel.mass(age, horizon_s) * strength)
        extra[:, column] += ever * kernel.frailty * horizon_s
    return extra
