"""thermal_trend on a ledger, beside a loop of statsmodels' UnobservedComponents over a sample; one line of JSON.

The least of several rounds: CPU seconds, and for what has a target the time by the wall on the cores there are. The
loop filters with given variances, which is the least it can do for one
forecast a GPU; it would take longer still if it had to find them.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.engine.shipped import load_priors
from healthsvc.features.resistance import peer_ratio
from healthsvc.fleet import EventLog, FleetHistory
from healthsvc.forecasters import shipped_forecasters
from scripts import bench_fleet as bench

NOISE, LEVEL_STEP, SLOPE_STEP = 0.006, 0.001, 0.0001


def least(rounds: int, work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest of `rounds`, of the CPU unless another clock is given."""
    took = []
    for _ in range(rounds):
        began = clock()
        work()
        took.append(clock() - began)
    return min(took)


def filter_by_statsmodels(series: NDArray[np.float64]) -> float:
    """Level and slope of one series with its first day as the known state; the level 7 days ahead."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    model = UnobservedComponents(series, "local linear trend")
    model.ssm.initialize_known(np.array([np.nanmean(series[:7]), 0.0]), np.diag([NOISE**2, 0.003**2]))
    variances = {"irregular": NOISE**2, "level": LEVEL_STEP**2, "trend": SLOPE_STEP**2}
    done = model.filter([variances[name.removeprefix("sigma2.")] for name in model.param_names])
    return float(done.filtered_state[0, -1] + 7 * done.filtered_state[1, -1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=50, help="GPUs of the statsmodels loop")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    fleet = bench.make_fleet(given.gpus)
    daily = bench.make_ledger(fleet, given.days, rng)
    recent = bench.make_window(fleet, bench.WINDOW_COLUMNS, bench.NOW_S, rng)
    history = FleetHistory(recent, daily, EventLog(), fleet.topology)
    forecaster = shipped_forecasters(load_priors())[0]
    state = forecaster.fit(history)

    node = fleet.topology.group("node", given.gpus)
    sample = peer_ratio(daily.get("gpu_log_resistance").astype(np.float64), node)[: given.sample]
    warnings.simplefilter("ignore")
    filter_by_statsmodels(sample[0])  # its import is not measured
    each = least(given.rounds, lambda: [filter_by_statsmodels(series) for series in sample]) / len(sample)
    fit = least(given.rounds, lambda: forecaster.fit(history))
    forecast = least(given.rounds, lambda: forecaster.forecast(state, history))
    fit_wall = least(given.rounds, lambda: forecaster.fit(history), time.perf_counter)
    forecast_wall = least(given.rounds, lambda: forecaster.forecast(state, history), time.perf_counter)
    found = {
        "gpus": given.gpus,
        "days": given.days,
        "fit_cpu_s": round(fit, 3),
        "forecast_cpu_s": round(forecast, 3),
        "fit_wall_s": round(fit_wall, 3),
        "forecast_wall_s": round(forecast_wall, 3),
        "statsmodels_a_gpu_s": round(each, 5),
        "as_many_times": round(each * given.gpus / (fit + forecast), 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
