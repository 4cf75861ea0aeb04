"""ecc_growth on a ledger with the errors and events of a usual fleet; one line of JSON.

CPU seconds, the least of several rounds. The history holds only what ecc_growth reads, so that the peak of the process
is that history and its work.
"""

import argparse
import json
import resource
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.engine.shipped import load_priors
from healthsvc.fleet import (
    DAY_S,
    Arrays,
    DailyLedger,
    EventKind,
    EventLog,
    FleetHistory,
    FleetWindow,
    Floats,
    Forecast,
    Signal,
)
from healthsvc.forecasters import shipped_forecasters
from healthsvc.forecasters.base import Forecaster
from scripts import bench_fleet as bench
from scripts.bench_history import least

COLUMNS = ("sbe_errors", "uncorrectable_remaps_rows", "correctable_remaps_rows")
ERRORS_A_MINUTE = 1e-4
STRUCK = 0.01  # share of the GPUs with an uncorrectable error in the ledger's days


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    fleet = bench.make_fleet(given.gpus)
    row = rng.choice(given.gpus, max(int(given.gpus * STRUCK), 1), replace=False).astype(np.int32)
    start_s = np.sort(bench.NOW_S - rng.uniform(0, given.days, len(row)) * DAY_S)
    kind = np.full(len(row), EventKind.DOUBLE_BIT_ERROR, np.int16)
    events = EventLog(row, start_s, start_s, kind, np.ones(len(row)))
    forecaster = next(f for f in shipped_forecasters(load_priors()) if f.name == "ecc_growth")
    read = sorted(frozenset().union(*forecaster.requires, forecaster.uses))
    ledger = _ledger(fleet, given.days, rng, row)
    history = FleetHistory(_window(fleet, read, rng), ledger, events, fleet.topology)
    state = forecaster.fit(history)
    found = {
        "gpus": given.gpus,
        "days": given.days,
        "fit_cpu_s": round(least(given.rounds, lambda: forecaster.fit(history)), 3),
        "forecast_cpu_s": round(least(given.rounds, lambda: _fresh(forecaster, state, history)), 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(found))


def _window(fleet: bench.Fleet, signals: list[Signal], rng: np.random.Generator) -> FleetWindow:
    """Two hours of these signals: correctable errors now and then, all else at 0."""
    shape = (len(fleet.gpus), bench.WINDOW_COLUMNS)
    values: dict[Signal, Floats] = {signal: np.zeros(shape, np.float32) for signal in signals}
    values[Signal.SBE_AGGREGATE] = (rng.random(shape, np.float32) < ERRORS_A_MINUTE).astype(np.float32)
    times_s = np.asarray(bench.NOW_S + bench.STEP_S * np.arange(1 - bench.WINDOW_COLUMNS, 1), np.float64)
    return FleetWindow(fleet.gpus, times_s, values)


def _ledger(fleet: bench.Fleet, days: int, rng: np.random.Generator, remapped: NDArray[np.int32]) -> DailyLedger:
    """Correctable errors now and then; one row remapped of each GPU of `remapped`, whose spares may then run out."""
    shape = (len(fleet.gpus), days)
    features: dict[str, Floats] = {name: np.zeros(shape, np.float32) for name in COLUMNS}
    features["sbe_errors"] = rng.poisson(ERRORS_A_MINUTE * 1440, shape).astype(np.float64)
    features["uncorrectable_remaps_rows"][remapped, -2] = 1.0
    full = np.full(shape, 24.0, np.float32)
    return DailyLedger(fleet.gpus, bench.TODAY - days + np.arange(days), features, full, np.ones(shape, np.float32))


def _fresh(forecaster: Forecaster, state: Arrays, history: FleetHistory) -> Forecast:
    """A forecast of a history that remembers nothing of the round before."""
    return forecaster.forecast(state, FleetHistory(history.recent, history.daily, history.events, history.topology))


if __name__ == "__main__":
    main()
