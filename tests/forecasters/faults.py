"""Forecasters with one fault each, by the rule that must catch it. Each is a real forecaster but for that."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from healthsvc.features.medians import group_median
from healthsvc.fleet import (
    DAY_S,
    HORIZONS_S,
    Arrays,
    FleetHistory,
    Forecast,
    Projection,
    Signal,
)
from healthsvc.forecasters.base import device_ids
from healthsvc.forecasters.device_loss import DeviceLoss
from healthsvc.forecasters.ecc_growth import EccGrowth
from healthsvc.forecasters.thermal_trend import ThermalTrend
from healthsvc.testing import conduct_rules, verdict_rules
from tests.forecasters.shipped import shipped

FAULTS: dict[Callable[..., None], list[Any]] = defaultdict(list)


def breaks(rule: Callable[..., None]) -> Callable[[type], type]:
    """Registers an instance of the class under the rule that it breaks."""

    def register(fault: type) -> type:
        FAULTS[rule].append(shipped(fault))
        return fault

    return register


@dataclass(frozen=True)
class Altered(EccGrowth):
    """A good forecast, then `alter`."""

    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        raise NotImplementedError

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        return self.alter(super().forecast(state, history, horizons_s), history)


class Alone(Altered):
    """Only the hazard, which pools nothing: without the change alarm, whose false-discovery rate is the fleet's."""

    pools: ClassVar[Literal["none", "node", "domain", "fleet"]] = "none"

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        told = super().forecast(state, history, horizons_s)
        return replace(told, change_p=np.full_like(told.change_p, np.nan), evidence={})


def scaled(forecast: Forecast, factor: Any) -> Forecast:
    hazard = forecast.cumulative_hazard * np.reshape(factor, (-1, 1, 1))
    return replace(forecast, cumulative_hazard=hazard.astype(np.float32))


@breaks(verdict_rules.a_forecast_has_the_shapes_and_types_it_promises)
class Float64(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return replace(forecast, cumulative_hazard=forecast.cumulative_hazard.astype(np.float64))


@breaks(verdict_rules.a_forecast_has_the_shapes_and_types_it_promises)
class HalfARow(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        hazard = forecast.cumulative_hazard.copy()
        hazard[3, 1, -1] = np.nan
        return replace(forecast, cumulative_hazard=hazard)


@breaks(verdict_rules.a_forecast_has_the_shapes_and_types_it_promises)
class TailAboveOne(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return replace(forecast, change_p=forecast.change_p + np.float32(0.5))


@breaks(verdict_rules.a_forecast_has_the_shapes_and_types_it_promises)
class OwnHorizons(EccGrowth):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        return super().forecast(state, history, HORIZONS_S)


@breaks(verdict_rules.a_forecast_has_the_shapes_and_types_it_promises)
class OneGpuShort(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return replace(forecast, cumulative_hazard=forecast.cumulative_hazard[:-1])


@breaks(verdict_rules.hazard_is_never_negative_and_rises_with_the_horizon)
class Falling(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return replace(forecast, cumulative_hazard=forecast.cumulative_hazard[:, :, ::-1])


@breaks(verdict_rules.hazard_is_never_negative_and_rises_with_the_horizon)
class Negative(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return replace(forecast, cumulative_hazard=forecast.cumulative_hazard - np.float32(0.001))


@breaks(verdict_rules.hazard_is_never_negative_and_rises_with_the_horizon)
class Endless(DeviceLoss):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        forecast = super().forecast(state, history, horizons_s)
        hazard = np.where(forecast.cumulative_hazard > 6.9, np.float32(np.inf), forecast.cumulative_hazard)
        return replace(forecast, cumulative_hazard=hazard)


@breaks(verdict_rules.a_terminal_failure_is_never_likelier_than_a_service_event)
class GradesSwapped(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return replace(forecast, cumulative_hazard=forecast.cumulative_hazard[:, ::-1])


@breaks(verdict_rules.a_gpu_without_data_on_a_silent_node_is_unknown)
class SilenceIsHealth(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return replace(forecast, cumulative_hazard=np.nan_to_num(forecast.cumulative_hazard))


@breaks(verdict_rules.a_gpu_without_data_on_a_silent_node_is_unknown)
class SpeaksForTheGone(ThermalTrend):
    """What was learned is said again although nothing is heard any more."""

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        recent = history.recent
        filled = {s: np.nan_to_num(v, nan=1.0) for s, v in recent.values.items()}
        return super().forecast(state, replace(history, recent=replace(recent, values=filled)), horizons_s)


class TemperatureIsEnough(ThermalTrend):
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (frozenset({Signal.GPU_TEMPERATURE}),)


@breaks(verdict_rules.a_gpu_that_lacks_a_required_group_is_unknown)
class ForgetsPower(ThermalTrend):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        return shipped(TemperatureIsEnough).forecast(state, history, horizons_s)


@breaks(verdict_rules.a_gpu_that_falls_silent_takes_nobody_with_it)
class DragsItsNodeDown(Alone):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        node = history.topology.group("node", len(history.gpus))
        return scaled(forecast, [1.0 + 0.0 * forecast.cumulative_hazard[node == n].sum() for n in node])


@breaks(conduct_rules.inputs_are_left_untouched)
class WritesToTheHistory(EccGrowth):
    def fit(self, history: FleetHistory) -> Arrays:
        groups = history.topology.groups["rack"]
        groups[0] = 1 - groups[0]
        return super().fit(history)


@breaks(conduct_rules.inputs_are_left_untouched)
class WritesBehindTheView(EccGrowth):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        owner: Any = history.recent.get(Signal.POWER)
        while owner.base is not None:
            owner = owner.base
        owner[0, 0] += 1
        return super().forecast(state, history, horizons_s)


@breaks(conduct_rules.inputs_are_left_untouched)
class WritesToAReadOnlyArray(EccGrowth):
    def fit(self, history: FleetHistory) -> Arrays:
        history.daily.exposure_h[0, 0] = 1.0
        return super().fit(history)


@breaks(conduct_rules.inputs_are_left_untouched)
class LearnsWhileForecasting(EccGrowth):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        state["windows_a"][0] += 1
        return super().forecast(state, history, horizons_s)


@breaks(conduct_rules.the_same_input_gives_the_same_forecast)
class RollsDice(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return scaled(forecast, 1.0 + np.random.default_rng().random(len(history.gpus)) / 100)


@breaks(conduct_rules.the_order_of_the_gpus_does_not_matter)
class CountsRows(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return scaled(forecast, 1.0 + np.arange(len(history.gpus)) / 1000)


@breaks(conduct_rules.the_order_of_the_gpus_does_not_matter)
class StateByPosition(ThermalTrend):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        return super().forecast({**state, "device_id": device_ids(history.gpus)}, history, horizons_s)


@breaks(conduct_rules.gpus_outside_the_pool_change_nothing)
class LooksAtTheFleet(Alone):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return scaled(forecast, 1.0 + np.nansum(history.recent.last(Signal.GPU_TEMPERATURE)) / 1e4)


@breaks(conduct_rules.gpus_outside_the_pool_change_nothing)
class LooksAtItsNode(Alone):
    """pools says `none`, but the node's median power sets the scale."""

    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        power = history.daily.get("power_q95_watts")[:, -1:]
        middle = group_median(power, history.topology.group("node", len(power)))[:, 0]
        return scaled(forecast, 1.0 + np.nan_to_num(middle) / 1000)


@breaks(conduct_rules.gpus_outside_the_pool_change_nothing)
class CountsTheFleet(Alone):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return scaled(forecast, 1.0 + len(history.gpus) / 1000)


@breaks(conduct_rules.gpus_outside_the_pool_change_nothing)
class ClaimsToPoolNothing(DeviceLoss):
    pools: ClassVar[Literal["none", "node", "domain", "fleet"]] = "none"


@breaks(conduct_rules.whole_weeks_of_shift_change_nothing)
class WallClock(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return scaled(forecast, 1.0 + abs(time.time() - history.now_s) / 1e9)


@breaks(conduct_rules.whole_weeks_of_shift_change_nothing)
class FleetOfAnAge(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return scaled(forecast, history.now_s / (20_000 * DAY_S))


@breaks(conduct_rules.the_future_is_not_known)
class CountsAllEvents(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        return scaled(forecast, 1.0 + np.bincount(history.events.row, minlength=len(history.gpus)))


@breaks(conduct_rules.the_future_is_not_known)
class KnowsTheEnd(Altered):
    def alter(self, forecast: Forecast, history: FleetHistory) -> Forecast:
        events = history.events.where(history.events.start_s <= history.now_s)
        ended = events.where(np.isfinite(events.end_s))
        return scaled(forecast, 1.0 + np.bincount(ended.row, minlength=len(history.gpus)))


@breaks(conduct_rules.a_forecaster_that_reads_no_events_says_the_same_without_them)
class DeniesItsEvents(EccGrowth):
    reads_events: ClassVar[bool] = False


@breaks(conduct_rules.state_survives_a_file)
class ObjectState(EccGrowth):
    def fit(self, history: FleetHistory) -> Arrays:
        return {**super().fit(history), "notes": np.array([{"fitted": True}], object)}


@breaks(conduct_rules.state_survives_a_file)
class ListState(EccGrowth):
    def fit(self, history: FleetHistory) -> Arrays:
        extra: Any = [1.0, 2.0]
        return {**super().fit(history), "notes": extra}


@breaks(verdict_rules.a_newcomer_gets_a_row)
class KnowsItsFleetOnly(EccGrowth):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        known = {device_id: row for row, device_id in enumerate(state["device_id"])}
        rows = np.array([known[gpu.device_id] for gpu in history.gpus], np.intp)
        return super().forecast({**state, "windows_a": state["windows_a"][rows]}, history, horizons_s)


@breaks(verdict_rules.a_newcomer_gets_a_row)
class NewcomersAreEndless(Altered):
    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        new = ~np.isin(device_ids(history.gpus), state["device_id"])
        return scaled(EccGrowth.forecast(self, state, history, horizons_s), np.where(new, -1.0, 1.0))


@breaks(verdict_rules.a_first_start_without_a_ledger_is_no_error)
class NeedsADay(EccGrowth):
    def fit(self, history: FleetHistory) -> Arrays:
        return {**super().fit(history), "today": np.array(history.daily.days[-1])}


@breaks(verdict_rules.one_gpu_can_be_projected)
class QuantilesCross(ThermalTrend):
    def project(
        self,
        state: Arrays,
        history: FleetHistory,
        row: int,
        power_watts: float | None = None,
        inlet_celsius: float | None = None,
    ) -> Projection:
        projection = super().project(state, history, row, power_watts, inlet_celsius)
        return replace(projection, future=projection.future[::-1])


@breaks(verdict_rules.one_gpu_can_be_projected)
class PastTooShort(DeviceLoss):
    def project(self, state: Arrays, history: FleetHistory, row: int) -> Projection:
        projection = super().project(state, history, row)
        return replace(projection, past=projection.past[1:])
