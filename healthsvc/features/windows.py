"""Ten-minute summaries: what a window of raw columns leaves behind, small enough to keep a whole day of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.medians import nan_last, nan_max, nan_mean, nan_median, nan_sum
from healthsvc.features.throttling import thermal_throttle_seconds as thermal_throttle_seconds  # for its readers
from healthsvc.fleet import (
    LIVENESS,
    FleetWindow,
    Floats,
    GpuId,
    PlaceSeries,
    Signal,
    Topology,
    align_rows,
)

WINDOW_S = 600.0
IMPLIED_LIMITS_CELSIUS = (80.0, 100.0)  # V100 has 83, the hottest boards 95 (nvidia-smi -q -d TEMPERATURE)


@dataclass(frozen=True)
class Summaries:
    """columns[name] is [gpu, window]; ends_s float64[window] are multiples of ten minutes. NaN = not observed."""

    gpus: tuple[GpuId, ...]
    ends_s: NDArray[np.float64]
    columns: Mapping[str, Floats]

    def take(self, gpus: Sequence[GpuId], rows: NDArray[np.intp]) -> "Summaries":
        """The same windows for `gpus`, whose old rows are `rows` (-1: not here before)."""
        return Summaries(tuple(gpus), self.ends_s, {k: align_rows(v, rows) for k, v in self.columns.items()})

    def joined(self, later: "Summaries") -> "Summaries":
        """Both, for the GPUs of `later` (which must have the same rows), windows of `later` replacing equal ones."""
        if not later.columns:
            return self
        if not self.columns:
            return later
        keep = ~np.isin(self.ends_s, later.ends_s)
        columns = {
            name: np.concatenate([self.columns[name][:, keep], later.columns[name]], axis=1) for name in later.columns
        }
        return Summaries(later.gpus, np.concatenate([self.ends_s[keep], later.ends_s]), columns)

    def within(self, start_s: float, end_s: float) -> "Summaries":
        """Windows that end in (start, end]."""
        keep = (self.ends_s > start_s) & (self.ends_s <= end_s)
        return Summaries(self.gpus, self.ends_s[keep], {k: v[:, keep] for k, v in self.columns.items()})


def inlet_by_gpu(
    environment: Mapping[Signal, PlaceSeries], topology: Topology, gpus: Sequence[GpuId], columns: int
) -> Floats:
    """The coldest-side temperature each GPU is cooled with [gpu, time]: coolant supply of its loop, else its node's
    inlet sensor; NaN where neither is measured."""
    found: Floats = np.full((len(gpus), columns), np.nan, np.float32)
    for signal in (Signal.INLET, Signal.COOLANT_SUPPLY):  # the later one wins
        series = environment.get(signal)
        if series is not None:
            values = _of_places(series, topology, len(gpus))
            found = np.where(np.isnan(values), found, values)
    return found


def flow_by_gpu(
    environment: Mapping[Signal, PlaceSeries], topology: Topology, gpus: Sequence[GpuId], columns: int
) -> Floats:
    """Coolant flow of each GPU's loop over its rated flow [gpu, time]; NaN where one of the two has no sample."""
    flow, rated = environment.get(Signal.COOLANT_FLOW), environment.get(Signal.RATED_COOLANT_FLOW)
    if flow is None or rated is None or rated.layer != flow.layer:
        return np.broadcast_to(np.float32(np.nan), (len(gpus), columns))
    ratio = flow.values / align_rows(rated.values, _rows_named(rated.names, flow.names))
    return _of_places(replace(flow, values=ratio), topology, len(gpus))


def _of_places(series: PlaceSeries, topology: Topology, gpus: int) -> Floats:
    """What the series says of each GPU's place [gpu, time]; NaN where it has none, or its place has no series."""
    rows = np.append(_rows_named(series.names, topology.names.get(series.layer, ())), -1)
    return align_rows(series.values, rows[topology.group(series.layer, gpus)])


def _rows_named(names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.intp]:
    """The row of each of `wanted` among `names`, -1 where it is not one of them."""
    number = {name: row for row, name in enumerate(names)}
    return np.array([number.get(name, -1) for name in wanted], np.intp)


def summarise(window: FleetWindow, inlet: Floats, flow: Floats | None = None) -> Summaries:
    """One summary a whole ten-minute window that `window` covers; a part of one at either end is left out.

    inlet: [gpu, time] as `inlet_by_gpu` gives it; flow: likewise of `flow_by_gpu`, None where it is not measured.
    """
    width = round(WINDOW_S / window.step_s)
    ends = np.unique(np.floor(window.times_s / WINDOW_S) * WINDOW_S)
    ends = ends[(ends <= window.times_s[-1]) & (ends - WINDOW_S >= window.times_s[0] - window.step_s)]
    if not len(ends) or width < 1:
        return Summaries(window.gpus, np.zeros(0), {})
    first = round((ends[0] - WINDOW_S - (window.times_s[0] - window.step_s)) / window.step_s)
    shape = (len(window.gpus), len(ends), width)

    def cut(values: NDArray[Any]) -> NDArray[Any]:
        return values[:, first : first + len(ends) * width].reshape(shape)

    def of(signal: Signal) -> Floats:
        return cut(window.get(signal))

    power = of(Signal.POWER)
    throttle = thermal_throttle_seconds(window)
    flow = np.broadcast_to(np.float32(np.nan), inlet.shape) if flow is None else flow
    columns: dict[str, Floats] = {
        "samples": np.sum(cut(window.alive(LIVENESS)), axis=-1).astype(np.float32),
        "gpu_temperature_celsius": nan_mean(of(Signal.GPU_TEMPERATURE)),
        "memory_temperature_celsius": nan_mean(of(Signal.MEMORY_TEMPERATURE)),
        "inlet_celsius": nan_mean(cut(inlet)),
        "flow_ratio": nan_mean(cut(flow)),
        "power_watts": mean_power(window, cut),
        "power_range_watts": nan_max(power) + nan_max(-power),
        "power_limit_watts": nan_last(of(Signal.POWER_LIMIT)),
        "gpu_max_operating_limit_celsius": max_operating_limit(
            of(Signal.GPU_MAX_OPERATING_LIMIT), of(Signal.GPU_TEMPERATURE), of(Signal.GPU_TEMPERATURE_MARGIN)
        ),
        "gpu_slowdown_limit_celsius": nan_last(of(Signal.GPU_SLOWDOWN_LIMIT)),
        "memory_max_operating_limit_celsius": nan_last(of(Signal.MEMORY_MAX_OPERATING_LIMIT)),
        "thermal_throttle_s": nan_sum(cut(throttle)),
        "hardware_throttle_s": nan_sum(of(Signal.HARDWARE_THERMAL_THROTTLE)),
        "sbe_errors": nan_sum(cut(preferred(window, Signal.SBE_AGGREGATE, Signal.SBE_VOLATILE))),
        "dbe_errors": nan_sum(cut(preferred(window, Signal.DBE_AGGREGATE, Signal.DBE_VOLATILE))),
        "correctable_remaps_rows": nan_sum(of(Signal.CORRECTABLE_REMAPS)),
        "uncorrectable_remaps_rows": nan_sum(of(Signal.UNCORRECTABLE_REMAPS)),
        "remap_pending_bool": nan_last(of(Signal.REMAP_PENDING)),
        "remap_failure_bool": nan_max(of(Signal.REMAP_FAILURE)),
        "retired_pages_pages": nan_sum(of(Signal.RETIRED_PAGES_DBE)),
        "pcie_replays_errors": nan_sum(of(Signal.PCIE_REPLAYS)),
    }
    counts = {"sbe_errors", "dbe_errors"}
    return Summaries(
        window.gpus, ends, {k: v.astype(np.float64 if k in counts else np.float32) for k, v in columns.items()}
    )


def mean_power(window: FleetWindow, cut: Callable[[NDArray[Any]], NDArray[Any]]) -> Floats:
    """Mean power of each ten minutes [gpu, ten minutes]; `cut` lays [gpu, time] out as [gpu, ten minutes, step].

    The energy counter's where there is one: exact over the interval, whereas the power gauge is one sample of it
    (NVML, total energy since driver load).
    """
    power, energy = cut(window.get(Signal.POWER)), cut(window.get(Signal.ENERGY))
    steps = cut(covered_steps(window.get(Signal.ENERGY)))
    # After a gap that is longer than these ten minutes: part of it is not seen, or the counter began anew.
    steps = np.where(steps > power.shape[-1], 0, steps)
    used = nan_sum(np.where(steps > 0, energy, np.nan))
    from_energy = used / (steps.sum(axis=-1).clip(1) * window.step_s)
    mean: Floats = np.where(from_energy > 0, from_energy, nan_mean(power))
    return mean


def max_operating_limit(reported: Floats, temperature: Floats, margin: Floats) -> Floats:
    """The limit as reported, else what the T.Limit margin says, the temperature plus what is left of it [..., window].

    Blind where the margin is nonsense: some H100 drivers give 0 or less whatever the heat (gpud, nvml temperature), so
    only limits that a board can have are believed.
    """
    told, implied = nan_last(reported), temperature + margin
    sound = (implied >= IMPLIED_LIMITS_CELSIUS[0]) & (implied <= IMPLIED_LIMITS_CELSIUS[1])
    limit: Floats = np.where(np.isnan(told), nan_median(np.where(sound, implied, np.nan)), told)
    return limit


def covered_steps(increments: Floats) -> NDArray[np.intp]:
    """How many steps each increment is the sum of [gpu, time]: more than one at the end of a gap, 0 without a sample.

    Also 0 for a first sample after the first column: when its counter was read before is not known.
    """
    column = np.arange(increments.shape[1])
    newest = np.maximum.accumulate(np.where(np.isnan(increments), -1, column), axis=1)
    before = np.concatenate([np.full((len(increments), 1), -1), newest[:, :-1]], axis=1)
    known = ~np.isnan(increments) & ((before >= 0) | (column == 0))
    return np.where(known, column - before, 0)


def preferred(window: FleetWindow, first: Signal, second: Signal) -> Floats:
    """`first` for the GPUs that report it at all, `second` for the others: never a mixture within one GPU."""
    values = window.get(first)
    absent = np.all(np.isnan(values), axis=1, keepdims=True)
    chosen: Floats = np.where(~absent, values, window.get(second))
    return chosen
