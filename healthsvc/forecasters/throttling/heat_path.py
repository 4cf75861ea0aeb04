"""How fast a cooling path is failing right now, and where the temperature goes if that lasts.

z = log((T + 0.5 - T_in) / P) of each GPU, P as a heat sink remembers it: loads, caps and weather leave z alone, lost
flow or air raises it. Its slope over the last minutes is believed only as the median of a node, rack or loop, whose
GPUs agree far better than chance; then T - T_in grows by exp(slope x time) at the load of now. A rising inlet adds.

Blind to a load that has changed within the last half hour, to what strikes one GPU alone (thermal_trend's), and to how
long the failing goes on: a failure that has lasted d lasts as long again with even odds at best (`lasts_s`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.daily import ASSUMED_INLET_CELSIUS, FLOOR_CORRECTION_CELSIUS, POWER_FLOOR, STEADY_RANGE
from healthsvc.features.medians import group_count, group_median, nan_max, nan_mean, nan_median
from healthsvc.features.resistance import measured_inlet
from healthsvc.fleet import FleetHistory, Floats, Signal

Numbers = NDArray[np.float64]
SLOPE_S = 720.0  # enough for a median of eight integer sensors, short enough for a pump that stops in half an hour
STEADY_S = 1800.0  # the load must have been constant for so long: six time constants of a heat sink
FAST_SHARE, SLOW_TAU_S = 0.45, 240.0  # of resistance in die and spreader; time constant of plate or sink
LAG_S = 150.0  # by which temperature is behind the resistance: (1 - FAST_SHARE) x SLOW_TAU_S, and the die's seconds
AGREES = 5.0  # standard errors of the median
LEAST_RATE_PER_S = 0.04 / 3600.0  # slower than 4 % an hour leaves days: thermal_trend's and place_findings' matter
LEAST_WARMING_CELSIUS_PER_S = 1.5 / 3600.0
SENSOR_SD = 0.6  # celsius: the integer below, and the fan of one second or the next
LEAST_GPUS = 3
LAYERS = ("cooling_loop", "rack", "node")  # the narrowest that says something has the last word
NORMAL_DAYS = 14
MOST_AGE_S = 6 * 3600.0


@dataclass(frozen=True)
class HeatPath:
    """Each [gpu]. temperature_celsius of the last three minutes, NaN = not observed; rise_celsius: T - T_in;
    rate_per_s: at which it grows, 0 where nothing speaks for it; warming_celsius_per_s: of the inlet, likewise; age_s:
    how long it has been going on."""

    temperature_celsius: Numbers
    rise_celsius: Numbers
    rate_per_s: Numbers
    warming_celsius_per_s: Numbers
    age_s: Numbers

    @property
    def moving(self) -> NDArray[np.bool_]:
        """bool[gpu]: whether its temperature is on its way up."""
        return (self.rate_per_s > 0) | (self.warming_celsius_per_s > 0)

    def of(self, rows: NDArray[np.intp]) -> "HeatPath":
        """That of some GPUs."""
        return HeatPath(
            self.temperature_celsius[rows],
            self.rise_celsius[rows],
            self.rate_per_s[rows],
            self.warming_celsius_per_s[rows],
            self.age_s[rows],
        )


def heat_path(history: FleetHistory) -> HeatPath:
    """See the module; from the newest half hour of `recent` and the ledger's normal resistance."""
    window, gpus = history.recent, len(history.gpus)
    columns = min(max(round(STEADY_S / window.step_s), 2), len(window.times_s))
    inlet = measured_inlet(history)[:, -columns:]
    recent = window.columns(slice(-columns, None))
    temperature, power = recent.get(Signal.GPU_TEMPERATURE), recent.get(Signal.POWER)
    width = min(max(round(SLOPE_S / window.step_s), 2), columns)
    assumed = np.asarray(np.isnan(inlet).all(axis=1), bool)
    cold = np.where(assumed[:, None], np.float32(ASSUMED_INLET_CELSIUS), inlet)[:, -width:]
    rise = temperature[:, -width:] - cold + np.float32(FLOOR_CORRECTION_CELSIUS)
    steady = _steady(power, window.last(Signal.POWER_LIMIT))
    usable = steady[:, None] & (rise > 1.0)
    felt = _felt(power, window.step_s)[:, -width:]
    z = np.where(usable, np.log(np.where(usable, rise, 1.0)) - np.log(np.where(usable, felt, 1.0)), np.nan)
    slope, error = _slopes(z, window.step_s, SENSOR_SD / np.maximum(nan_mean(rise), 1.0))
    newest = slice(-max(width // 4, 1), None)
    now, warm = nan_mean(rise[:, newest]), nan_mean(temperature[:, newest]).astype(np.float64)

    warming, _ = _slopes(inlet[:, -width:].astype(np.float64), window.step_s, np.zeros(gpus))
    warming = np.where(warming >= LEAST_WARMING_CELSIUS_PER_S, warming, 0.0)
    rate = np.zeros(gpus)
    age = np.full(gpus, SLOPE_S)
    shift = nan_mean(z[:, -max(width // 3, 1) :]) - _normal(history)
    for layer in LAYERS:
        group = history.topology.group(layer, gpus)
        if not _any_rise(slope, error, group):
            continue
        common, agrees = _common(slope, error, group)
        speaks = agrees & (common >= LEAST_RATE_PER_S)
        rate = np.where(speaks, common, rate)
        moved = group_median(shift[:, None], group, at_least=LEAST_GPUS)[:, 0]
        lasted = np.where(np.isnan(moved), SLOPE_S, moved / np.where(speaks, common, 1.0))
        age = np.where(speaks, np.clip(lasted, SLOPE_S, MOST_AGE_S), age)
    known = ~np.isnan(now)
    return HeatPath(
        warm, np.where(known, now, 0.0), np.where(known, rate, 0.0), np.where(known & ~assumed, warming, 0.0), age
    )


def _steady(power: Floats, limit: Floats) -> NDArray[np.bool_]:
    """bool[gpu]: whether the load has been constant and high enough for the whole of it."""
    mean = nan_mean(power)
    ceiling = np.where(np.isnan(limit), nan_max(power), limit)
    return (nan_max(power) + nan_max(-power) < STEADY_RANGE * mean) & (mean > POWER_FLOOR * ceiling)


def _felt(power: Floats, step_s: float) -> Floats:
    """Power as the temperature of each moment has it: a part at once, a part by and by [gpu, time]; gaps are held."""
    keep = np.float32(np.exp(-step_s / SLOW_TAU_S))
    felt = np.empty_like(power)
    first = nan_mean(power[:, : max(round(SLOW_TAU_S / step_s), 1)]).astype(power.dtype)
    slow = held = np.where(np.isnan(first), nan_mean(power).astype(power.dtype), first)
    for t in range(power.shape[1]):
        held = np.where(np.isnan(power[:, t]), held, power[:, t])
        slow = keep * slow + (1 - keep) * held
        felt[:, t] = FAST_SHARE * held + (1 - FAST_SHARE) * slow
    return felt


def _slopes(values: Floats, step_s: float, sd: Numbers) -> tuple[Numbers, Numbers]:
    """Least-squares slope a second of each row and its standard error [gpu] if a sample has `sd`; NaN below half of
    the samples."""
    seen = ~np.isnan(values)
    count = seen.sum(axis=1)
    time_s = np.arange(values.shape[1]) * step_s
    middle = np.where(count > 0, (seen * time_s).sum(axis=1) / np.maximum(count, 1), 0.0)
    away = np.where(seen, time_s[None, :] - middle[:, None], 0.0)
    spread = (away**2).sum(axis=1)
    enough = (count >= values.shape[1] / 2) & (spread > 0)
    total = (away * np.where(seen, values, 0.0)).sum(axis=1)
    spread = np.where(enough, spread, 1.0)
    return np.where(enough, total / spread, np.nan), np.where(enough, sd / np.sqrt(spread), np.nan)


def _any_rise(slope: Numbers, error: Numbers, group: NDArray[np.int32]) -> bool:
    """Whether any group has three members that rise at all: in a calm fleet none has, and the medians cost nothing."""
    rising = (slope >= LEAST_RATE_PER_S) & (slope > error)
    return bool((group_count(rising, group) >= LEAST_GPUS).any())


def _common(slope: Numbers, error: Numbers, group: NDArray[np.int32]) -> tuple[Numbers, NDArray[np.bool_]]:
    """The median slope of each GPU's group, and whether its members agree on it, each [gpu]."""
    known = group_count(~np.isnan(slope), group)
    common = group_median(slope[:, None], group, at_least=LEAST_GPUS)[:, 0]
    apart = group_median(np.abs(slope - common)[:, None], group, at_least=LEAST_GPUS)[:, 0] * 1.4826
    noise = np.maximum(apart, group_median(error[:, None], group, at_least=LEAST_GPUS)[:, 0])
    with np.errstate(invalid="ignore"):
        agrees = common > AGREES * 1.2533 * noise / np.sqrt(np.maximum(known, 1))  # of a median: sqrt(pi / 2)
    return common.astype(np.float64), np.asarray(agrees, bool)


def _normal(history: FleetHistory) -> Numbers:
    """The ledger's log resistance of the last two finished weeks [gpu]; NaN where it has none."""
    daily = history.daily
    finished = slice(None, -1) if daily.unfinished else slice(None)
    return nan_median(daily.get("gpu_log_resistance")[:, finished][:, -NORMAL_DAYS:]).astype(np.float64)
