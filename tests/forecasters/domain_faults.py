"""Forecasters of domains with one fault each, by the rule that must catch it."""

from dataclasses import replace

import numpy as np

from healthsvc.fleet import DAY_S, LIVENESS, Arrays, DomainForecast, FleetHistory, Signal
from healthsvc.forecasters.throttling_cascade import ThrottlingCascade
from healthsvc.testing import conduct_rules, domain_rules
from tests.forecasters.faults import breaks


class AlteredDomains(ThrottlingCascade):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        raise NotImplementedError

    def forecast(self, state: Arrays, history: FleetHistory) -> DomainForecast:
        return self.alter(super().forecast(state, history), history)


def dimmed(forecast: DomainForecast, factor: float) -> DomainForecast:
    p = forecast.probability_at_least_k * factor
    return replace(forecast, probability_at_least_k=p.astype(np.float32))


@breaks(domain_rules.a_domain_forecast_has_the_shapes_and_types_it_promises)
class Float64Domains(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return replace(forecast, probability_at_least_k=forecast.probability_at_least_k.astype(np.float64))


@breaks(domain_rules.a_domain_forecast_has_the_shapes_and_types_it_promises)
class SaysNothing(AlteredDomains):
    def forecast(self, state: Arrays, history: FleetHistory) -> DomainForecast:
        return ThrottlingCascade.forecast(self, state, history.take(np.zeros(0, np.intp)))


class AlteredHours(AlteredDomains):
    def hours(self, forecast: DomainForecast) -> np.ndarray:
        raise NotImplementedError

    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return replace(forecast, expected_lost_gpu_hours=self.hours(forecast).astype(np.float32))


@breaks(domain_rules.a_domain_forecast_has_the_shapes_and_types_it_promises)
class GainsHours(AlteredHours):
    def hours(self, forecast: DomainForecast) -> np.ndarray:
        return -1.0 - forecast.expected_lost_gpu_hours


@breaks(domain_rules.a_domain_forecast_has_the_shapes_and_types_it_promises)
class HoursUnknown(AlteredHours):
    def hours(self, forecast: DomainForecast) -> np.ndarray:
        return np.nan * forecast.expected_lost_gpu_hours


@breaks(conduct_rules.the_same_input_gives_the_same_forecast)
class RollsDiceForHours(AlteredHours):
    def hours(self, forecast: DomainForecast) -> np.ndarray:
        return forecast.expected_lost_gpu_hours + np.random.default_rng().random(len(forecast.domains))


@breaks(domain_rules.probability_rises_with_the_horizon_and_falls_with_k)
class MoreMembersAreLikelier(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return replace(forecast, probability_at_least_k=forecast.probability_at_least_k[:, ::-1])


@breaks(domain_rules.probability_rises_with_the_horizon_and_falls_with_k)
class LaterIsSafer(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return replace(forecast, probability_at_least_k=forecast.probability_at_least_k[:, :, ::-1])


@breaks(domain_rules.a_domain_without_data_is_unknown)
@breaks(domain_rules.a_missing_required_group_leaves_no_domain)
class SilenceIsCool(AlteredDomains):
    def forecast(self, state: Arrays, history: FleetHistory) -> DomainForecast:
        filled = {s: np.nan_to_num(v) for s, v in history.recent.values.items()}
        return ThrottlingCascade.forecast(self, state, replace(history, recent=replace(history.recent, values=filled)))


@breaks(conduct_rules.inputs_are_left_untouched)
class RatesGrowWhileForecasting(AlteredDomains):
    def forecast(self, state: Arrays, history: FleetHistory) -> DomainForecast:
        state["onset_rate_per_day"][0] += 1
        return super().forecast(state, history)

    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return forecast


@breaks(conduct_rules.the_same_input_gives_the_same_forecast)
class RollsDiceForDomains(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return dimmed(forecast, 1.0 - np.random.default_rng().random() / 10)


@breaks(conduct_rules.the_order_of_the_gpus_does_not_matter)
class FirstRowDecides(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        order = [int(gpu.device_id[-2:]) for gpu in history.gpus]
        return dimmed(forecast, 1.0 - (order[0] + 2 * order[-1] + 3 * order[1]) / 1000 if order else 1.0)


@breaks(conduct_rules.gpus_outside_the_pool_change_nothing)
class FleetHeats(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        warmth = np.nan_to_num(history.recent.last(Signal.GPU_TEMPERATURE)).sum()
        return dimmed(forecast, 1.0 - warmth / 1e5)


@breaks(conduct_rules.gpus_outside_the_pool_change_nothing)
class CountsTheFleet(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return dimmed(forecast, 1.0 - len(history.gpus) / 1000)


@breaks(conduct_rules.whole_weeks_of_shift_change_nothing)
class DomainsOfAnAge(AlteredDomains):
    def alter(self, forecast: DomainForecast, history: FleetHistory) -> DomainForecast:
        return dimmed(forecast, 20_000 * DAY_S / history.now_s / 2)


@breaks(conduct_rules.the_future_is_not_known)
class RateOfAllEvents(ThrottlingCascade):
    def fit(self, history: FleetHistory) -> Arrays:
        state = dict(super().fit(history))
        state["onset_rate_per_day"] = state["onset_rate_per_day"] + np.bincount(
            history.events.row, minlength=len(history.gpus)
        )
        return state


@breaks(conduct_rules.state_survives_a_file)
class ObjectStateOfDomains(ThrottlingCascade):
    def fit(self, history: FleetHistory) -> Arrays:
        return {**super().fit(history), "signals": np.array([*LIVENESS, None], object)}


@breaks(domain_rules.newcomers_and_a_first_start_are_no_error)
class DomainsNeedADay(ThrottlingCascade):
    def fit(self, history: FleetHistory) -> Arrays:
        return {**super().fit(history), "today": np.array(history.daily.days[-1])}
