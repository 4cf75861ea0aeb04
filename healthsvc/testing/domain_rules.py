"""What every forecaster of domains must do; as `rules`, for DomainForecast. A domain is one (layer, name)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import LEAST_MEMBERS, DomainForecast, FleetHistory, Floats
from healthsvc.forecasters.base import DomainForecaster
from healthsvc.testing.changes import alarmed, cut, shifted, silenced, with_future, without_days, without_signals
from healthsvc.testing.compare import ATOL, RTOL, arrays_of, pictures, reloaded, require

Rule = Callable[[DomainForecaster, FleetHistory, np.random.Generator], None]
Verdict = tuple[Floats, float, int, frozenset[str]]


def _answer(forecaster: DomainForecaster, history: FleetHistory) -> DomainForecast:
    return forecaster.forecast(forecaster.fit(history), history)


def _verdicts(forecast: DomainForecast, history: FleetHistory) -> dict[tuple[str, str], Verdict]:
    """{domain: (probability [k, horizon], lost hours, throttling now, device_ids)}: no order of rows is left in it."""
    return {
        domain: (
            forecast.probability_at_least_k[i],
            float(forecast.expected_lost_gpu_hours[i]),
            int(forecast.throttling[i]),
            frozenset(history.gpus[row].device_id for row in forecast.members[i]),
        )
        for i, domain in enumerate(forecast.domains)
    }


def _require_equal(one: dict[tuple[str, str], Verdict], other: dict[tuple[str, str], Verdict], because: str) -> None:
    require(one.keys() == other.keys(), f"{because}, but the domains differ by {sorted(one.keys() ^ other.keys())}")
    for domain, (p, hours, throttling, members) in one.items():
        q, other_hours, other_throttling, other_members = other[domain]
        require(members == other_members, f"{because}, but {domain} changed by {sorted(members ^ other_members)}")
        require(throttling == other_throttling, f"{because}, but {domain} went from {throttling} throttling")
        close = np.allclose(p, q, rtol=RTOL, atol=ATOL, equal_nan=True) and np.isclose(hours, other_hours, rtol=RTOL)
        require(bool(close), f"{because}, but {domain} went from {p.tolist()} to {q.tolist()}")


def a_forecast_has_the_shapes_and_types_it_promises(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    forecast = _answer(forecaster, history)
    domains = len(forecast.domains)
    require(domains > 0, "the history has domains with data, but none was forecast")
    shape = (domains, LEAST_MEMBERS, len(forecast.horizons_s))
    p = forecast.probability_at_least_k
    require(p.shape == shape, f"probability_at_least_k has shape {p.shape}; needs {shape}")
    for name in ("probability_at_least_k", "expected_lost_gpu_hours"):
        dtype = getattr(forecast, name).dtype
        require(dtype == np.float32, f"{name} is {dtype}; needs float32")
    for values in (forecast.expected_lost_gpu_hours, forecast.throttling, forecast.members):
        require(len(values) == domains, f"{domains} domains, but an array of {len(values)}")
    for domain, rows in zip(forecast.domains, forecast.members, strict=True):
        require(len(rows) >= LEAST_MEMBERS, f"{domain} is forecast with {len(rows)} members; needs {LEAST_MEMBERS}")


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
        verdicts = _verdicts(forecaster.forecast(state, silent), silent)
        found = verdicts.get(("node", history.topology.names["node"][number]))
        require(found is None or bool(np.isnan(found[0]).all()), f"node {number} is silent, but got {found}")
        mute = {gpu.device_id for gpu, at in zip(history.gpus, node, strict=True) if at == number}
        counted = sorted(name for name, verdict in verdicts.items() if verdict[3] & mute)
        require(not counted, f"node {number} is silent, but its GPUs are counted as members of {counted}")


def a_missing_required_group_leaves_no_domain(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    for group in forecaster.requires:
        lacking = without_signals(history, group)
        p = _answer(forecaster, lacking).probability_at_least_k
        require(bool(np.isnan(p).all()), f"nobody reports {sorted(group)}, but {len(p)} domains were forecast")


def inputs_are_left_untouched(forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    before = pictures(arrays_of(history))
    state = forecaster.fit(history)
    learned = pictures(iter(state.items()))
    forecaster.forecast(state, history)
    require(before == pictures(arrays_of(history)), "fit and forecast only read, but they wrote to the history")
    require(learned == pictures(iter(state.items())), "forecast only reads, but it wrote to the state")


def the_same_input_gives_the_same_forecast(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    first, second = _answer(forecaster, history), _answer(forecaster, history)
    same = first.probability_at_least_k.tobytes() == second.probability_at_least_k.tobytes()
    require(same and first.domains == second.domains, "nothing changed between two runs, but the forecast did")


def the_order_of_the_gpus_does_not_matter(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    state = forecaster.fit(history)
    plain = _verdicts(forecaster.forecast(state, history), history)
    mixed = history.take(rng.permutation(len(history.gpus)))
    _require_equal(plain, _verdicts(forecaster.forecast(state, mixed), mixed), "the GPUs came to forecast re-ordered")
    _require_equal(plain, _verdicts(_answer(forecaster, mixed), mixed), "the GPUs came re-ordered")


def gpus_outside_the_domain_change_nothing(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    state = forecaster.fit(history)
    plain = forecaster.forecast(state, history)
    for domain, verdict in _verdicts(plain, history).items():
        outside = ~_residents(history, domain)
        for change, how in ((alarmed, "were alarmed"), (silenced, "fell silent")):
            changed = change(history, outside)
            other = _verdicts(forecaster.forecast(state, changed), changed).get(domain)
            because = f"only GPUs outside {domain} {how}"
            _require_equal({domain: verdict}, {} if other is None else {domain: other}, because)


def _residents(history: FleetHistory, domain: tuple[str, str]) -> NDArray[np.bool_]:
    layer, name = domain
    number = history.topology.names[layer].index(name)
    inside: NDArray[np.bool_] = history.topology.group(layer, len(history.gpus)) == number
    return inside


def whole_weeks_of_shift_change_nothing(
    forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    plain = _verdicts(_answer(forecaster, history), history)
    for weeks in (-26, 1, 53):
        later = shifted(history, weeks)
        _require_equal(plain, _verdicts(_answer(forecaster, later), later), f"all happened {weeks} whole weeks later")


def the_future_is_not_known(forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    for steps in (0, 45):
        moment = cut(history, steps) if steps else history
        then = replace(moment, events=moment.events.known_at(moment.now_s))
        told = with_future(moment)
        plain = _verdicts(_answer(forecaster, then), then)
        _require_equal(plain, _verdicts(_answer(forecaster, told), told), "only the log knew what begins after now_s")


def state_survives_a_file(forecaster: DomainForecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    state = forecaster.fit(history)
    for name, values in state.items():
        kind = np.asarray(values).dtype
        require(kind.kind in "biufUS", f"state holds numbers and strings, but {name} is of {kind}")
    before = _verdicts(forecaster.forecast(state, history), history)
    after = _verdicts(forecaster.forecast(reloaded(state), history), history)
    _require_equal(before, after, "the state went through an npz file")


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
    a_forecast_has_the_shapes_and_types_it_promises,
    probability_rises_with_the_horizon_and_falls_with_k,
    a_domain_without_data_is_unknown,
    a_missing_required_group_leaves_no_domain,
    inputs_are_left_untouched,
    the_same_input_gives_the_same_forecast,
    the_order_of_the_gpus_does_not_matter,
    gpus_outside_the_domain_change_nothing,
    whole_weeks_of_shift_change_nothing,
    the_future_is_not_known,
    state_survives_a_file,
    newcomers_and_a_first_start_are_no_error,
)
