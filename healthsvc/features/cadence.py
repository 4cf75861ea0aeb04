"""How often the samples really come, seen from the grid they were laid on."""

import numpy as np

from healthsvc.fleet import LIVENESS, FleetWindow

SPARSE = 0.6  # share of columns with a sample, below which the grid is finer than the source


def sample_interval_s(window: FleetWindow) -> float:
    """Median interval between samples of a GPU, at least the grid's step; NaN without GPUs that gave two.

    Blind to intervals below the step, and to a fleet that is mostly down.
    """
    alive = window.alive(LIVENESS)
    count = alive.sum(axis=1)
    steady = count >= 2
    if not steady.any():
        return float("nan")
    first = np.argmax(alive, axis=1)
    last = alive.shape[1] - 1 - np.argmax(alive[:, ::-1], axis=1)
    return float(np.median((last - first)[steady] / (count[steady] - 1))) * window.step_s


def too_fine(window: FleetWindow) -> float | None:
    """The sources' interval where the grid's step is clearly below it: every gap then looks like an absence."""
    interval_s = sample_interval_s(window)
    return interval_s if interval_s * SPARSE > window.step_s else None
