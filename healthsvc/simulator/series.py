"""Series that continue from one chunk into the next: noise, counters, states. All arrays are [row, time]."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Array = NDArray[np.float64]


class Wander:
    """AR(1) noise, one row each, continuing from call to call: persistence per step, stationary deviation `sigma`."""

    def __init__(self, rng: np.random.Generator, rows: int, persistence: float, sigma: float) -> None:
        self.rng, self.persistence, self.sigma = rng, persistence, sigma
        self.last = rng.standard_normal(rows)

    def draw(self, columns: int) -> Array:
        """The next `columns` values [row, time]."""
        white = self.rng.standard_normal((len(self.last), columns))
        gain = np.sqrt(1.0 - self.persistence**2)
        carried = (self.persistence * self.last)[:, None]
        noise, _ = lfilter([gain], [1.0, -self.persistence], white, axis=1, zi=carried)
        self.last = noise[:, -1]
        return np.asarray(noise * self.sigma, np.float64)


def accumulate(before: Array, increments: NDArray[Any], restarts: NDArray[np.bool_]) -> Array:
    """A counter [gpu, time] that stood at `before`; in a column marked in `restarts` it begins again from zero."""
    total = before[:, None] + np.cumsum(increments, axis=1, dtype=np.float64)
    lost = np.maximum.accumulate(np.where(restarts, total - increments, 0.0), axis=1)
    return total - lost


def hold(before: NDArray[Any], marks: NDArray[Any]) -> Array:
    """A state [gpu, time] that stays at its last mark: 0 = no mark here, -1 = back to zero, else the new value."""
    column = np.maximum.accumulate(np.where(marks != 0, np.arange(marks.shape[1]), -1), axis=1)
    marked = np.take_along_axis(marks, np.maximum(column, 0), axis=1)
    return np.where(column >= 0, np.maximum(marked, 0), before[:, None]).astype(np.float64)
