"""thermal_trend: when does a GPU's cooling path grow too resistive for its load?

Temperature follows load and weather; thermal resistance R = (T - T_in) / P does not. Daily log R is compared with the
GPUs of the same node, its trend is filtered, and the first passage to R* = (T_limit - T_in) / P at the load and inlet
the GPU really meets gives the hazard.

Blind to: faults common to a node or loop (the peer ratio cancels them), GPUs that never run at steady load, a limit
that memory reaches first, and steps faster than a day.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from healthsvc.features.first_passage import hit_probability, hit_quantiles
from healthsvc.features.medians import group_count, group_median, nan_last, nan_median, nan_quantile
from healthsvc.features.trend import TrendSpec, filter_trend
from healthsvc.fleet import (
    DAY_S,
    GRADES,
    HORIZONS_S,
    PROBABILITY_CAP,
    QUANTILES,
    Arrays,
    DailyLedger,
    FleetHistory,
    Forecast,
    Projection,
    Signal,
    align_rows,
)
from healthsvc.fleet.boards import MAX_OPERATING, SLOWDOWN, limit_in_force
from healthsvc.forecasters.base import Pool, aligned, device_ids, observed, rows_in_state

TIMES_DAYS = np.concatenate([[0.25, 0.5], np.arange(1.0, 31.0), np.arange(32.0, 182.0, 4.0)])  # up to 180 d
TREND = TrendSpec(level_step=0.001, slope_step=0.0001, slope_prior=0.003)
LEAST_SCATTER = 0.001  # of log R: a sensor of whole degrees shows no less
PEERS = 3  # observed GPUs that a node needs before its median means anything


@dataclass(frozen=True)
class ThermalTrend:
    """See the module. Deviations are of log R: 0.01 is 1 % of the resistance."""

    name: ClassVar[str] = "thermal_trend"
    failure_class: ClassVar[str] = "thermal"
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (
        frozenset({Signal.GPU_TEMPERATURE}),
        frozenset({Signal.POWER, Signal.ENERGY}),
    )
    uses: ClassVar[frozenset[Signal]] = frozenset({Signal.GPU_MAX_OPERATING_LIMIT, Signal.GPU_SLOWDOWN_LIMIT})
    pools: ClassVar[Pool] = "none"
    daily_state: ClassVar[bool] = True

    least_days: int = 7
    load_days: int = 14  # over which the load and inlet the GPU meets are taken
    noise_floor: float = 0.003
    # Days are autocorrelated (AR(1) about 0.4): white noise of the same long-run variance is (1 + 0.4) / (1 - 0.4) as
    # large, and a filter that believes in white noise must be given that one or it trusts its slope too much.
    noise_inflation: float = 1.53
    trend: TrendSpec = TREND

    def fit(self, history: FleetHistory) -> Arrays:
        """The trend of each GPU and the conditions it meets, as of the last day in the ledger."""
        daily = history.daily
        absolute = daily.get("gpu_log_resistance").astype(np.float64)
        ratio = peer_ratio(absolute, history.topology.group("node", len(daily.gpus)))
        noise = self._noise(ratio)
        trend = filter_trend(ratio, noise, self.trend)
        ready = trend.days >= self.least_days
        recent = slice(-self.load_days, None)
        peers = nan_median((absolute - ratio)[:, -7:])  # 0 for a GPU without peers
        first_days = np.where(np.cumsum(~np.isnan(ratio), axis=1) <= self.least_days, ratio, np.nan)
        return {
            "device_id": device_ids(daily.gpus),
            "fitted_day": np.array(float(daily.days[-1]) if len(daily.days) else np.nan),
            "level_log": np.where(ready, trend.level + peers, np.nan),
            "slope_log_per_day": np.where(ready, trend.slope, np.nan),
            "slope_sd": np.sqrt(trend.slope_var),
            "excess_log": np.where(ready, trend.level - nan_median(first_days), np.nan),
            "days": trend.days.astype(np.float64),
            "power_q95_watts": nan_quantile(daily.get("power_q95_watts")[:, recent], 0.9).astype(np.float64),
            "inlet_q95_celsius": nan_quantile(daily.get("inlet_q95_celsius")[:, recent], 0.9).astype(np.float64),
            "max_operating_celsius": _limit(daily, "gpu_max_operating_limit_celsius", MAX_OPERATING),
            "slowdown_celsius": _limit(daily, "gpu_slowdown_limit_celsius", SLOWDOWN),
        }

    def _noise(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        """Observation noise: the fleet's median day-to-day scatter, each GPU's own where it is larger."""
        own = day_scatter(ratio)
        fleet = float(nan_median(own)) if len(own) else np.nan
        floor = max(self.noise_floor, 0.0 if np.isnan(fleet) else fleet)
        return np.where(np.isnan(own), floor, np.maximum(own, floor)) * self.noise_inflation

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        """Hazard T2 by first passage to the max-operating limit, T1 to the hardware slowdown limit."""
        gpus = history.gpus
        rows = rows_in_state(state, gpus)

        def of(name: str) -> NDArray[np.float64]:
            return align_rows(state[name], rows).astype(np.float64)

        slope, slope_sd = of("slope_log_per_day"), of("slope_sd")
        known = observed(history, self.requires)
        # The level is that of the fitted day's noon, the middle of what it was measured over; it has drifted on since.
        age_days = np.clip(history.now_s / DAY_S - float(state["fitted_day"]) - 0.5, 0.0, 30.0)
        level = of("level_log") + slope * age_days
        hazard = np.full((len(gpus), len(GRADES), len(horizons_s)), np.nan)
        horizons_days = np.array(horizons_s) / DAY_S
        diffusion = np.full(len(gpus), self.trend.level_step * self.noise_inflation)
        distance = {}
        for grade, limit in enumerate(("max_operating_celsius", "slowdown_celsius")):
            critical = np.log(np.maximum(of(limit) - of("inlet_q95_celsius"), 1.0) / of("power_q95_watts"))
            distance[limit] = np.where(known, critical - level, np.nan)
            chance = hit_probability(horizons_days, distance[limit], slope, slope_sd, diffusion)
            hazard[:, grade] = -np.log1p(-np.minimum(chance, PROBABILITY_CAP))
        hazard[:, 1] = np.minimum(hazard[:, 0], hazard[:, 1])
        evidence = {
            "slope_ratio_per_day": slope,
            "excess_ratio": np.expm1(of("excess_log")),
            "resistance_kelvin_per_watt": np.exp(level),
            "headroom_at_q95_load_celsius": np.exp(level)
            * of("power_q95_watts")
            * np.expm1(distance["max_operating_celsius"]),
            "power_q95_watts": of("power_q95_watts"),
            "inlet_q95_celsius": of("inlet_q95_celsius"),
            "observed_days": of("days"),
        }
        return Forecast(
            tuple(horizons_s),
            hazard.astype(np.float32),
            np.where(known, ndtr(-slope / slope_sd), np.nan).astype(np.float32),
            _time_to_limit_s(distance["max_operating_celsius"], slope, slope_sd, diffusion),
            {name: np.where(known, values, np.nan).astype(np.float32) for name, values in evidence.items()},
        )

    def project(self, state: Arrays, history: FleetHistory, row: int) -> Projection:
        """Temperature at the load and inlet this GPU meets, past and 30 days ahead, against its limit."""
        gpu = (history.gpus[row],)
        one = {name: float(aligned(state, name, gpu)[0]) for name in state if name not in ("device_id", "fitted_day")}
        inlet, power = one["inlet_q95_celsius"], one["power_q95_watts"]
        ahead = np.arange(1.0, 31.0)
        spread = np.array([-1.2816, 0.0, 1.2816])[:, None] * one["slope_sd"]
        future = one["level_log"] + (one["slope_log_per_day"] + spread) * ahead
        past = history.daily.get("gpu_log_resistance")[row]
        return Projection(
            "gpu temperature at q95 load",
            "celsius",
            (history.daily.days.astype(np.float64) + 0.5) * DAY_S,
            inlet + power * np.exp(past),
            history.now_s + ahead * DAY_S,
            inlet + power * np.exp(future),
            one["max_operating_celsius"],
        )


def _time_to_limit_s(
    distance: NDArray[np.float64],
    slope: NDArray[np.float64],
    slope_sd: NDArray[np.float64],
    diffusion: NDArray[np.float64],
) -> NDArray[np.float32]:
    """Quantiles of the first passage [gpu, quantile]; the whole curve only for GPUs that reach the lowest one."""
    found = np.full((len(distance), len(QUANTILES)), np.nan, np.float32)
    by_the_end = hit_probability(TIMES_DAYS[-1:], distance, slope, slope_sd, diffusion)[:, 0]
    rows = np.flatnonzero(by_the_end >= QUANTILES[0])
    curve = hit_probability(TIMES_DAYS, distance[rows], slope[rows], slope_sd[rows], diffusion[rows])
    found[rows] = hit_quantiles(curve, TIMES_DAYS, QUANTILES) * DAY_S
    return found


def excess_sigma(daily: DailyLedger, node: NDArray[np.int32], baseline_days: int = 7) -> NDArray[np.float64]:
    """log R against peers, above the GPU's own first week, in standard deviations of its days [gpu, day]; NaN where
    nothing was observed, and within that week. What a reader of the past would call an excess.
    """
    ratio = peer_ratio(daily.get("gpu_log_resistance").astype(np.float64), node)
    number = np.cumsum(~np.isnan(ratio), axis=1)
    normal = nan_median(np.where(number <= baseline_days, ratio, np.nan))
    noise = np.maximum(day_scatter(ratio), LEAST_SCATTER)
    return np.where(number > baseline_days, (ratio - normal[:, None]) / noise[:, None], np.nan)


def day_scatter(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of a GPU's days [gpu], from the median step between them, which no trend moves."""
    steps = np.abs(np.diff(ratio, axis=1))
    return np.asarray(nan_median(steps) / (0.6745 * np.sqrt(2.0)))  # MAD of a difference of two normal deviates


def peer_ratio(log_r: NDArray[np.float64], node: NDArray[np.int32]) -> NDArray[np.float64]:
    """log R minus the node's median [gpu, day]; a GPU whose node has fewer than three GPUs keeps its own log R.

    The choice is made per GPU and not per day, so that a day with few observed peers is missing, not a step.
    """
    has_peers = group_count(np.ones(len(node), bool), node) >= PEERS
    ratio: NDArray[np.float64] = np.where(has_peers[:, None], log_r - group_median(log_r, node, at_least=PEERS), log_r)
    return ratio


def _limit(daily: DailyLedger, name: str, column: int) -> NDArray[np.float64]:
    """The newest reported limit, else the board's own."""
    return limit_in_force(nan_last(daily.get(name)), daily.gpus, column)
