"""What every forecaster of domains must say and do; as `rules`, for DomainForecast. A domain is one (layer, name)."""

from collections.abc import Callable

import numpy as np

from healthsvc.fleet import LEAST_MEMBERS, DomainForecast, FleetHistory
from healthsvc.forecasters.base import DomainForecaster
from healthsvc.testing.changes import silenced, without_days, without_signals
from healthsvc.testing.compare import require
from healthsvc.testing.conduct_rules import (
    gpus_outside_the_pool_change_nothing,
    inputs_are_left_untouched,
    state_survives_a_file,
    the_future_is_not_known,
    the_order_of_the_gpus_does_not_matter,
    the_same_input_gives_the_same_forecast,
    whole_weeks_of_shift_change_nothing,
)

Rule = Callable[[DomainForecaster, FleetHistory, np.random.Generator], None]


def _answer(forecaster: DomainForecaster, history: FleetHistory) -> DomainForecast:
    return forecaster.forecast(forecaster.fit(history), history)


def a_domain_forecast_has_the_shapes_and_types_it_promises(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    forecast = _answer(forecaster, history)
    domains = len(forecast.domains)
    require(domains > 0, "the history has domains with data, but none was forecast")
    shape = (domains, LEAST_MEMBERS, len(forecast.horizons_s))
    p, hours = forecast.probability_at_least_k, forecast.expected_lost_gpu_hours
    require(p.shape == shape, f"probability_at_least_k has shape {p.shape}; needs {shape}")
    for name in ("probability_at_least_k", "expected_lost_gpu_hours"):
        dtype = getattr(forecast, name).dtype
        require(dtype == np.float32, f"{name} is {dtype}; needs float32")
    for values in (hours, forecast.throttling, forecast.members):
        require(len(values) == domains, f"{domains} domains, but an array of {len(values)}")
    for i, (domain, rows) in enumerate(zip(forecast.domains, forecast.members, strict=True)):
        require(len(rows) >= LEAST_MEMBERS, f"{domain} is forecast with {len(rows)} members; needs {LEAST_MEMBERS}")
        known = not np.isnan(p[i]).any()
        require(known != np.isnan(hours[i]), f"{domain} is known or unknown as a whole, but has {p[i]} and {hours[i]}")
        require(not hours[i] < 0, f"{domain} loses {hours[i]} GPU-hours; none or more can be lost")


def probability_rises_with_the_horizon_and_falls_with_k(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    p = _answer(forecaster, history).probability_at_least_k
    require(bool(((p >= 0) & (p <= 1)).all()), f"a probability lies in [0, 1], but one is {p.min()} or {p.max()}")
    require(bool((np.diff(p, axis=2) >= 0).all()), "probability rises with the horizon, but one falls")
    require(bool((np.diff(p, axis=1) <= 0).all()), "k + 1 members are no likelier than k, but somewhere they are")


def a_domain_without_data_is_unknown(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    node = history.topology.group("node", len(history.gpus))
    state = forecaster.fit(history)
    for number in np.unique(node[node >= 0]):
        silent = silenced(history, node == number)
        forecast = forecaster.forecast(state, silent)
        name = history.topology.names["node"][number]
        for domain, p, rows in zip(forecast.domains, forecast.probability_at_least_k, forecast.members, strict=True):
            known = domain == ("node", name) and not np.isnan(p).all()
            require(not known, f"node {name} is silent, but got {p.tolist()}")
            mute = rows[node[rows] == number]
            require(not len(mute), f"node {name} is silent, but its rows {mute} are counted as members of {domain}")


def a_missing_required_group_leaves_no_domain(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    for group in forecaster.requires:
        lacking = without_signals(history, group)
        p = _answer(forecaster, lacking).probability_at_least_k
        require(bool(np.isnan(p).all()), f"nobody reports {sorted(group)}, but {len(p)} domains were forecast")


def newcomers_and_a_first_start_are_no_error(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    old = np.sort(rng.permutation(len(history.gpus))[: len(history.gpus) * 3 // 4])
    p = forecaster.forecast(forecaster.fit(history.take(old)), history).probability_at_least_k
    require(bool((np.isnan(p) | ((p >= 0) & (p <= 1))).all()), "a domain with newcomers got no probability")
    for start in (without_days(history), without_days(history).take(np.zeros(0, np.intp))):
        p = _answer(forecaster, start).probability_at_least_k
        require(bool((np.isnan(p) | ((p >= 0) & (p <= 1))).all()), "a first start got no probability")


DOMAIN_RULES: tuple[Rule, ...] = (
    a_domain_forecast_has_the_shapes_and_types_it_promises,
    probability_rises_with_the_horizon_and_falls_with_k,
    a_domain_without_data_is_unknown,
    a_missing_required_group_leaves_no_domain,
    inputs_are_left_untouched,
    the_same_input_gives_the_same_forecast,
    the_order_of_the_gpus_does_not_matter,
    gpus_outside_the_pool_change_nothing,
    whole_weeks_of_shift_change_nothing,
    the_future_is_not_known,
    state_survives_a_file,
    newcomers_and_a_first_start_are_no_error,
)
