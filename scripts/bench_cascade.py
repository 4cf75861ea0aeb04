"""throttling_cascade on a large fleet in trouble: one cycle with its incidents, and the training; one line of JSON.

The least of several rounds, by the wall, and CPU seconds of all threads. The cycle is one that ends a half hour, in
which more is asked than in others; three cooling loops are on their way to their limits and one rack in five hundred
throttles. The history holds only what domains are judged by, so that the peak of the process is that and its work.
"""

import argparse
import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.engine.shipped import load_priors
from healthsvc.features.facts import throttling_now
from healthsvc.fleet import (
    DAY_S,
    ONSET_COVARIATES,
    Arrays,
    DailyLedger,
    EventKind,
    EventLog,
    FleetHistory,
    FleetWindow,
    Floats,
    Incident,
    OnsetBins,
    PlaceSeries,
    Signal,
)
from healthsvc.fleet.onset_bins import INLET_MEASURED
from healthsvc.forecasters import shipped_domain_forecasters
from healthsvc.forecasters.base import DomainForecaster
from healthsvc.incidents import IncidentPolicy, update_incidents
from scripts import bench_fleet as bench
from scripts.bench_trend import least

WARMING_LOOPS, WARMED_CELSIUS = 3, 12.0
ONSETS = 0.02  # share of the rows to learn from
GAUGES = (Signal.GPU_TEMPERATURE, Signal.POWER, Signal.POWER_LIMIT, Signal.GPU_MAX_OPERATING_LIMIT)
COUNTERS = {  # seconds a step of a GPU that throttles
    Signal.SOFTWARE_THERMAL_THROTTLE: 30.0,
    Signal.HARDWARE_THERMAL_THROTTLE: 0.0,
    Signal.POWER_BRAKE_THROTTLE: 0.0,
}
FALLING = {Signal.COOLANT_FLOW: 0.6}  # of the warming loops at the end of the window, over what it was


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--bins", type=int, default=20_000, help="onset bins a day")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    fleet = bench.make_fleet(given.gpus)
    documents = load_priors()
    forecaster = shipped_domain_forecasters(documents)[0]
    policy = IncidentPolicy.of(documents[forecaster.name]["thresholds"])
    history = _history(fleet, given.days, rng)
    bins = tuple(_bins(given.gpus, given.bins, bench.TODAY - given.days + day, rng) for day in range(given.days))
    learned = replace(history, onset_bins=bins)
    state = forecaster.fit(learned)

    def cycle() -> tuple[Incident, ...]:
        return _cycle(forecaster, state, replace(history), policy)

    found = {
        "gpus": given.gpus,
        "nodes": -(-given.gpus // bench.NODE_GPUS),
        "onset_bins": sum(map(len, bins)),
        "incidents": len(cycle()),
        "cycle_wall_s": round(least(given.rounds, cycle, time.perf_counter), 3),
        "cycle_cpu_s": round(least(given.rounds, cycle), 3),
        "fit_wall_s": round(least(given.rounds, lambda: forecaster.fit(replace(learned)), time.perf_counter), 3),
        "fit_cpu_s": round(least(given.rounds, lambda: forecaster.fit(replace(learned))), 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(found))


def _cycle(
    forecaster: DomainForecaster, state: Arrays, history: FleetHistory, policy: IncidentPolicy
) -> tuple[Incident, ...]:
    """Forecast and incidents of a history that remembers nothing of the round before."""
    forecast = forecaster.forecast(state, history)
    hot, _ = throttling_now(history)
    return update_incidents((), history, forecast, hot, policy)


def _history(fleet: bench.Fleet, days: int, rng: np.random.Generator) -> FleetHistory:
    """Two hours of what is read, fourteen days of normal resistance, and the onsets of `days`."""
    loop = fleet.topology.group("cooling_loop", len(fleet.gpus))
    ramp = np.linspace(0.0, 1.0, bench.WINDOW_COLUMNS, dtype=np.float32)
    gauges, _ = bench.make_gauges(fleet, bench.WINDOW_COLUMNS, rng)
    values = {signal: gauges[signal] for signal in GAUGES}
    del gauges  # most of them, which domains do not read
    warm = np.flatnonzero(loop < WARMING_LOOPS)
    values[Signal.GPU_TEMPERATURE][warm] += np.floor(np.float32(WARMED_CELSIUS) * ramp)
    for signal, seconds in COUNTERS.items():
        hot = np.where(fleet.hot[:, None], np.float32(seconds), np.float32(0.0))
        values[signal] = np.repeat(hot, bench.WINDOW_COLUMNS, axis=1)
    times_s = np.asarray(bench.NOW_S + bench.STEP_S * np.arange(1 - bench.WINDOW_COLUMNS, 1), np.float64)
    nodes, loops = fleet.topology.names["node"], fleet.topology.names["cooling_loop"]
    environment = bench.make_environment(nodes, loops, bench.WINDOW_COLUMNS, rng)
    for signal, left in FALLING.items():
        flow = environment[signal].values.copy()
        flow[:WARMING_LOOPS] *= 1 - (1 - left) * ramp
        environment[signal] = PlaceSeries("cooling_loop", tuple(loops), flow)
    return FleetHistory(
        FleetWindow(fleet.gpus, times_s, values),
        _ledger(fleet, rng),
        _onsets(fleet, days, rng),
        fleet.topology,
        environment,
    )


def _ledger(fleet: bench.Fleet, rng: np.random.Generator) -> DailyLedger:
    shape = (len(fleet.gpus), 14)
    log_r = np.float32(np.log(bench.RESISTANCE)) + 0.004 * rng.standard_normal(shape, np.float32)
    features: dict[str, Floats] = {
        "gpu_log_resistance": log_r,
        "inlet_q95_celsius": np.full(shape, bench.INLET_CELSIUS, np.float32),
        "power_q95_watts": np.full(shape, 670.0, np.float32),
    }
    full = np.full(shape, 24.0, np.float32)
    return DailyLedger(fleet.gpus, bench.TODAY - 14 + np.arange(14), features, full, np.ones(shape, np.float32))


def _onsets(fleet: bench.Fleet, days: int, rng: np.random.Generator) -> EventLog:
    """One GPU in twenty began to throttle once in the past; those that throttle now began within the last hour."""
    row = rng.choice(len(fleet.gpus), max(len(fleet.gpus) // 20, 1), replace=False)
    past_s = np.floor((bench.NOW_S - rng.uniform(0.2, days, len(row)) * DAY_S) / 300.0) * 300.0
    now = np.flatnonzero(fleet.hot)
    both = np.concatenate([row, now]).astype(np.int32)
    start_s = np.concatenate([past_s, np.full(len(now), bench.NOW_S - 1200.0)])
    kind = np.full(len(both), EventKind.THERMAL_THROTTLE, np.int16)
    return EventLog().merged(EventLog(both, start_s, start_s + 300.0, kind, np.full(len(both), 0.1)))


def _bins(gpus: int, count: int, day: int, rng: np.random.Generator) -> OnsetBins:
    """One day's sample; the nearer the limit and the more neighbours throttle, the likelier an onset."""
    x = np.zeros((count, len(ONSET_COVARIATES)), np.float32)
    column = {name: number for number, name in enumerate(ONSET_COVARIATES)}
    spread: dict[str, NDArray[np.float64]] = {
        "margin_celsius": rng.uniform(0.0, 30.0, count),
        "power_ratio": rng.uniform(0.3, 1.0, count),
        "power_change_ratio": 0.05 * rng.standard_normal(count),
        "inlet_celsius": 2.0 * rng.standard_normal(count),
        "inlet_change_celsius": 0.3 * rng.standard_normal(count),
        "flow_deficit_ratio": np.maximum(0.05 * rng.standard_normal(count), 0.0),
    }
    for name in ONSET_COVARIATES:
        values = spread.get(name, np.log1p(rng.poisson(0.2, count)))
        x[:, column[name]] = values
    logit = -0.3 * x[:, column["margin_celsius"]] + 0.5 * x[:, column["node_neighbours_log"]]
    chance = np.exp(logit - np.log(np.exp(logit).mean() / ONSETS))
    start_s = np.sort(day * DAY_S + 600.0 * rng.integers(1, 143, count).astype(np.float64))
    return OnsetBins(
        rng.integers(0, gpus, count).astype(np.int32),
        start_s,
        rng.uniform(size=count) < chance,
        np.full(count, 0.01, np.float32),
        np.full(count, INLET_MEASURED, np.int8),
        x,
    )


if __name__ == "__main__":
    main()
