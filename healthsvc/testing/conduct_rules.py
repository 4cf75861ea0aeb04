"""How every forecaster must behave, of GPUs or of domains, whatever it says: one function a rule, named as the
sentence it proves.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import NEIGHBOUR_LAYERS, EventLog, FleetHistory
from healthsvc.forecasters.base import DomainForecaster, Forecaster, reads_events
from healthsvc.testing.changes import alarmed, cut, shifted, silenced, struck, with_future
from healthsvc.testing.compare import (
    Said,
    arrays_of,
    of_gpus,
    pictures,
    pools_of,
    reloaded,
    require,
    require_equal,
    said,
    said_anew,
    shares,
)

PROBES = 56  # GPUs that the pool rule tries, one at a time
Either = Forecaster | DomainForecaster


def inputs_are_left_untouched(forecaster: Either, history: FleetHistory, rng: np.random.Generator) -> None:
    before = pictures(arrays_of(history))
    state = forecaster.fit(history)
    _same(before, pictures(arrays_of(history)), "fit")
    learned = pictures(iter(state.items()))
    said(forecaster, state, history)
    if of_gpus(forecaster):
        forecaster.project(state, history, 0)
    _same(before, pictures(arrays_of(history)), "forecast")
    _same(learned, pictures(iter(state.items())), "forecast")


def _same(before: dict[str, bytes], after: dict[str, bytes], verb: str) -> None:
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    require(not changed, f"{verb} only reads, but it wrote to {', '.join(changed)}")


def the_same_input_gives_the_same_forecast(forecaster: Either, history: FleetHistory, rng: np.random.Generator) -> None:
    one, other = said_anew(forecaster, history), said_anew(forecaster, history)
    require_equal(one, other, "nothing changed between two runs", exact=True)


def the_order_of_the_gpus_does_not_matter(forecaster: Either, history: FleetHistory, rng: np.random.Generator) -> None:
    state = forecaster.fit(history)
    plain = said(forecaster, state, history)
    mixed = history.take(rng.permutation(len(history.gpus)))
    fixed = said(forecaster, state, mixed)
    require_equal(plain, fixed, "the GPUs came to forecast in another order than to fit")
    require_equal(plain, said_anew(forecaster, mixed), "the GPUs came to fit and forecast in another order")


def gpus_outside_the_pool_change_nothing(forecaster: Either, history: FleetHistory, rng: np.random.Generator) -> None:
    state = forecaster.fit(history)
    plain = said(forecaster, state, history)
    for name, inside in _pools(forecaster, history, plain, rng):
        if inside.all():
            continue
        before, outsiders = plain.of(name), f"only GPUs outside the pool of {name}"
        for change, how in ((alarmed, "were alarmed"), (silenced, "fell silent")):
            after = said(forecaster, state, change(history, ~inside))
            require_equal(before, after.of(name), f"{outsiders} {how}")
        alone = said(forecaster, state, history.take(np.flatnonzero(inside)))
        require_equal(before, alone.of(name), f"{outsiders} departed")


def _pools(
    forecaster: Either, history: FleetHistory, plain: Said, rng: np.random.Generator
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Names, each with bool[gpu] of who may change what is said of it while the state stays as it is.

    Of a GPU as `pools` says; of a domain the GPUs that stand in it and those that share a member's node, rack or
    cooling loop: neighbours may pull. Domains that no topology names are left out.
    """
    count = len(history.gpus)
    if of_gpus(forecaster):
        pool = pools_of(forecaster.pools, history.topology, count)
        for row in rng.permutation(count)[:PROBES]:
            yield history.gpus[row].device_id, pool[row]
        return
    near = np.logical_or.reduce([shares(history.topology.group(layer, count)) for layer in NEIGHBOUR_LAYERS])
    for domain in plain.names:
        layer, _, name = domain.partition(":")
        if layer in history.topology.names:
            members = history.topology.group(layer, count) == history.topology.names[layer].index(name)
            yield domain, members | near[members].any(axis=0)


def whole_weeks_of_shift_change_nothing(forecaster: Either, history: FleetHistory, rng: np.random.Generator) -> None:
    plain = said_anew(forecaster, history)
    for weeks in (-26, 1, 53):
        later = said_anew(forecaster, shifted(history, weeks))
        require_equal(plain, later, f"all happened {weeks} whole weeks later")


def the_future_is_not_known(forecaster: Either, history: FleetHistory, rng: np.random.Generator) -> None:
    for steps in (0, 45):
        moment = cut(history, steps) if steps else history
        then = replace(moment, events=moment.events.known_at(moment.now_s))
        told = said_anew(forecaster, with_future(moment))
        require_equal(said_anew(forecaster, then), told, "only the log knew events that begin after now_s")


def a_forecaster_that_reads_no_events_says_the_same_without_them(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    if reads_events(forecaster):
        return
    state, count = forecaster.fit(history), len(history.gpus)
    plain = said(forecaster, state, history)
    for other in (replace(history, events=EventLog()), with_future(history), struck(history, np.ones(count, bool))):
        after = said(forecaster, state, other)
        require_equal(plain, after, "it says that it reads no events, and only those changed", exact=True)


def state_survives_a_file(forecaster: Either, history: FleetHistory, rng: np.random.Generator) -> None:
    state = forecaster.fit(history)
    for name, values in state.items():
        require(isinstance(values, np.ndarray), f"state holds arrays, but {name} is a {type(values).__name__}")
        require(values.dtype.kind in "biufUS", f"state holds numbers and strings, but {name} is of {values.dtype}")
    stored = reloaded(state)
    require(stored.keys() == state.keys(), f"state {sorted(state)} came back from the file as {sorted(stored)}")
    before, after = said(forecaster, state, history), said(forecaster, stored, history)
    require_equal(before, after, "the state went through an npz file", exact=True)
