"""What every forecaster must do, one function a rule, named as the sentence it proves.

A rule takes (forecaster, history, rng) and raises AssertionError with a sentence and the numbers. A new rule is one
function and one entry in RULES.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GRADES, HORIZONS_S, LAYERS, QUANTILES, FleetHistory, Forecast, Topology
from healthsvc.forecasters.base import Forecaster
from healthsvc.testing.changes import alarmed, cut, shifted, silenced, with_future, without_days, without_signals
from healthsvc.testing.compare import (
    arrays_of,
    fields,
    known,
    pictures,
    reloaded,
    require,
    require_equal_rows,
)

Rule = Callable[[Forecaster, FleetHistory, np.random.Generator], None]
HORIZONS = (3600.0, *HORIZONS_S, 90 * 86_400.0)  # more than the usual ones: a horizon is an argument
PROBES = 40  # rows that the pool rule tries, one at a time


def _answer(forecaster: Forecaster, history: FleetHistory) -> Forecast:
    return forecaster.forecast(forecaster.fit(history), history, HORIZONS)


def a_forecast_has_the_shapes_and_types_it_promises(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    forecast = _answer(forecaster, history)
    gpus = len(history.gpus)
    require(forecast.horizons_s == HORIZONS, f"asked for horizons {HORIZONS}, got {forecast.horizons_s}")
    shapes = {
        "cumulative_hazard": (gpus, len(GRADES), len(HORIZONS)),
        "change_p": (gpus,),
        "time_to_limit_s": (gpus, len(QUANTILES)),
    }
    for name, values in fields(forecast).items():
        shape = shapes.get(name, (gpus,))
        require(values.shape == shape, f"{name} has shape {values.shape}; needs {shape}")
        require(values.dtype == np.float32, f"{name} is {values.dtype}; needs float32")
    p = forecast.change_p[~np.isnan(forecast.change_p)]
    require(
        bool(((p >= 0) & (p <= 1)).all()),
        f"change_p is a probability, but spans {p.min(initial=0)} to {p.max(initial=1)}",
    )
    gaps = np.isnan(forecast.cumulative_hazard)
    torn = np.flatnonzero(gaps.any(axis=(1, 2)) & ~gaps.all(axis=(1, 2)))
    require(not len(torn), f"a row is known or unknown as a whole, but rows {torn} are partly NaN")


def hazard_is_never_negative_and_rises_with_the_horizon(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    hazard = _answer(forecaster, history).cumulative_hazard[:, :, np.argsort(HORIZONS)].astype(np.float64)
    require(not np.isinf(hazard).any(), "hazard is finite, but some is infinite: clip P at 0.999 before taking the log")
    require(not (hazard < 0).any(), f"hazard is never negative, but reaches {np.nanmin(hazard, initial=0):.3g}")
    falls = np.diff(hazard, axis=2) < 0
    row = int(np.argmax(falls.any(axis=(1, 2))))
    require(not falls.any(), f"hazard rises along the horizons, but row {row} has {hazard[row].tolist()}")


def a_terminal_failure_is_never_likelier_than_a_service_event(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    hazard = _answer(forecaster, history).cumulative_hazard
    above = (hazard[:, 1] > hazard[:, 0]).any(axis=1)
    row = int(np.argmax(above))
    require(
        not above.any(),
        f"T2 means T2 or worse, but row {row} has H(T1) = {hazard[row, 1]} above H(T2) = {hazard[row, 0]}",
    )


def a_gpu_without_data_on_a_silent_node_is_unknown(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    node = history.topology.group("node", len(history.gpus))
    state = forecaster.fit(history)
    for number in np.unique(node[node >= 0]):
        silent = node == number
        for ledger in (False, True):
            hazard = forecaster.forecast(state, silenced(history, silent, ledger), HORIZONS).cumulative_hazard[silent]
            require(
                bool(np.isnan(hazard).all()),
                f"node {number} reports nothing, so its GPUs are NaN, but a hazard is {np.nanmax(hazard):.3g}"
                if not np.isnan(hazard).all()
                else "",
            )


def a_gpu_that_lacks_a_required_group_is_unknown(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    state = forecaster.fit(history)
    for group in forecaster.requires:
        lacking = without_signals(history, group)
        for trained in (state, forecaster.fit(lacking)):
            rows = np.flatnonzero(known(forecaster.forecast(trained, lacking, HORIZONS)))
            names = sorted(signal.value for signal in group)
            require(not len(rows), f"nobody reports any of {names}, which is required, but rows {rows} have a hazard")


def a_gpu_that_falls_silent_takes_nobody_with_it(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    before = known(_answer(forecaster, history))
    pool = pools_of(forecaster.pools, history.topology, len(history.gpus))
    for row in rng.permutation(np.flatnonzero(before))[:4]:
        victim = np.arange(len(before)) == row
        after = known(_answer(forecaster, silenced(history, victim)))
        lost = np.flatnonzero(before & ~after & ~pool[row])
        require(not len(lost), f"only row {row} fell silent, but rows {lost} became NaN with it")


def inputs_are_left_untouched(forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    before = pictures(arrays_of(history))
    state = forecaster.fit(history)
    _same(before, pictures(arrays_of(history)), "fit")
    learned = pictures(iter(state.items()))
    forecaster.forecast(state, history, HORIZONS)
    forecaster.project(state, history, 0)
    _same(before, pictures(arrays_of(history)), "forecast")
    _same(learned, pictures(iter(state.items())), "forecast")


def _same(before: dict[str, bytes], after: dict[str, bytes], verb: str) -> None:
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    require(not changed, f"{verb} only reads, but it wrote to {', '.join(changed)}")


def the_same_input_gives_the_same_forecast(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    every = np.arange(len(history.gpus))
    first, second = _answer(forecaster, history), _answer(forecaster, history)
    require_equal_rows(first, second, every, "nothing changed between two runs", exact=True)


def the_order_of_the_gpus_does_not_matter(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    state = forecaster.fit(history)
    plain = forecaster.forecast(state, history, HORIZONS)
    order = rng.permutation(len(history.gpus))
    mixed = history.take(order)
    wanted = _rows(plain, order)
    every = np.arange(len(order))
    fixed = forecaster.forecast(state, mixed, HORIZONS)
    require_equal_rows(wanted, fixed, every, "the GPUs came to forecast in another order than to fit")
    refitted = _answer(forecaster, mixed)
    require_equal_rows(wanted, refitted, every, "the GPUs came to fit and forecast in another order")


def _rows(forecast: Forecast, order: NDArray[np.intp]) -> Forecast:
    return Forecast(
        forecast.horizons_s,
        forecast.cumulative_hazard[order],
        forecast.change_p[order],
        forecast.time_to_limit_s[order],
        {name: values[order] for name, values in forecast.evidence.items()},
    )


def pools_of(kind: str, topology: Topology, gpu_count: int) -> NDArray[np.bool_]:
    """bool[gpu, gpu]: who may change whose forecast while the state stays as it is."""
    pool = np.eye(gpu_count, dtype=bool)
    layers = {"none": (), "node": ("node",), "domain": LAYERS, "fleet": ()}[kind]
    for layer in layers:
        group = topology.group(layer, gpu_count)
        pool |= (group[:, None] == group[None, :]) & (group >= 0)[:, None]
    return pool | (kind == "fleet")


def gpus_outside_the_pool_change_nothing(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    state = forecaster.fit(history)
    plain = forecaster.forecast(state, history, HORIZONS)
    pool = pools_of(forecaster.pools, history.topology, len(history.gpus))
    for row in rng.permutation(len(history.gpus))[:PROBES]:
        outside = ~pool[row]
        if not outside.any():
            continue
        of = f"pools is {forecaster.pools!r} and only GPUs outside the pool of row {row}"
        for change, how in ((alarmed, "were alarmed"), (silenced, "fell silent")):
            other = forecaster.forecast(state, change(history, outside), HORIZONS)
            require_equal_rows(plain, other, np.array([row]), f"{of} {how}")
        inside = np.flatnonzero(pool[row])
        alone = forecaster.forecast(state, history.take(inside), HORIZONS)
        here = np.flatnonzero(inside == row)
        require_equal_rows(_rows(plain, np.array([row])), _rows(alone, here), np.array([0]), f"{of} departed")


def whole_weeks_of_shift_change_nothing(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    plain = _answer(forecaster, history)
    for weeks in (-26, 1, 53):
        later = _answer(forecaster, shifted(history, weeks))
        require_equal_rows(plain, later, np.arange(len(history.gpus)), f"all happened {weeks} whole weeks later")


def the_future_is_not_known(forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    every = np.arange(len(history.gpus))
    for steps in (0, 45):
        moment = cut(history, steps) if steps else history
        then = FleetHistory(
            moment.recent, moment.daily, moment.events.known_at(moment.now_s), moment.topology, moment.environment
        )
        told = with_future(moment)
        plain = _answer(forecaster, then)
        require_equal_rows(plain, _answer(forecaster, told), every, "only the log knew events that begin after now_s")


def state_survives_a_file(forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    state = forecaster.fit(history)
    for name, values in state.items():
        require(isinstance(values, np.ndarray), f"state holds arrays, but {name} is a {type(values).__name__}")
        require(values.dtype.kind in "biufUS", f"state holds numbers and strings, but {name} is of {values.dtype}")
    stored = reloaded(state)
    require(stored.keys() == state.keys(), f"state {sorted(state)} came back from the file as {sorted(stored)}")
    before, after = forecaster.forecast(state, history, HORIZONS), forecaster.forecast(stored, history, HORIZONS)
    require_equal_rows(before, after, np.arange(len(history.gpus)), "the state went through an npz file", exact=True)


def a_newcomer_gets_a_row(forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    count = len(history.gpus)
    old = np.sort(rng.permutation(count)[: count * 3 // 4])
    state = forecaster.fit(history.take(old))
    hazard = forecaster.forecast(state, history, HORIZONS).cumulative_hazard
    require(len(hazard) == count, f"{count} GPUs are here, {count - len(old)} of them new, but {len(hazard)} got a row")
    bad = (hazard < 0) | np.isinf(hazard)
    require(
        not bad.any(), f"a newcomer's hazard is NaN or a number >= 0, but rows {np.unique(np.nonzero(bad)[0])} are not"
    )


def a_first_start_without_a_ledger_is_no_error(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    for start in (without_days(history), without_days(history).take(np.zeros(0, np.intp))):
        hazard = _answer(forecaster, start).cumulative_hazard
        require(len(hazard) == len(start.gpus), f"{len(start.gpus)} GPUs, but {len(hazard)} rows")


def one_gpu_can_be_projected(forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    state = forecaster.fit(history)
    for row in range(len(history.gpus)):
        shown = forecaster.project(state, history, row)
        require(
            len(shown.past) == len(shown.past_s) and shown.future.shape == (len(QUANTILES), len(shown.future_s)),
            f"past {shown.past.shape} and future {shown.future.shape} of row {row} do not match their times "
            f"{shown.past_s.shape} and {shown.future_s.shape}",
        )
        require(bool((shown.future_s >= history.now_s).all()), f"the future of row {row} begins before now_s")
        bands = shown.future[:, ~np.isnan(shown.future).any(axis=0)]
        require(bool((np.diff(bands, axis=0) >= 0).all()), f"quantiles of row {row} cross: {bands[:, -1:].tolist()}")


RULES: tuple[Rule, ...] = (
    a_forecast_has_the_shapes_and_types_it_promises,
    hazard_is_never_negative_and_rises_with_the_horizon,
    a_terminal_failure_is_never_likelier_than_a_service_event,
    a_gpu_without_data_on_a_silent_node_is_unknown,
    a_gpu_that_lacks_a_required_group_is_unknown,
    a_gpu_that_falls_silent_takes_nobody_with_it,
    inputs_are_left_untouched,
    the_same_input_gives_the_same_forecast,
    the_order_of_the_gpus_does_not_matter,
    gpus_outside_the_pool_change_nothing,
    whole_weeks_of_shift_change_nothing,
    the_future_is_not_known,
    state_survives_a_file,
    a_newcomer_gets_a_row,
    a_first_start_without_a_ledger_is_no_error,
    one_gpu_can_be_projected,
)
