"""What moved first at a place in trouble: the flow, the air, the coolant or its GPUs."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.medians import nan_mean, nan_median
from healthsvc.fleet import Floats

Numbers = NDArray[np.float64]
BIN_S = 300.0
MOST_LAG_S = 1800.0
BASE_BINS = 4  # at the beginning of the window, from which movement is told
LEAST_PAIRS = 8  # of innovations
CLEAR_CORRELATION = 0.6  # of 20 pairs by chance at the best of 13 lags: about 1 in 20 (Student's t, 13 of 0.5 %)


def five_minute_means(series: Floats, step_s: float) -> Numbers:
    """Means over five minutes [bin] of a series [time], the last bin ending with it; NaN where none has a sample."""
    width = max(round(BIN_S / step_s), 1)
    bins = len(series) // width
    if not bins:
        return np.zeros(0)
    return nan_mean(series[len(series) - bins * width :].reshape(bins, width)).astype(np.float64)


def moved_at(means: Floats, least: float) -> int | None:
    """The bin from which on the series is away from where it began, on the side on which it ends; None if it is not.

    means [bin], NaN = no sample. least: how far away it has to end, well above the noise of a bin; half of that marks
    the beginning. Blind to what had moved before the window.
    """
    seen = means[~np.isnan(means)]
    if len(seen) <= BASE_BINS:
        return None
    base = np.median(seen[:BASE_BINS])
    end = seen[-1] - base
    if abs(end) < least:
        return None
    still = np.flatnonzero(np.sign(end) * (means - base) < least / 2)
    return int(still[-1]) + 1 if len(still) else 0


def lead(first: Floats, second: Floats) -> tuple[int, float]:
    """By how many bins `first` leads `second`, and how their innovations correlate at that lag; (0, NaN) if too short.

    Innovations are first differences of the five-minute means [bin], which a common slow drift does not correlate.
    Negative: `second` leads. Lags up to half an hour; of equal correlations the shortest lag. NaN pairs are left out.
    """
    ahead, behind = np.diff(first), np.diff(second)
    most = min(round(MOST_LAG_S / BIN_S), len(ahead))
    best = (0, np.nan)
    for lag in sorted(range(-most, most + 1), key=abs):
        x = ahead[max(-lag, 0) : len(ahead) - max(lag, 0)]
        y = behind[max(lag, 0) : len(behind) - max(-lag, 0)]
        known = ~(np.isnan(x) | np.isnan(y))
        if known.sum() < LEAST_PAIRS:
            continue
        x, y = x[known] - x[known].mean(), y[known] - y[known].mean()
        scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
        correlation = float((x * y).sum()) / scale if scale > 0 else 0.0
        if np.isnan(best[1]) or abs(correlation) > abs(best[1]) + 1e-9:
            best = (lag, correlation)
    return best


def middle(series: Floats) -> Numbers:
    """The median over rows [time] of a series [row, time], skipping NaN."""
    return nan_median(series.T).astype(np.float64) if len(series) else np.zeros(series.shape[1])
