"""CPU and memory of score cycles on a fleet in memory; one line of JSON. Memory is the peak of the process.

A whole cycle: one new column a signal -> increments -> memory -> four forecasts -> facts, incidents, fusion -> alerts
-> the bytes of /metrics, and the survey of the telemetry. `fresh` has new events in the column, so that what reads
events is forecast anew; `ordinary` has none, so the hour's slow forecasts stand; `ten_minute` is a fresh one that ends
a ten-minute window: summaries and today's row of the ledger are renewed as well. They run in a thread, as in
`healthsvc serve`: what malloc does depends on it.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.alerts import AlertState, decide
from healthsvc.config import Settings
from healthsvc.engine.arena import keep_large_arrays
from healthsvc.engine.build import alert_policy
from healthsvc.engine.joins import day_by_day
from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.roster import Roster
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.survey import SurveyKeeper
from healthsvc.features.windows import WINDOW_S, inlet_by_gpu, summarise
from healthsvc.fleet import Arrays, Band, GpuId, Placement, Signal, Snapshot
from healthsvc.publish.metrics import render_fleet
from healthsvc.telemetry.framing.grid import frame, uniform_times
from healthsvc.telemetry.source import RawGrid
from scripts import bench_fleet as bench

NEW_EVENTS = 3  # XIDs in one column of a `fresh` cycle


class Prepared:
    """A source whose next answer has been made before the clock starts."""

    name = "prepared"

    def __init__(self) -> None:
        self.answer: RawGrid | None = None

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        """The answer prepared for exactly these times."""
        if self.answer is None or not np.array_equal(self.answer.times_s, times_s):
            raise AssertionError(f"no answer was prepared for {times_s}")
        return self.answer

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        """Asked who was there before: nobody."""
        return ()

    def placement(self) -> Placement | None:
        """Given apart."""
        return None

    def span(self) -> tuple[float, float] | None:
        """Nobody asks."""
        raise NotImplementedError


def make_memory(fleet: bench.Fleet, days: int, rng: np.random.Generator) -> FleetMemory:
    """A running service's memory at `bench.NOW_S`."""
    count, now_s = len(fleet.gpus), bench.NOW_S
    recent = bench.make_window(fleet, bench.WINDOW_COLUMNS, now_s, rng)
    nodes, loops = fleet.topology.names["node"], fleet.topology.names["cooling_loop"]
    environment = bench.make_environment(nodes, loops, bench.WINDOW_COLUMNS, rng)
    inlet = inlet_by_gpu(environment, fleet.topology, fleet.gpus, bench.WINDOW_COLUMNS)
    seen = summarise(recent, inlet)  # two hours; today so far is three times that
    earlier = [replace(seen, ends_s=seen.ends_s - hours * 3600.0) for hours in (4, 2)]
    _, carry = frame(bench.make_grid(fleet, np.array([now_s]), rng))
    return FleetMemory(
        settings=Settings(),
        placement=fleet.placement,
        roster=Roster(fleet.gpus, np.full(count, now_s)),
        recent=recent,
        carry=carry,
        environment=environment,
        today=earlier[0].joined(earlier[1]).joined(seen),
        finished=day_by_day(bench.make_ledger(fleet, days, rng)),
        events=bench.make_events(fleet, rng),
        topology=fleet.topology,
        digested_s=now_s,
    )


class Cycles:
    """Runs one cycle after the other, as the service does, and times it."""

    def __init__(self, gpus: int, days: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.fleet = bench.make_fleet(gpus)
        self.memory = make_memory(self.fleet, days, self.rng)
        documents = load_priors()
        priors = class_priors(documents)
        self.scorer, self.source = make_scorer(documents, priors), Prepared()
        self.keeper = SurveyKeeper((*self.scorer.forecasters, *self.scorer.domain_forecasters))
        self.policy = alert_policy(priors, bench.STEP_S)
        self.alerts = AlertState()
        self.snapshot: Snapshot | None = None
        self.state: dict[str, Arrays] = self.scorer.train(self.memory.history())

    def run(self, *, fresh: bool) -> float:
        """CPU seconds of the next cycle."""
        now_s = self.memory.now_s + bench.STEP_S
        answer = bench.make_grid(self.fleet, uniform_times(self.memory.now_s, now_s, bench.STEP_S), self.rng)
        if fresh:
            answer.values[Signal.XID][self.rng.choice(len(answer.gpus), NEW_EVENTS, replace=False)] = 94.0
        self.source.answer = answer
        began = time.process_time()
        self.memory.advance(self.source, now_s, lambda raw: None)
        history = self.memory.history()
        self.snapshot = self.scorer.score(self.state, history, self.snapshot, bench.NOW_S)
        self.alerts = decide(self.alerts, self.snapshot.report, now_s, self.policy).state
        render_fleet(self.snapshot)
        self.keeper.survey(self.memory.recent, self.memory.environment)
        return time.process_time() - began


def bench_cycles(gpus: int, days: int, rounds: int, seed: int) -> dict[str, float]:
    """The least of `rounds`, in CPU seconds, and the peak memory."""
    cycles = Cycles(gpus, days, seed)
    cycles.run(fresh=True)  # caches of the first cycle, imports
    fresh = min(cycles.run(fresh=True) for _ in range(rounds))
    ordinary = min(cycles.run(fresh=False) for _ in range(rounds))
    while (cycles.memory.now_s + bench.STEP_S) % WINDOW_S:
        cycles.run(fresh=False)
    ten_minute = cycles.run(fresh=True)
    if cycles.snapshot is None:
        raise AssertionError("no cycle ran")
    report = cycles.snapshot.report
    return {
        "gpus": gpus,
        "fresh_cpu_s": round(fresh, 3),
        "ordinary_cpu_s": round(ordinary, 3),
        "ten_minute_cpu_s": round(ten_minute, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "at_watch_or_above": int(np.count_nonzero(report.band >= Band.WATCH)),
        "unknown": int(np.count_nonzero(report.band == Band.UNKNOWN)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    keep_large_arrays()  # as `healthsvc serve` does
    with ThreadPoolExecutor(1) as engine:
        figures = engine.submit(bench_cycles, given.gpus, given.days, given.rounds, given.seed).result()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
