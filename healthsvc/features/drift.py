"""Has a series that should stand still begun to rise, or stepped? Tests against noise that remembers yesterday.

The null is a constant with AR(1) noise. Series and regressors are whitened over their gaps (Prais and Winsten 1954), so
that the same threshold means the same rate of false alarms whatever the persistence; a regressor that begins on an
unknown day is tried on every day, and the best z is judged by its own tail (Andrews 1993: a sup test).
Blind to a series that is shorter than the test needs, and to a rise that is as slow as the baseline is long.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import ndtr

from healthsvc.features.medians import nan_median
from healthsvc.fleet import Floats

Numbers = NDArray[np.float64]
MAD = 0.6745  # median absolute value of a standard normal deviate
FAR_LAG = 7  # days over which the noise has forgotten: 0.4^7 = 0.002
LONGEST_GAP = 14  # days after which an observation knows nothing of the one before
SPIKE = 3.0  # deviations from its neighbours beyond which a single day is pulled in


@dataclass(frozen=True)
class Found:
    """The best z of each series [gpu], NaN if it was not tested, and the column from which the change counts."""

    z: Numbers
    column: NDArray[np.intp]
    size: Numbers  # of a step, or of the rise a day


def day_scatter(values: Floats) -> Numbers:
    """Standard deviation of a GPU's days [gpu], from the median step between them, which no trend moves.

    Of noise with persistence phi it is sqrt(1 - phi) of the true one.
    """
    steps = np.abs(np.diff(values, axis=1))
    return np.asarray(nan_median(steps) / (MAD * np.sqrt(2.0)))


def persistence_of(values: Floats, believed: float, worth: float) -> float:
    """AR(1) coefficient of the fleet's days [gpu, day], pooled: one less the ratio of near to far squared steps.

    Medians over all GPUs, so a few that drift do not matter. `believed` counts as `worth` pairs of days.
    """
    near = np.abs(np.diff(values, axis=1))
    far = np.abs(values[:, FAR_LAG:] - values[:, :-FAR_LAG]) if values.shape[1] > FAR_LAG else near[:, :0]
    pairs = int(np.sum(~np.isnan(far)))
    if not pairs:
        return believed
    ratio = float(nan_median(near.reshape(-1))) / max(float(nan_median(far.reshape(-1))), 1e-12)
    found = float(np.clip(1.0 - ratio**2, 0.0, 0.9))
    return (pairs * found + worth * believed) / (pairs + worth)


def without_spikes(values: Floats, scatter: Numbers) -> Floats:
    """A day that stands more than 3 deviations from the median of the five days around it is pulled in to that.

    values [gpu, day]; scatter [gpu] one deviation. A rise survives: its days are never far from their neighbours.
    """
    if not values.shape[1]:
        return values
    padded = np.pad(values, ((0, 0), (2, 2)), constant_values=np.nan)
    middle = nan_median(sliding_window_view(padded, 5, axis=1))
    room = SPIKE * scatter[:, None]
    bounded: Floats = np.clip(values, middle - room, middle + room)
    return np.where(np.isnan(room), values, bounded)


@dataclass(frozen=True)
class Whitened:
    """Series on a constant plus AR(1) noise of unit innovations, each [gpu, day]; 0 where nothing was observed.

    A day's innovation is gain * (value - keep * value of the observed day `gap` days before); keep is 0 where there is
    none within LONGEST_GAP days.
    """

    value: Numbers
    gain: Numbers
    keep: Numbers
    gap: NDArray[np.intp]
    seen: NDArray[np.bool_]

    def sums(self, shapes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Inner products of whitened regressors [gpu, regressor] with themselves, the constant and the series.

        shapes: [regressor, day] before whitening. All as products of matrices: the cross terms of neighbouring
        observations by the length of the gap between them.
        """
        constant = self.gain * (1.0 - self.keep)
        square = self.gain**2
        xx = square @ (shapes**2).T + _carried(square * self.keep**2, self.gap) @ (shapes**2).T
        for gap in _lengths(self.gap):
            here = np.where(self.gap == gap, square * self.keep, 0.0)[:, gap:]
            xx -= 2.0 * here @ (shapes[:, gap:] * shapes[:, :-gap]).T
        found = []
        for other in (constant, self.value):
            weight = self.gain * other
            found.append((weight - _carried(weight * self.keep, self.gap)) @ shapes.T)
        return xx, found[0], found[1]


def _carried(weight: Numbers, gap: NDArray[np.intp]) -> Numbers:
    """Each weight, moved to the observation `gap` days before it; [gpu, day]."""
    moved = np.zeros_like(weight)
    for length in _lengths(gap):
        moved[:, :-length] += np.where(gap == length, weight, 0.0)[:, length:]
    return moved


def _lengths(gap: NDArray[np.intp]) -> list[int]:
    """The gaps that occur; most fleets know two or three."""
    return (np.flatnonzero(np.bincount(gap.reshape(-1), minlength=1)[1:]) + 1).tolist()


def whiten(values: Floats, deviation: Numbers, persistence: float) -> Whitened:
    """values [gpu, day], deviation [gpu] of a single day, persistence a day."""
    gpus, days = values.shape
    seen = ~np.isnan(values) & ~np.isnan(deviation)[:, None]
    column = np.broadcast_to(np.arange(days), (gpus, days))
    newest = np.maximum.accumulate(np.where(seen, column, -1), axis=1)
    before = np.concatenate([np.full((gpus, 1), -1), newest[:, :-1]], axis=1)[:, :days]
    near = (before >= 0) & (column - before <= LONGEST_GAP) & seen
    gap = np.where(near, column - before, 0)
    keep = np.where(near, persistence**gap, 0.0)
    gain = np.where(seen, 1.0 / (np.sqrt(1.0 - keep**2) * np.maximum(deviation, 1e-12)[:, None]), 0.0)
    filled = np.where(seen, values, 0.0).astype(np.float64)
    earlier = np.take_along_axis(filled, np.maximum(before, 0), axis=1)
    return Whitened(gain * (filled - keep * earlier), gain, keep, gap, seen)


def best_change(
    series: Whitened, kind: Literal["ramp", "step"], sign: int, least_before: int, least_after: int
) -> Found:
    """The change of this kind and sign (+1 up, -1 down) that explains each series best, and how well.

    z is that of generalised least squares on a constant and the change. Only beginnings with at least `least_before`
    observed days before and `least_after` from then on count; a ramp with `least_before` 0 may have risen since ever.
    """
    gpus, days = series.value.shape
    if not days:
        return Found(np.full(gpus, np.nan), np.full(gpus, -1, np.intp), np.full(gpus, np.nan))
    day, begins = np.arange(days)[None, :], np.arange(days)[:, None]
    shapes = np.maximum(day - begins + 1, 0) if kind == "ramp" else (day >= begins)
    constant = series.gain * (1.0 - series.keep)
    cc, cy = (np.sum(constant * other, axis=1, keepdims=True) for other in (constant, series.value))
    xx, xc, xy = series.sums(shapes.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        left = xx - xc**2 / cc
        size = (xy - xc * cy / cc) / left
        z = sign * size * np.sqrt(left)
    counted = np.cumsum(series.seen, axis=1)
    prior: NDArray[np.int64] = counted - series.seen
    enough = (prior >= least_before) & (counted[:, -1:] - prior >= least_after) & (left > 1e-9 * xx)
    z = np.where(enough, z, -np.inf)
    column = np.argmax(z, axis=1)
    row = np.arange(gpus)
    tested = enough.any(axis=1)
    return Found(
        np.where(tested, z[row, column], np.nan),
        np.where(tested, column, -1).astype(np.intp),
        np.where(tested, size[row, column], np.nan),
    )


def tail_of_best(z: Numbers, independent: float) -> Numbers:
    """P(best z >= z) under the null [gpu], as if the best of so many independent ones; NaN where not tested.

    An approximation that is too low far out: for 60 days of AR(1) noise and 4 independent ones it says 1.3e-4 at z = 4,
    where 1.9e-4 of 250,000 series were (the study's `constants`). So the bar of an alarm is chosen by simulated fleets.
    """
    return np.asarray(-np.expm1(independent * np.log1p(-np.minimum(ndtr(-z), 1.0 - 1e-16))), np.float64)
