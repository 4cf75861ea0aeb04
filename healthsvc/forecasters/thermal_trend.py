"""thermal_trend: when does a GPU's cooling path grow too resistive for its load?

Temperature follows load and weather; thermal resistance R = (T - T_in) / P does not. Daily log R, of the die and of the
memory, is compared with the GPUs of the same node. A test against noise that remembers yesterday says how likely it is
that a GPU drifts, a filter says how fast, and the first passage to R* = (T_limit - T_in) / P at the load and inlet the
GPU really meets gives the hazard: that of a drift and that of standing still, weighed by that probability.

Blind to: faults common to a node or loop (the peer ratio cancels them; as a cause they are told from the days of the
ledger, incidents are not opened from resistance yet), GPUs that never run at steady load, and steps faster than a day.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.drift import day_scatter
from healthsvc.features.first_passage import Course
from healthsvc.features.medians import nan_last, nan_mean, nan_median
from healthsvc.features.resistance import peak_gap, peer_ratio
from healthsvc.fleet import (
    DAY_S,
    GRADES,
    HORIZONS_S,
    PROBABILITY_CAP,
    QUANTILES,
    Arrays,
    DailyLedger,
    FleetHistory,
    Floats,
    Forecast,
    Projection,
    Signal,
)
from healthsvc.fleet.boards import MAX_OPERATING, MEMORY_MAX_OPERATING, SLOWDOWN
from healthsvc.forecasters.base import Pool, device_ids, observed
from healthsvc.forecasters.thermal.asked import Asked
from healthsvc.forecasters.thermal.cause import cause_of, place_shifts
from healthsvc.forecasters.thermal.conditions import (
    comparable_days,
    critical_log,
    limit_celsius,
    settled_since,
    similar_days,
    usual_peak,
    usual_room,
)
from healthsvc.forecasters.thermal.crossing import Outlook, standing_still
from healthsvc.forecasters.thermal.node import NodePart
from healthsvc.forecasters.thermal.path import PathSpec
from healthsvc.forecasters.thermal.sensor import Fleet, Learned, SensorSpec, learn_sensor

LEAST_SCATTER = 0.001  # of log R: a sensor of whole degrees shows no less
FORGOTTEN_DAYS = 21  # without a steady day, after which nothing is said
MOSTLY = 0.5  # of the days with an inlet
Sensor = tuple[str, float, tuple[str, ...]]
# Prefix in the state; share of the false alarms that both drift tests may make together, the die's the larger one,
# because interfaces age and spare the memory; limit of each grade.
SENSORS: tuple[Sensor, ...] = (
    ("", 0.9, ("max_operating_celsius", "slowdown_celsius")),
    ("memory_", 0.1, ("memory_max_celsius",)),  # memory at its limit throttles by software: never terminal by itself
)


@dataclass(frozen=True)
class ThermalTrend:
    """See the module. Deviations are of log R: 0.01 is 1 % of the resistance."""

    name: ClassVar[str] = "thermal_trend"
    failure_class: ClassVar[str] = "thermal"
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (
        frozenset({Signal.GPU_TEMPERATURE}),
        frozenset({Signal.POWER, Signal.ENERGY}),
    )
    uses: ClassVar[frozenset[Signal]] = frozenset(
        {
            Signal.GPU_MAX_OPERATING_LIMIT,
            Signal.GPU_SLOWDOWN_LIMIT,
            Signal.GPU_TEMPERATURE_MARGIN,
            Signal.MEMORY_TEMPERATURE,
            Signal.MEMORY_MAX_OPERATING_LIMIT,
        }
    )
    pools: ClassVar[Pool] = "none"
    daily_state: ClassVar[bool] = True
    reads_events: ClassVar[bool] = False  # a move begins a path anew at the next training

    load_days: int = 14  # over which the load and inlet the GPU meets are taken
    inlet_sd_log: float = 0.006  # 3 C over a load that differs by a tenth, where no inlet is measured
    season_step: float = 0.004  # of the room to the limit, per square root of a day: season, jobs, fans
    interval_scale: float = 1.15  # of predicted deviations, until a site's own past forecasts say better
    counted_p: float = 3e-6  # tail of the drift test below which a drift counts in the hazards
    path: PathSpec = field(default_factory=PathSpec)

    def fit(self, history: FleetHistory) -> Arrays:
        """The trend of each GPU and the conditions it meets, as of the last day in the ledger."""
        daily, gpus = history.daily, history.daily.gpus
        node = history.topology.group("node", len(gpus))
        products = {name: number for number, name in enumerate(sorted({gpu.product for gpu in gpus}))}
        model = np.array([products[gpu.product] for gpu in gpus], np.intp)
        inlet, power = (daily.get(name).astype(np.float64) for name in ("inlet_q95_celsius", "power_q95_watts"))
        met_inlet, met_power = usual_peak(inlet, self.load_days), usual_peak(power, self.load_days)
        limits = {
            "max_operating_celsius": limit_celsius(daily.get("gpu_max_operating_limit_celsius"), gpus, MAX_OPERATING),
            "slowdown_celsius": limit_celsius(daily.get("gpu_slowdown_limit_celsius"), gpus, SLOWDOWN),
            "memory_max_celsius": limit_celsius(
                daily.get("memory_max_operating_limit_celsius"), gpus, MEMORY_MAX_OPERATING
            ),
        }
        measured = nan_mean(daily.get("inlet_measured_ratio")[:, -self.load_days :])
        similar = similar_days(power, inlet, met_power, met_inlet)
        # Fans answer for die and memory alike, and only the die's peak is on record.
        blind = ~(measured >= MOSTLY)
        fleet = Fleet(node, 2 * model + blind, blind, peak_gap(daily, node))
        spec = SensorSpec(self.path, self.season_step, self.interval_scale, self.load_days)
        days = np.arange(len(daily.days), dtype=np.float64)[None, :]
        comparable = comparable_days(power, met_power, fleet.blind)
        began = settled_since(history.events.known_at(history.now_s), daily.days, len(gpus))

        def learn(column: str, limit: str, die: NodePart | None) -> Learned:
            critical = np.where(similar, critical_log(limits[limit][:, None], inlet, power), np.nan)
            log_r = np.where(comparable & (days >= began[:, None]), daily.get(column), np.nan).astype(np.float64)
            return learn_sensor(log_r, critical, fleet, spec, die)

        die = learn("gpu_log_resistance", "max_operating_celsius", None)
        memory = learn("memory_log_resistance", "memory_max_celsius", die.part)
        critical = np.where(similar, critical_log(limits["max_operating_celsius"][:, None], inlet, power), np.nan)
        room, room_sd = usual_room(
            critical[:, -self.load_days :], critical_log(limits["max_operating_celsius"], met_inlet, met_power)
        )
        shifts, inlet_rise = place_shifts(daily, history.topology, similar)
        return {
            "device_id": device_ids(gpus),
            "fitted_day": np.array(float(daily.days[-1]) if len(daily.days) else np.nan),
            **die.state,
            **{f"memory_{name}": values for name, values in memory.state.items()},
            **limits,
            "power_q95_watts": met_power,
            "inlet_q95_celsius": met_inlet,
            "usual_room_log": room,
            "room_sd_log": room_sd,
            "inlet_measured_ratio": measured,
            "steady_windows": nan_mean(daily.get("steady_windows")[:, -7:]),
            "idle_days": days.shape[1] - 1 - nan_last(np.where(np.isnan(die.ratio), np.nan, days)),
            "cause_code": cause_of(die.found, memory.found, memory.ratio, shifts, inlet_rise, fleet.blind).astype(
                np.float64
            ),
            "node_excess_log": shifts.node,
            "loop_excess_log": shifts.loop,
            "inlet_rise_celsius": inlet_rise,
        }

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        """Hazard T2 by first passage to the max-operating limit of die or memory, T1 to the die's slowdown limit."""
        gpus, asked = history.gpus, Asked(state, history)
        known = observed(history, self.requires) & ~np.isnan(asked.of("level_log"))
        known &= ~(asked.of("idle_days") > FORGOTTEN_DAYS)
        hazard = np.full((len(gpus), len(GRADES), len(horizons_s)), np.nan)
        horizons_days = np.array(horizons_s) / DAY_S
        when = np.full((len(gpus), len(QUANTILES)), np.nan, np.float32)
        order = np.argsort(horizons_days, kind="stable")
        rows = np.flatnonzero(known)
        room = {}
        change_p = np.full(len(gpus), np.nan)
        for prefix, share, limits in SENSORS:
            tail = asked.of(f"{prefix}change_p") / share
            change_p = np.fmin(change_p, tail)
            outlook = self._outlook(asked, prefix, tail)
            for grade, limit in enumerate(limits):
                critical = asked.critical(limit)
                room[limit] = critical - outlook.standing.level
                chance = np.full((len(gpus), len(horizons_s)), np.nan)
                chance[rows[:, None], order] = outlook.take(rows).probability(horizons_days[order], critical[rows])
                added = -np.log1p(-np.minimum(chance, PROBABILITY_CAP))
                # Two ways into the same event add; a memory without a sensor adds nothing.
                hazard[:, grade] = added if not prefix else hazard[:, grade] + np.nan_to_num(added)
                if grade == 0:
                    own = np.full_like(when, np.nan)
                    own[rows] = outlook.take(rows).time_to_limit_s(critical[rows])
                    when = np.fmin(when, own)
        hazard = np.minimum(hazard, -np.log1p(-PROBABILITY_CAP))
        hazard[:, 1] = np.minimum(hazard[:, 0], hazard[:, 1])
        return Forecast(
            tuple(horizons_s),
            hazard.astype(np.float32),
            np.where(known, np.minimum(change_p, 1.0), np.nan).astype(np.float32),
            when,
            self._evidence(asked, room, known),
        )

    def _outlook(self, asked: Asked, prefix: str, tail: NDArray[np.float64]) -> Outlook:
        """Where the path of one sensor stands now, and whither; it has drifted on since the noon of the fitted day.

        A drift that noise may be counts for nothing: times a higher chance of meeting the limit, in a warm week, it
        would be news of the room and not of the path. tail: of its drift test [gpu].
        """

        def of(name: str) -> NDArray[np.float64]:
            return asked.of(prefix + name)

        slope, scale = of("slope_log_per_day") + of("node_slope_log_per_day"), of("interval_scale")
        drift_p = np.where(tail >= self.counted_p, 0.0, of("drift_p"))
        level = of("level_log") + drift_p * slope * asked.age_days
        unseen = np.where(asked.of("inlet_measured_ratio") >= MOSTLY, 0.0, self.inlet_sd_log**2)
        shared_var = of("node_var") + unseen
        own = of("noise")
        noise = np.hypot(own, asked.of("room_sd_log"))  # of which only the GPU's own part remembers yesterday
        drifting = Course(
            level,
            slope,
            (of("level_var") + shared_var) * scale**2,
            of("cross_var") * scale**2,
            of("slope_var") * scale**2,
            self.season_step * scale,
            noise,
            of("persistence") * (own / noise) ** 2,
        )
        standing = standing_still(level, of("level_var") + shared_var, own, of("persistence"))
        return Outlook(drifting, standing, drift_p, asked.of("usual_room_log"))

    def _evidence(
        self, asked: Asked, room: dict[str, NDArray[np.float64]], known: NDArray[np.bool_]
    ) -> dict[str, Floats]:
        power = asked.of("power_q95_watts")

        def headroom(sensor: str, limit: str) -> NDArray[np.float64]:
            return np.exp(asked.of(f"{sensor}level_log")) * power * np.expm1(room[limit])

        evidence = {
            "slope_ratio_per_day": asked.of("slope_log_per_day"),
            "slope_sd_ratio_per_day": np.sqrt(asked.of("slope_var")),
            "excess_ratio": np.expm1(asked.of("excess_log")),
            "memory_excess_ratio": np.expm1(asked.of("memory_excess_log")),
            "node_excess_ratio": np.expm1(asked.of("node_excess_log")),
            "loop_excess_ratio": np.expm1(asked.of("loop_excess_log")),
            "drift_probability_ratio": np.fmax(asked.of("drift_p"), asked.of("memory_drift_p")),
            "cause_code": asked.of("cause_code"),
            "resistance_kelvin_per_watt": np.exp(asked.of("level_log")),
            "headroom_at_q95_load_celsius": headroom("", "max_operating_celsius"),
            "memory_headroom_at_q95_load_celsius": headroom("memory_", "memory_max_celsius"),
            "power_q95_watts": power,
            "inlet_q95_celsius": asked.of("inlet_q95_celsius"),
            "inlet_rise_celsius": asked.of("inlet_rise_celsius"),
            "inlet_measured_ratio": asked.of("inlet_measured_ratio"),
        }
        # How much there is to judge by is said of everybody, above all of those who cannot be judged.
        grounds = {
            "observed_days": asked.of("days"),
            "steady_windows": asked.of("steady_windows"),
            "reset_days": asked.of("reset_days"),
        }
        shown = {name: np.where(known, values, np.nan) for name, values in evidence.items()}
        return {name: values.astype(np.float32) for name, values in {**shown, **grounds}.items()}

    def project(
        self,
        state: Arrays,
        history: FleetHistory,
        row: int,
        power_watts: float | None = None,
        inlet_celsius: float | None = None,
    ) -> Projection:
        """Temperature at the load and inlet this GPU meets, past and 30 days ahead, against its limit.

        power_watts, inlet_celsius: what if it met these instead (a power cap, another place).
        """
        one = Asked(state, history, row)
        inlet = float(one.of("inlet_q95_celsius")[0]) if inlet_celsius is None else inlet_celsius
        power = float(one.of("power_q95_watts")[0]) if power_watts is None else power_watts
        course = self._outlook(one, "", one.of("change_p")).drifting
        ahead = np.arange(1.0, 31.0)
        drift = float(one.of("drift_p")[0]) * course.slope
        sd = np.sqrt(course.level_var + 2 * ahead * course.cross_var + ahead**2 * course.slope_var)
        future = course.level + drift * ahead + np.array([-1.2816, 0.0, 1.2816])[:, None] * sd
        past = history.daily.get("gpu_log_resistance")[row]
        return Projection(
            "gpu temperature at q95 load",
            "celsius",
            (history.daily.days.astype(np.float64) + 0.5) * DAY_S,
            inlet + power * np.exp(past),
            history.now_s + ahead * DAY_S,
            inlet + power * np.exp(future),
            float(one.of("max_operating_celsius")[0]),
        )


def excess_sigma(daily: DailyLedger, node: NDArray[np.int32], baseline_days: int = 7) -> NDArray[np.float64]:
    """log R against peers, above the GPU's own first week, in standard deviations of its days [gpu, day]; NaN where
    nothing was observed, and within that week. What a reader of the past would call an excess.
    """
    ratio = peer_ratio(daily.get("gpu_log_resistance").astype(np.float64), node)
    number = np.cumsum(~np.isnan(ratio), axis=1)
    normal = nan_median(np.where(number <= baseline_days, ratio, np.nan))
    noise = np.maximum(day_scatter(ratio), LEAST_SCATTER)
    return np.where(number > baseline_days, (ratio - normal[:, None]) / noise[:, None], np.nan)
