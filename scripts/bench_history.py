"""Training, reading the ledger, digesting a day: CPU seconds on history in memory or on disk; one line of JSON."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.engine.digest import chunk_seconds, digest_span
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.features.daily import daily_row, definitions
from healthsvc.fleet import DAY_S, DailyLedger, EventLog, FleetHistory, GpuId
from healthsvc.store import Ledger
from healthsvc.telemetry.framing.grid import uniform_times
from healthsvc.telemetry.source import RawGrid
from scripts import bench_fleet as bench
from scripts.bench_cycle import Prepared

MEMORY_MIB = 1024  # as history.backfill_memory_mib


def least(rounds: int, work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of `rounds`."""
    took = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return round(min(took), 3)


def bench_train(gpus: int, days: int, rounds: int, seed: int) -> dict[str, float]:
    """Fit all forecasters on `days` of ledger; then write that ledger and read it back."""
    rng = np.random.default_rng(seed)
    fleet = bench.make_fleet(gpus)
    daily, events = bench.make_ledger(fleet, days, rng), bench.make_events(fleet, rng)
    recent = bench.make_window(fleet, bench.WINDOW_COLUMNS, bench.NOW_S, rng)
    history = FleetHistory(recent, daily, events, fleet.topology)
    documents = load_priors()
    scorer = make_scorer(documents, class_priors(documents))
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder), definitions())
        for column, day in enumerate(daily.days.tolist()):
            happened = events.where((events.start_s > day * DAY_S) & (events.start_s <= (day + 1) * DAY_S))
            ledger.write_day(day, one_day(daily, column), happened, bench.NOW_S)
        first, last = int(daily.days[0]), int(daily.days[-1])
        return {
            "train_cpu_s": least(rounds, lambda: scorer.train(history)),
            "ledger_read_cpu_s": least(rounds, lambda: ledger.read(first, last)),
        }


def one_day(daily: DailyLedger, column: int) -> DailyLedger:
    """One column of a ledger."""
    at = slice(column, column + 1)
    features = {name: values[:, at] for name, values in daily.features.items()}
    return DailyLedger(daily.gpus, daily.days[at], features, daily.exposure_h[:, at], daily.completeness[:, at])


class Day(Prepared):
    """A source that holds a day and some hours before it, and answers with slices."""

    def __init__(self, whole: RawGrid) -> None:
        super().__init__()
        self.whole = whole

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        """The columns of these times."""
        first = int(np.searchsorted(self.whole.times_s, times_s[0]))
        at = slice(first, first + len(times_s))
        return RawGrid(self.whole.gpus, times_s, {s: v[:, at] for s, v in self.whole.values.items()})


def bench_digest(gpus: int, rounds: int, seed: int) -> dict[str, float]:
    """One day at 60 s into its summaries, its episodes and its row of the ledger; reading is not in it."""
    fleet = bench.make_fleet(gpus)
    start_s = bench.TODAY * DAY_S
    times = uniform_times(start_s - 3600.0, start_s + DAY_S, bench.STEP_S)
    source = Day(bench.make_grid(fleet, times, np.random.default_rng(seed)))
    chunk_s = chunk_seconds(gpus, bench.STEP_S, MEMORY_MIB)

    def digest() -> EventLog:
        done = digest_span(source, start_s, start_s + DAY_S, bench.STEP_S, chunk_s, fleet.placement)
        daily_row(done.summaries, fleet.topology, bench.STEP_S, bench.TODAY, unfinished=False)
        return done.events

    return {"digest_cpu_s": least(rounds, digest)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["train", "digest"])
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.part == "train":
        found = bench_train(given.gpus, given.days, given.rounds, given.seed)
    else:
        found = bench_digest(given.gpus, given.rounds, given.seed)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
