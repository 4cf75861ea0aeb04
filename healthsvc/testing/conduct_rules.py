"""How a forecaster must behave, whatever it says: one function a rule, named as the sentence it proves."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import FleetHistory, Forecast
from healthsvc.forecasters.base import Forecaster
from healthsvc.testing.changes import alarmed, cut, shifted, silenced, with_future
from healthsvc.testing.compare import (
    HORIZONS,
    answer,
    arrays_of,
    pictures,
    pools_of,
    reloaded,
    require,
    require_equal_rows,
)

PROBES = 40  # rows that the pool rule tries, one at a time


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
    first, second = answer(forecaster, history), answer(forecaster, history)
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
    refitted = answer(forecaster, mixed)
    require_equal_rows(wanted, refitted, every, "the GPUs came to fit and forecast in another order")


def _rows(forecast: Forecast, order: NDArray[np.intp]) -> Forecast:
    return Forecast(
        forecast.horizons_s,
        forecast.cumulative_hazard[order],
        forecast.change_p[order],
        forecast.time_to_limit_s[order],
        {name: values[order] for name, values in forecast.evidence.items()},
    )


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
    plain = answer(forecaster, history)
    for weeks in (-26, 1, 53):
        later = answer(forecaster, shifted(history, weeks))
        require_equal_rows(plain, later, np.arange(len(history.gpus)), f"all happened {weeks} whole weeks later")


def the_future_is_not_known(forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    every = np.arange(len(history.gpus))
    for steps in (0, 45):
        moment = cut(history, steps) if steps else history
        then = replace(moment, events=moment.events.known_at(moment.now_s))
        told = with_future(moment)
        plain = answer(forecaster, then)
        require_equal_rows(plain, answer(forecaster, told), every, "only the log knew events that begin after now_s")


def state_survives_a_file(forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator) -> None:
    state = forecaster.fit(history)
    for name, values in state.items():
        require(isinstance(values, np.ndarray), f"state holds arrays, but {name} is a {type(values).__name__}")
        require(values.dtype.kind in "biufUS", f"state holds numbers and strings, but {name} is of {values.dtype}")
    stored = reloaded(state)
    require(stored.keys() == state.keys(), f"state {sorted(state)} came back from the file as {sorted(stored)}")
    before, after = forecaster.forecast(state, history, HORIZONS), forecaster.forecast(stored, history, HORIZONS)
    require_equal_rows(before, after, np.arange(len(history.gpus)), "the state went through an npz file", exact=True)
