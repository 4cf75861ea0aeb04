"""The study behind models/throttling_cascade/card.md: domains that throttle together, foretold, found and not made up.

Every part keeps its figures in models/throttling_cascade/study.json, and the tables of the card are drawn from there; a
part that is not asked for keeps the figures of its last run. Fixed seeds are development seeds
(data/fixtures/seeds.toml), the fresh ones are made from the day of the run.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.studies import cascade_calibration, cascade_contagion, cascade_healthy, cascade_power
from scripts.studies.cards import fresh_seeds, renew_card
from scripts.studies.cascade_cases import Kind, figures, walk
from scripts.studies.cascade_fleet import FLOW, Site
from scripts.studies.cascade_tables import tables

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "throttling_cascade"
FIXED = tuple(range(101, 111))
LOOPS_A_FLEET = 25
EFFECTS = (0.0, 0.4, 0.8)
SITES = {"measured": Site(), "hidden": Site(hidden=FLOW)}
Figures = dict[str, Any]


@dataclass(frozen=True)
class Given:
    """How much of it. cases: loops of each kind; minutes: of wall time for healthy fleets; show: every case."""

    pool: ProcessPoolExecutor
    jobs: int
    cases: int
    minutes: float
    quick: bool
    show: bool


def all_of(given: Given, work: Callable[..., Any], each: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What `work` finds, in their order."""
    return [told.result() for told in [given.pool.submit(work, *arguments) for arguments in each]]


def losses(kind: Kind) -> Callable[[Given, Sequence[int]], Figures]:
    """Loops that lose their flow, with the flow measured and with it hidden."""

    def run(given: Given, seeds: Sequence[int]) -> Figures:
        used = seeds[: max(1, given.cases // LOOPS_A_FLEET)]
        size = -(-given.cases // len(used))
        found: Figures = {"seeds": used}
        for name, site in SITES.items():
            parts = all_of(given, walk, [(kind, size, seed, site) for seed in used])
            cases = [case for part, _ in parts for case in part]
            found[name] = figures(cases, sum(len(strangers) for _, strangers in parts))
            if given.show:
                print(name, *cases, sep="\n", flush=True)
        return found

    return run


def run_brake(given: Given, seeds: Sequence[int]) -> Figures:
    """The feed known, and not."""
    sites = {"known": cascade_power.KNOWN, "unknown": cascade_power.UNKNOWN}
    return {
        name: cascade_power.figures(all_of(given, cascade_power.brake, [(seed, site) for seed in seeds]))
        for name, site in sites.items()
    }


def run_calibration(given: Given, seeds: Sequence[int]) -> Figures:
    """Two weeks learned, one held out."""
    size = (2, 3, 1) if given.quick else (16, 14, 7)
    return cascade_calibration.skill(all_of(given, cascade_calibration.calibration, [(*size, seed) for seed in seeds]))


def run_healthy(given: Given, seeds: Sequence[int]) -> Figures:
    """As many fleets as fit: the first of each seed, then others of the same line of seeds, until time is up."""
    loops, days = (2, 3) if given.quick else (24, 30)
    until = time.monotonic() + 60.0 * given.minutes
    parts: list[Figures] = []
    turn = 0
    while not parts or (time.monotonic() < until and not given.quick):
        batch = [1000 * (turn + i // len(seeds)) + seeds[i % len(seeds)] for i in range(given.jobs)]
        parts += all_of(given, cascade_healthy.healthy, [(loops, days, seed) for seed in batch])
        turn += -(-given.jobs // len(seeds))
    return cascade_healthy.false_incidents(parts)


def run_contagion(given: Given, seeds: Sequence[int]) -> Figures:
    """Forty fleets of each true effect, by how the inlet is known."""
    fleets, size = (1, cascade_contagion.Size(16, 6)) if given.quick else (40, cascade_contagion.Size(64, 30))
    found: Figures = {}
    for gamma in EFFECTS:
        each = [(seeds[i % len(seeds)], i // len(seeds), gamma, size) for i in range(fleets)]
        found[f"{gamma:g}"] = cascade_contagion.figures(all_of(given, cascade_contagion.study, each), gamma)
    return found


PARTS: Mapping[str, Callable[[Given, Sequence[int]], Figures]] = {
    "ramps": losses(Kind((30.0, 180.0), (0.65, 0.85))),
    "sudden": losses(Kind((1.0, 1.0), (0.65, 0.85))),
    "partial": losses(Kind((30.0, 180.0), (0.20, 0.50))),
    "brake": run_brake,
    "calibration": run_calibration,
    "healthy": run_healthy,
    "contagion": run_contagion,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--which", choices=["fixed", "fresh", "both"], default="both", help="seeds")
    parser.add_argument("--cases", type=int, default=200, help="loops of each kind that lose their flow")
    parser.add_argument("--minutes", type=float, default=30.0, help="of wall time for healthy fleets, a set of seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing kept: shows that it runs")
    parser.add_argument("--dry", action="store_true", help="print the tables and keep nothing")
    parser.add_argument("--show", action="store_true", help="every loop that lost its flow, as it went")
    today = datetime.now(UTC).strftime("%Y%m%d")
    parser.add_argument("--day", default=today, help="what fresh seeds are made from, YYYYMMDD (default: today)")
    options = parser.parse_args()
    kept = MODEL / "study.json"
    for name in options.only.split(","):
        found: Figures = {}
        for which, seeds in (("fixed", list(FIXED)), ("fresh", fresh_seeds(options.day))):
            if options.which not in (which, "both"):
                continue
            seeds = seeds[:1] if options.quick else seeds
            with ProcessPoolExecutor(options.jobs) as pool:
                cases = 2 if options.quick else options.cases
                given = Given(pool, options.jobs, cases, options.minutes, options.quick, options.show)
                found[which] = {"seeds": seeds, "day": options.day, **PARTS[name](given, seeds)}
        print(tables({name: found}), flush=True)
        if options.quick or options.dry:
            continue
        figures_kept: Figures = json.loads(kept.read_text()) if kept.is_file() else {}  # parts may run side by side
        figures_kept[name] = {**figures_kept.get(name, {}), **found}
        kept.write_text(json.dumps(figures_kept, indent=1) + "\n")
        renew_card(MODEL, tables(figures_kept))


if __name__ == "__main__":
    main()
