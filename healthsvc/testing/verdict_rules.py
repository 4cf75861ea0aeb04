"""What a forecast must say, and must not say: one function a rule, named as the sentence it proves."""

import numpy as np

from healthsvc.fleet import GRADES, QUANTILES, FleetHistory
from healthsvc.forecasters.base import Forecaster
from healthsvc.testing.changes import silenced, without_days, without_signals
from healthsvc.testing.compare import HORIZONS, answer, fields, known, pools_of, require


def a_forecast_has_the_shapes_and_types_it_promises(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    forecast = answer(forecaster, history)
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
    hazard = answer(forecaster, history).cumulative_hazard[:, :, np.argsort(HORIZONS)].astype(np.float64)
    require(not np.isinf(hazard).any(), "hazard is finite, but some is infinite: clip P at 0.999 before taking the log")
    require(not (hazard < 0).any(), f"hazard is never negative, but reaches {np.nanmin(hazard, initial=0):.3g}")
    falls = np.diff(hazard, axis=2) < 0
    row = int(np.argmax(falls.any(axis=(1, 2))))
    require(not falls.any(), f"hazard rises along the horizons, but row {row} has {hazard[row].tolist()}")


def a_terminal_failure_is_never_likelier_than_a_service_event(
    forecaster: Forecaster, history: FleetHistory, rng: np.random.Generator
) -> None:
    hazard = answer(forecaster, history).cumulative_hazard
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
            rows = np.flatnonzero(
                known(forecaster.forecast(state, silenced(history, silent, ledger), HORIZONS)) & silent
            )
            require(not len(rows), f"node {number} reports nothing, so its GPUs are NaN, but rows {rows} have a hazard")


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
    before = known(answer(forecaster, history))
    pool = pools_of(forecaster.pools, history.topology, len(history.gpus))
    for row in rng.permutation(np.flatnonzero(before))[:4]:
        victim = np.arange(len(before)) == row
        after = known(answer(forecaster, silenced(history, victim)))
        lost = np.flatnonzero(before & ~after & ~pool[row])
        require(not len(lost), f"only row {row} fell silent, but rows {lost} became NaN with it")


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
        hazard = answer(forecaster, start).cumulative_hazard
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
