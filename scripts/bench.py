"""Speed and memory, with the figures: one row a measurement, its target, and whether it is met.

A table for people, or one JSON document (--format json). Exit code 1 if a target is missed. Every part runs in a
process of its own, so that memory is its own peak. Unless a row says otherwise, times are CPU seconds, the least of
several rounds, because others use the machine too.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

SCRIPTS = Path(__file__).parent
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A script to run and its arguments."""

    name: str
    script: str
    arguments: tuple[str, ...]

    def run(self) -> Figures:
        """Its figures. Raises SystemExit with its words if it fails."""
        command = [sys.executable, str(SCRIPTS / self.script), *self.arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{self.name}: {' '.join(command)} failed\n{done.stderr[-4000:]}")
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        return found


@dataclass(frozen=True)
class Row:
    """One line of the table. target None: for information."""

    what: str
    figure: float
    unit: str
    bound: Literal["<=", ">="] = "<="
    target: float | None = None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        met = self.figure <= self.target if self.bound == "<=" else self.figure >= self.target
        return "ok" if met else "missed"


def parts(quick: bool) -> list[Part]:
    """What is measured; `quick` only shows that all of it works."""
    small, large, rounds = ("96", "192", "1") if quick else ("10000", "100000", "3")
    days, day_gpus = ("8", "32") if quick else ("60", "1000")
    fleet, month, hours = ("8", "2", "1") if quick else ("64", "30", "24")
    cycle = ("--days", days, "--rounds", rounds)
    return [
        Part("small", "bench_cycle.py", ("--gpus", small, *cycle)),
        Part("large", "bench_cycle.py", ("--gpus", large, *cycle)),
        Part("train", "bench_history.py", ("train", "--gpus", small, *cycle)),
        Part("trend", "bench_trend.py", ("--gpus", small, *cycle)),
        Part("memory", "bench_memory.py", ("--gpus", large, "--days", "8" if quick else "90", "--rounds", rounds)),
        Part(
            "cascade", "bench_cascade.py", ("--gpus", large, *(("--bins", "50") if quick else ()), "--rounds", rounds)
        ),
        Part("digest", "bench_history.py", ("digest", "--gpus", day_gpus, "--rounds", rounds)),
        Part("serve", "bench_process.py", ("serve", "--gpus", "8", "--days", "2", "--rounds", rounds)),
        Part("frame", "bench_frame.py", ("speed", "--gpus", small, "--rounds", rounds)),
        Part("day", "bench_frame.py", ("day", "--gpus", small, "--hours", hours)),
        Part("fetch", "bench_fetch.py", ("--gpus", fleet, "--hours", hours, "--rounds", rounds)),
        Part("simulate", "bench_process.py", ("simulate", "--gpus", fleet, "--days", month)),
    ]


def rows(found: Mapping[str, Figures]) -> Iterator[Row]:
    """The figures with their targets."""
    small, large = found["small"], found["large"]
    yield Row(f"score cycle, {small['gpus']:,} GPUs, all forecasts afresh", small["fresh_cpu_s"], "s", target=3.0)
    yield Row(f"score cycle, {small['gpus']:,} GPUs, ordinary", small["ordinary_cpu_s"], "s", target=3.0)
    yield Row(f"score cycle, {large['gpus']:,} GPUs, all forecasts afresh", large["fresh_cpu_s"], "s")
    yield Row(f"score cycle, {large['gpus']:,} GPUs, ordinary", large["ordinary_cpu_s"], "s")
    yield Row(
        "cycle of the large fleet over the small one",
        round(large["fresh_cpu_s"] / small["fresh_cpu_s"], 2),
        "x",
        target=11.0,
    )
    for size in (small, large):
        name = f"score cycle, {size['gpus']:,} GPUs, afresh and with today's ledger row"
        yield Row(name, size["ten_minute_cpu_s"], "s")
    for size in (small, large):
        yield Row(f"peak memory, {size['gpus']:,} GPUs", size["peak_mib"], "MiB")
    yield Row("training on the ledger", found["train"]["train_cpu_s"], "s", target=10.0)
    trend = found["trend"]
    trained = f"thermal trend of {trend['gpus']:,} GPUs, {trend['days']} days: learned, wall"
    yield Row(trained, trend["fit_wall_s"], "s", target=2.0)
    yield Row("the same: forecast, wall", trend["forecast_wall_s"], "s", target=1.0)
    yield Row("the same: learned, CPU of all threads", trend["fit_cpu_s"], "s")
    yield Row("as many times a loop of UnobservedComponents (a sample, scaled)", trend["as_many_times"], "x")
    memory = found["memory"]
    whole = f"memory hazards of {memory['gpus']:,} GPUs, {memory['days']} days: learned"
    yield Row(whole, memory["fit_cpu_s"], "s", target=5.0)
    yield Row("the same: forecast", memory["forecast_cpu_s"], "s", target=2.0)
    yield Row("the same: peak memory", memory["peak_mib"], "MiB", target=2048.0)
    cascade = found["cascade"]
    whole = f"domains of {cascade['gpus']:,} GPUs in {cascade['nodes']:,} nodes: forecast and incidents, wall"
    yield Row(whole, cascade["cycle_wall_s"], "s", target=10.0)
    yield Row(
        f"the same: learned from {cascade['onset_bins']:,} onset bins, wall", cascade["fit_wall_s"], "s", target=60.0
    )
    yield Row("the same: peak memory", cascade["peak_mib"], "MiB", target=3072.0)
    yield Row("reading that ledger from disk", found["train"]["ledger_read_cpu_s"], "s")
    yield Row("digesting one day at 60 s", found["digest"]["digest_cpu_s"], "s")
    yield Row("start to the first /metrics, wall", found["serve"]["first_metrics_s"], "s", target=2.0)
    yield Row("start to the first report, wall", found["serve"]["first_report_s"], "s")
    frame, day, fetch = found["frame"], found["day"], found["fetch"]
    yield Row("framing of decoded samples, a CPU second", frame["frame_samples_s"], "samples/s", ">=", 20e6)
    yield Row("the same with counters made increments", frame["window_samples_s"], "samples/s")
    whole = f"peak memory, a day of {day['gpus']:,} GPUs x 12 signals at 30 s"
    yield Row(whole, day["peak_mib"], "MiB", target=2048.0)
    yield Row("history read from Prometheus, wall, median", fetch["ours_samples_s"], "samples/s", ">=", 3e6)
    yield Row("peak memory of that Prometheus during our read", fetch["server_peak_mib"], "MiB")
    yield Row("as many times MetricRangeDataFrame's, medians", found["fetch"]["ratio"], "x", ">=", 8.0)
    yield Row("simulating to Parquet, wall, once", found["simulate"]["simulate_s"], "s", target=60.0)


def show(table_rows: list[Row]) -> None:
    """For people."""
    table = Table(title="Speed and memory", title_justify="left")
    for name, justify in (("what", "left"), ("figure", "right"), ("target", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in table_rows:
        target = "" if row.target is None else f"{row.bound} {row.target:g}"
        table.add_row(row.what, f"{row.figure:,.10g} {row.unit}", target, row.verdict)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    given = parser.parse_args()
    found: dict[str, Figures] = {}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        chosen = parts(given.quick)
        task = bar.add_task("measuring", total=len(chosen))
        for part in chosen:
            bar.update(task, description=f"measuring: {part.name}")
            found[part.name] = part.run()
            bar.advance(task)
    table_rows = list(rows(found))
    if given.format == "json":
        print(json.dumps({"rows": [{**asdict(row), "verdict": row.verdict} for row in table_rows], "figures": found}))
    else:
        show(table_rows)
    sys.exit(int(any(row.verdict == "missed" for row in table_rows)))


if __name__ == "__main__":
    main()
