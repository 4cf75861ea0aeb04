"""Ten minutes at a time, who throttles by heat and what it was like before: what onsets are foretold and learned from.

Blind to what lies between two samples where throttling is not counted, and to the first ten minutes of a day: what came
before them belongs to the day before.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.draws import draws, hashed
from healthsvc.features.medians import nan_last, nan_mean, nan_median, nan_sum
from healthsvc.features.pseudo_inlet import pseudo_inlet
from healthsvc.features.resistance import NORMAL_DAYS
from healthsvc.features.rings import ring_counts
from healthsvc.features.windows import (
    WINDOW_S,
    Summaries,
    flow_by_gpu,
    inlet_by_gpu,
    max_operating_limit,
    mean_power,
    thermal_throttle_seconds,
)
from healthsvc.fleet import (
    DailyLedger,
    FleetHistory,
    Floats,
    GpuId,
    OnsetBins,
    PlaceSeries,
    Signal,
    Topology,
)
from healthsvc.fleet.boards import MAX_OPERATING, limit_in_force
from healthsvc.fleet.onset_bins import INLET_MEASURED, INLET_PSEUDO, INLET_REFERENCE_CELSIUS, INLET_UNKNOWN

THROTTLED_RATIO = 0.01  # of ten minutes: less is noise of the counters (domain study, throttling cascades)
CLEAR_BINS = 3  # half an hour without throttling comes before an onset
CONTROLS_A_DAY = 10_000  # without an onset and without a neighbour that throttles
BUSY_FACTOR = 10.0  # those with such a neighbour are few, and they tell what a neighbour does


@dataclass(frozen=True)
class BinGrid:
    """Means over ten minutes, [gpu, bin]; NaN = not observed. Bins follow one another without a hole.

    ends_s float64[bin]; throttled_ratio: share of the bin throttled by heat; inlet_celsius: measured, else the
    pseudo-inlet, which inlet_source int8 says; flow_ratio: coolant flow over rated. limit_celsius (the highest
    temperature of normal operation) and power_limit_watts are [gpu].
    """

    ends_s: NDArray[np.float64]
    throttled_ratio: Floats
    temperature_celsius: Floats
    power_watts: Floats
    inlet_celsius: Floats
    inlet_source: NDArray[np.int8]
    flow_ratio: Floats
    limit_celsius: Floats
    power_limit_watts: Floats


def grid_of_day(day: Summaries, log_resistance: Floats, topology: Topology) -> BinGrid:
    """The ten minutes of a day; log_resistance [gpu] of that day, for the pseudo-inlet."""
    ends = np.arange(day.ends_s.min(), day.ends_s.max() + WINDOW_S / 2, WINDOW_S)
    place = np.searchsorted(ends, day.ends_s - WINDOW_S / 2)

    def laid(name: str) -> Floats:
        values = day.columns[name]
        if len(ends) == len(day.ends_s):
            return values
        whole: Floats = np.full((len(values), len(ends)), np.nan, values.dtype)
        whole[:, place] = values
        return whole

    temperature, power = laid("gpu_temperature_celsius"), laid("power_watts")
    inlet, source = _inlet(laid("inlet_celsius"), temperature, power, lambda: log_resistance, topology)
    return BinGrid(
        ends,
        laid("thermal_throttle_s") / np.float32(WINDOW_S),
        temperature,
        power,
        inlet,
        source,
        laid("flow_ratio"),
        _in_force(nan_last(laid("gpu_max_operating_limit_celsius")), day.gpus),
        nan_last(laid("power_limit_watts")),
    )


def grid_of_recent(history: FleetHistory, bins: int) -> BinGrid:
    """The newest `bins` times ten minutes up to now, NaN where the recent window does not reach back so far.

    They end now, not on the marks of the ledger's summaries. The log resistance of the pseudo-inlet is the median of
    the ledger's newest two weeks of finished days.
    """
    recent, gpus = history.recent, len(history.gpus)
    width = round(WINDOW_S / recent.step_s)
    # Ten minutes more than asked for: energy over a missed sample at the seam has its beginning there.
    window = recent.columns(slice(-(bins + 1) * width, None))
    columns = len(window.times_s)

    def cut(values: NDArray[Any]) -> NDArray[Any]:
        newest = values[:, -bins * width :]
        unseen = bins * width - newest.shape[1]
        if unseen:
            fill = np.nan if newest.dtype.kind == "f" else 0
            newest = np.concatenate([np.full((gpus, unseen), fill, newest.dtype), newest], axis=1)
        return newest.reshape(gpus, bins, width)

    def mean(values: Floats) -> Floats:
        found: Floats = nan_mean(cut(values)).astype(np.float32)
        return found

    environment = {s: _newest(series, columns) for s, series in history.environment.items()}
    throttled = nan_sum(cut(thermal_throttle_seconds(recent, min(bins * width, len(recent.times_s)))))
    temperature, power = mean(window.get(Signal.GPU_TEMPERATURE)), mean_power(window, cut).astype(np.float32)
    measured = mean(inlet_by_gpu(environment, history.topology, history.gpus, columns))
    inlet, source = _inlet(measured, temperature, power, lambda: _normal(history.daily), history.topology)
    return BinGrid(
        window.now_s + WINDOW_S * np.arange(1.0 - bins, 1.0),
        (throttled / WINDOW_S).astype(np.float32),
        temperature,
        power,
        inlet,
        source,
        mean(flow_by_gpu(environment, history.topology, history.gpus, columns)),
        _limit(history, width),
        recent.last(Signal.POWER_LIMIT),
    )


def covariates(grid: BinGrid, topology: Topology) -> Floats:
    """float32[gpu, bin, covariate] in the order of ONSET_COVARIATES: what is known at the end of each bin."""
    return np.stack(list(_planes(grid, ring_counts(throttles(grid), topology))), axis=2)


def throttles(grid: BinGrid) -> NDArray[np.bool_]:
    """bool[gpu, bin]: more than one percent of the bin throttled by heat; what is not observed does not count."""
    return grid.throttled_ratio > THROTTLED_RATIO


def sample_bins(grid: BinGrid, topology: Topology, gpus: Sequence[GpuId], controls: int = CONTROLS_A_DAY) -> OnsetBins:
    """Every onset of the grid, and of the bins without one a share that is known, in order of time.

    A bin counts if its GPU is observed in it and in the one before, and throttles in none of the three before that are
    there (one that is not observed does not stand in the way). share aims at `controls` bins without a neighbour that
    throttles; those with one are kept ten times as often, as long as they are not more than `controls` either: a day on
    which everybody throttles is not kept whole. Which ones are kept hangs on the device and the time alone, so that the
    same history gives the same rows, whatever the order of the GPUs.
    """
    hot, seen = throttles(grid), ~np.isnan(grid.throttled_ratio)
    near = ring_counts(hot, topology)
    at_risk = seen[:, 1:] & seen[:, :-1]
    for back in range(1, CLEAR_BINS + 1):
        at_risk[:, back - 1 :] &= ~hot[:, : max(hot.shape[1] - back, 0)]
    onset = at_risk & hot[:, 1:]
    busy = np.any([count[:, :-1] > 0 for count in near], axis=0)
    quiet_share, enough = (
        min(1.0, controls / max(int(np.sum(at_risk & ~onset & (busy == kind))), 1)) for kind in (False, True)
    )
    shares = np.array([quiet_share, min(BUSY_FACTOR * quiet_share, enough)], np.float32)
    names = hashed(gpus)
    kept = [
        np.flatnonzero(at_risk[:, t] & (onset[:, t] | (draws(names, start_s) < shares[busy[:, t].astype(np.intp)])))
        for t, start_s in enumerate(grid.ends_s[:-1].tolist())
    ]
    row = np.concatenate([np.zeros(0, np.intp), *kept])
    before = np.repeat(np.arange(len(kept)), [len(rows) for rows in kept])
    x = [plane[row, before] for plane in _planes(grid, near)]
    return OnsetBins(
        row.astype(np.int32),
        grid.ends_s[before],
        onset[row, before],
        shares[busy[row, before].astype(np.intp)],
        grid.inlet_source[row, before],
        np.stack(x, axis=1),
    )


def bins_of_day(day: Summaries, row: DailyLedger, topology: Topology) -> OnsetBins:
    """The day's sample, drawn as its row of the ledger is made; rows are the GPUs of both."""
    grid = grid_of_day(day, row.get("gpu_log_resistance")[:, -1], topology)
    return sample_bins(grid, topology, day.gpus)


def _planes(grid: BinGrid, near: Sequence[NDArray[np.int32]]) -> Iterator[Floats]:
    """Each covariate in its order, float32[gpu, bin]; one at a time, because a day of a large fleet is large."""
    limit, source, seen = grid.power_limit_watts[:, None], grid.inlet_source, ~np.isnan(grid.throttled_ratio)
    alike = np.zeros(source.shape, bool)
    alike[:, 1:] = (source[:, 1:] == source[:, :-1]) & seen[:, :-1]
    yield (grid.limit_celsius[:, None] - grid.temperature_celsius).astype(np.float32)
    yield (grid.power_watts / limit).astype(np.float32)
    yield (_change(grid.power_watts) / limit).astype(np.float32)
    yield (grid.inlet_celsius - INLET_REFERENCE_CELSIUS).astype(np.float32)
    # A sensor that falls silent is no change of the air: its stand-in has another level. For a GPU that was not there
    # before there is none either: whether its place's past is known hangs on when one looks.
    yield np.where(alike, _change(grid.inlet_celsius), np.nan).astype(np.float32)
    yield np.where(np.isnan(grid.flow_ratio), 0.0, 1.0 - grid.flow_ratio).astype(np.float32)
    for count in near:
        yield np.log1p(count).astype(np.float32)


def _change(values: Floats) -> Floats:
    """Against the bin before [gpu, bin]; NaN in the first."""
    return np.diff(values, axis=1, prepend=np.full((len(values), 1), np.nan, values.dtype))


def _inlet(
    measured: Floats, temperature: Floats, power: Floats, log_resistance: Callable[[], Floats], topology: Topology
) -> tuple[Floats, NDArray[np.int8]]:
    """What each GPU is cooled with [gpu, bin], and how it is known; log_resistance() only where it is needed."""
    unmeasured = np.isnan(measured)
    if not unmeasured.any():
        return measured, np.full(measured.shape, INLET_MEASURED, np.int8)
    guess = pseudo_inlet(temperature, power, log_resistance(), topology.group("node", len(measured)))
    stand_in = np.where(np.isnan(guess), INLET_UNKNOWN, INLET_PSEUDO)
    return np.where(unmeasured, guess, measured), np.where(unmeasured, stand_in, INLET_MEASURED).astype(np.int8)


def _normal(daily: DailyLedger) -> Floats:
    """Median log resistance of the newest finished days [gpu]."""
    finished = slice(None, -1) if daily.unfinished else slice(None)
    return nan_median(daily.get("gpu_log_resistance")[:, finished][:, -NORMAL_DAYS:])


def _limit(history: FleetHistory, width: int) -> Floats:
    """Highest temperature of normal operation [gpu]: as reported last, else what the newest ten minutes imply, else
    the board's."""
    told = history.recent.last(Signal.GPU_MAX_OPERATING_LIMIT)
    newest = history.recent.columns(slice(-width, None))
    silent = np.flatnonzero(np.isnan(told))
    implied = (
        newest.get(s)[silent][:, None]
        for s in (Signal.GPU_MAX_OPERATING_LIMIT, Signal.GPU_TEMPERATURE, Signal.GPU_TEMPERATURE_MARGIN)
    )
    told[silent] = max_operating_limit(*implied)[:, 0]
    return _in_force(told, history.gpus)


def _in_force(told: Floats, gpus: tuple[GpuId, ...]) -> Floats:
    return limit_in_force(told, gpus, MAX_OPERATING).astype(np.float32)


def _newest(series: PlaceSeries, columns: int) -> PlaceSeries:
    return replace(series, values=series.values[:, -columns:])
