"""A day of ten-minute summaries becomes one row per GPU of robust daily features.

The table below is the ledger's schema: each feature names the signals it needs, so that a GPU that lacks them is
known to lack it, and carries a version, so that a changed formula never mixes with rows of the old one.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.medians import group_median, nan_last, nan_max, nan_mean, nan_median, nan_quantile, nan_sum
from healthsvc.features.windows import WINDOW_S, Summaries
from healthsvc.fleet import DAY_S, DailyLedger, Floats, Signal, Topology

Groups = tuple[frozenset[Signal], ...]

_TEMPERATURE = frozenset({Signal.GPU_TEMPERATURE})
_MEMORY_TEMPERATURE = frozenset({Signal.MEMORY_TEMPERATURE})
_POWER = frozenset({Signal.POWER, Signal.ENERGY})
_THROTTLE = frozenset(
    {
        Signal.SOFTWARE_THERMAL_THROTTLE,
        Signal.HARDWARE_THERMAL_THROTTLE,
        Signal.THERMAL_THROTTLE,
        Signal.CLOCK_EVENT_REASONS,
    }
)


@dataclass(frozen=True)
class DailyFeature:
    """requires: any-of groups of signals, as a forecaster's; version: raise it whenever the formula changes."""

    requires: Groups
    version: int = 1

    def definition(self, name: str) -> str:
        """Short hash of what this column means; stored with every day."""
        signals = sorted(sorted(s.value for s in group) for group in self.requires)
        return hashlib.sha256(f"{name}|{self.version}|{signals}".encode()).hexdigest()[:12]


DAILY_FEATURES: dict[str, DailyFeature] = {
    "gpu_log_resistance": DailyFeature((_TEMPERATURE, _POWER), version=2),  # log(K/W), median of steady windows
    "memory_log_resistance": DailyFeature((_MEMORY_TEMPERATURE, _POWER), version=2),
    "steady_windows": DailyFeature((_TEMPERATURE, _POWER)),
    "power_q95_watts": DailyFeature((_POWER,)),
    "inlet_q95_celsius": DailyFeature(
        (_TEMPERATURE, _POWER), version=2
    ),  # measured, else the pseudo-inlet's assumed level
    "inlet_measured_ratio": DailyFeature((_TEMPERATURE, _POWER)),  # share of the day's windows with an inlet sensor
    "gpu_temperature_q95_celsius": DailyFeature((_TEMPERATURE,)),
    "gpu_max_operating_limit_celsius": DailyFeature(
        (frozenset({Signal.GPU_MAX_OPERATING_LIMIT, Signal.GPU_TEMPERATURE_MARGIN}),), version=2
    ),
    "gpu_slowdown_limit_celsius": DailyFeature((frozenset({Signal.GPU_SLOWDOWN_LIMIT}),)),
    "memory_max_operating_limit_celsius": DailyFeature((frozenset({Signal.MEMORY_MAX_OPERATING_LIMIT}),)),
    "thermal_throttle_s": DailyFeature((_THROTTLE,)),
    "hardware_throttle_s": DailyFeature((frozenset({Signal.HARDWARE_THERMAL_THROTTLE}),)),
    "sbe_errors": DailyFeature((frozenset({Signal.SBE_AGGREGATE, Signal.SBE_VOLATILE}),)),
    "sbe_windows": DailyFeature((frozenset({Signal.SBE_AGGREGATE, Signal.SBE_VOLATILE}),)),
    "dbe_errors": DailyFeature((frozenset({Signal.DBE_AGGREGATE, Signal.DBE_VOLATILE}),)),
    "correctable_remaps_rows": DailyFeature((frozenset({Signal.CORRECTABLE_REMAPS}),)),
    "uncorrectable_remaps_rows": DailyFeature((frozenset({Signal.UNCORRECTABLE_REMAPS}),)),
    "remap_pending_bool": DailyFeature((frozenset({Signal.REMAP_PENDING}),)),
    "remap_failure_bool": DailyFeature((frozenset({Signal.REMAP_FAILURE}),)),
    "retired_pages_pages": DailyFeature((frozenset({Signal.RETIRED_PAGES_DBE}),)),
    "pcie_replays_errors": DailyFeature((frozenset({Signal.PCIE_REPLAYS}),)),
}

STEADY_RANGE = 0.15  # power range within a window, share of its mean
STEADY_STEP = 0.10  # change of mean power from the window before: the heat sink has settled (minutes)
POWER_FLOOR = 0.35  # of the power limit: below it T - T_in is too small for an integer sensor
LEAST_STEADY_WINDOWS = 20
FLOOR_CORRECTION_CELSIUS = 0.5  # sensors report the integer below: -1.5 % of R if left alone
IDLE_SHARE = 0.25  # of the power limit: an idle board draws about a tenth
LEAST_IDLE_WINDOWS = 6
PLAUSIBLE_INLET_CELSIUS = (5.0, 50.0)
ASSUMED_INLET_CELSIUS = 25.0  # level of the pseudo-inlet; only its changes are measured


def definitions() -> Mapping[str, str]:
    """{feature: definition hash} of today's code."""
    return {name: feature.definition(name) for name, feature in DAILY_FEATURES.items()}


def steady(day: Summaries) -> NDArray[np.bool_]:
    """bool[gpu, window]: power constant within the window and since the one before, high enough, and not throttled."""
    power, limit = day.columns["power_watts"], day.columns["power_limit_watts"]
    before = np.concatenate([np.full((len(power), 1), np.nan, power.dtype), power[:, :-1]], axis=1)
    # Where no limit is exported, the day's own upper power stands in for it.
    ceiling = np.where(np.isnan(limit), nan_quantile(power, 0.95)[:, None], limit)
    settled = np.abs(power - before) < STEADY_STEP * power
    constant = ~(day.columns["power_range_watts"] >= STEADY_RANGE * power)
    cool = ~(day.columns["thermal_throttle_s"] > 0)
    flags: NDArray[np.bool_] = settled & constant & cool & (power > POWER_FLOOR * ceiling)
    return flags


def inlet(day: Summaries, use: NDArray[np.bool_], topology: Topology) -> Floats:
    """T_in [gpu, window]: measured, else told by the node's GPUs, else by the rack's, else by the GPU's own idling.

    The pseudo-inlet is median_j(T_j - R_j P_j) over the place with R_j = (T_j - 25) / P_j at the day's medians: it
    follows every common change of inlet during the day and is blind to the inlet's level, which it assumes to be 25 C.
    """
    gpus = len(day.gpus)
    temperature, power = day.columns["gpu_temperature_celsius"], day.columns["power_watts"]
    at_load = np.where(use, 1.0, np.nan)
    warm, busy = nan_median(temperature * at_load), nan_median(power * at_load)
    rough = (warm - ASSUMED_INLET_CELSIUS) / busy
    cool = temperature - rough[:, None] * power
    chosen: Floats = day.columns["inlet_celsius"]
    for layer in ("node", "rack"):
        pseudo = group_median(cool, topology.group(layer, gpus), at_least=3)
        chosen = np.where(np.isnan(chosen), pseudo, chosen)
    alone = idle_inlet(day, warm, busy)
    return np.where(np.isnan(chosen), np.where(np.isnan(alone), ASSUMED_INLET_CELSIUS, alone)[:, None], chosen)


def idle_inlet(day: Summaries, warm: Floats, busy: Floats) -> Floats:
    """T_in of a GPU without peers, a day's value [gpu]: the line through its idling and its load, at no power.

    warm, busy: median temperature and power at load [gpu]. NaN with fewer than 6 settled idle windows. Blind to an
    inlet that differs between the hours of load and of idling, and to fans that slow down when idle.
    """
    power, limit = day.columns["power_watts"], day.columns["power_limit_watts"]
    before = np.concatenate([np.full((len(power), 1), np.nan, power.dtype), power[:, :-1]], axis=1)
    ceiling = np.where(np.isnan(limit), nan_quantile(power, 0.95)[:, None], limit)
    rests = (power < IDLE_SHARE * ceiling) & (before < IDLE_SHARE * ceiling)
    enough = rests.sum(axis=1) >= LEAST_IDLE_WINDOWS
    idle = np.where(rests & enough[:, None], 1.0, np.nan)
    cold, low = nan_median(day.columns["gpu_temperature_celsius"] * idle), nan_median(power * idle)
    apart = busy - low > IDLE_SHARE * nan_last(ceiling)
    slope = (warm - cold) / np.where(apart, busy - low, np.nan)
    found: Floats = np.clip(cold - slope * low, *PLAUSIBLE_INLET_CELSIUS) + FLOOR_CORRECTION_CELSIUS
    return found


def log_resistance(temperature: Floats, inlet_celsius: Floats, power: Floats, use: NDArray[np.bool_]) -> Floats:
    """log((T + 0.5 - T_in) / P), the median over the windows in `use`; NaN with fewer than 20 of them."""
    rise = temperature + FLOOR_CORRECTION_CELSIUS - inlet_celsius
    valid = use & (rise > 1.0) & (power > 0)
    logs = np.log(np.where(valid, rise, 1.0) / np.where(valid, power, 1.0))
    enough = valid.sum(axis=1) >= LEAST_STEADY_WINDOWS
    found: Floats = np.where(enough, nan_median(np.where(valid, logs, np.nan)), np.nan)
    return found


def daily_row(day: Summaries, topology: Topology, step_s: float, day_number: int, unfinished: bool) -> DailyLedger:
    """The day's ledger, one column. Features whose signals were absent are NaN.

    Completeness counts the samples expected from midnight to the last window summarised.
    """
    columns = day.columns
    use = steady(day)
    inlet_celsius = inlet(day, use, topology)
    power = columns["power_watts"]
    features: dict[str, NDArray[Any]] = {
        "gpu_log_resistance": log_resistance(columns["gpu_temperature_celsius"], inlet_celsius, power, use),
        "memory_log_resistance": log_resistance(columns["memory_temperature_celsius"], inlet_celsius, power, use),
        "steady_windows": np.where(np.isnan(power).all(axis=1), np.nan, use.sum(axis=1)),
        "power_q95_watts": nan_quantile(power, 0.95),
        "inlet_q95_celsius": nan_quantile(np.where(np.isnan(power), np.nan, inlet_celsius), 0.95),
        "inlet_measured_ratio": nan_mean(np.where(np.isnan(power), np.nan, ~np.isnan(columns["inlet_celsius"]))),
        "gpu_temperature_q95_celsius": nan_quantile(columns["gpu_temperature_celsius"], 0.95),
        "sbe_windows": nan_sum(np.where(np.isnan(columns["sbe_errors"]), np.nan, columns["sbe_errors"] > 0)),
        "remap_pending_bool": nan_last(columns["remap_pending_bool"]),
        "remap_failure_bool": nan_max(columns["remap_failure_bool"]),
    }
    for name in ("gpu_max_operating_limit_celsius", "gpu_slowdown_limit_celsius", "memory_max_operating_limit_celsius"):
        features[name] = nan_last(columns[name])
    for name in DAILY_FEATURES.keys() - features.keys():
        features[name] = nan_sum(columns[name])
    counts = {"sbe_errors", "dbe_errors"}
    elapsed_s = max(float(day.ends_s[-1]) - day_number * DAY_S, WINDOW_S) if len(day.ends_s) else DAY_S
    expected = (elapsed_s if unfinished else DAY_S) / step_s
    samples = nan_sum(columns["samples"])
    received = np.where(np.isnan(samples), 0.0, samples)
    typed: dict[str, Any] = {
        k: v.astype(np.float64 if k in counts else np.float32)[:, None] for k, v in features.items()
    }
    return DailyLedger(
        day.gpus,
        np.array([day_number], np.int64),
        typed,
        (received * step_s / 3600.0).astype(np.float32)[:, None],
        np.minimum(received / expected, 1.0).astype(np.float32)[:, None],
        unfinished,
    )
