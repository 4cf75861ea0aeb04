"""The study behind models/thermal_trend/card.md: false alarms, detection, decoys, intervals, constants, real boards.

Every part keeps its figures in models/thermal_trend/study.json, and the tables of the card are drawn from there; a part
that is not asked for keeps the figures of its last run. Fixed seeds are development seeds (data/fixtures/seeds.toml),
the fresh ones are made from the day of the run.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from healthsvc.evaluation.exact import clopper_pearson
from scripts.studies import thermal_constants, thermal_places, thermal_real, thermal_walk
from scripts.studies.cards import fresh_seeds, renew_card
from scripts.studies.thermal_tables import tables

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "thermal_trend"
GROWTHS = (0.003, 0.006, 0.03)
AHEAD = ("7", "14", "21")
Size = thermal_walk.Size
Figures = dict[str, Any]


def over_seeds(pool: ProcessPoolExecutor, work: Callable[..., Any], seeds: Sequence[int], *rest: Any) -> list[Any]:
    """What `work` finds for each seed, in their order."""
    return [each.result() for each in [pool.submit(work, seed, *rest) for seed in seeds]]


def interval(count: int, total: int) -> list[float]:
    """Exact 95 % interval of a share."""
    low, high = clopper_pearson(count, total)
    return [float(low), float(high)]


def run_null(pool: ProcessPoolExecutor, seeds: Sequence[int], quick: bool, small: bool) -> Figures:
    """Healthy fleets."""
    size = Size(4, 105) if quick else Size(64 if small else 128, 180)
    parts = over_seeds(pool, thermal_walk.false_alarms, seeds, size)
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    return {
        **total,
        "seeds": list(seeds),
        "failure_95": interval(total["failure"], total["stretches"]),
        "degrading_95": interval(total["degrading"], total["stretches"]),
    }


def run_drift(pool: ProcessPoolExecutor, seeds: Sequence[int], quick: bool, small: bool) -> Figures:
    """Drifts of three speeds, one GPU of a node each."""
    found: Figures = {"seeds": list(seeds)}
    for growth in GROWTHS:
        size = Size(4, 100) if quick else Size(40 if small else 64, 110)
        parts = over_seeds(pool, thermal_walk.detection, seeds, size, growth)
        days = np.concatenate([part["days"] for part in parts])
        lead, failure = (np.concatenate([part[name] for part in parts]) for name in ("lead_days", "failure_lead_days"))
        in_time = int(np.sum(lead >= 3))
        found[f"{growth:g}"] = {
            "drifts": len(days),
            "early": int(sum(part["early"][0] for part in parts)),
            "never": int(np.sum(np.isinf(days))),
            "days_q": np.quantile(days, [0.1, 0.5, 0.9], method="nearest").tolist(),
            "events": len(lead),
            "in_time": in_time,
            "in_time_95": interval(in_time, len(lead)) if len(lead) else None,
            "failure_in_time": int(np.sum(failure >= 3)),
        }
    return found


def run_decoys(pool: ProcessPoolExecutor, seeds: Sequence[int], quick: bool, small: bool) -> Figures:
    """Four decoys, each beside the same fleet without it."""
    parts = over_seeds(pool, thermal_walk.added_alerts, seeds, Size(4 if quick else 64 if small else 128))
    total = {
        decoy: {name: sum(part[decoy][name] for part in parts) for name in parts[0][decoy]}
        for decoy in thermal_walk.DECOYS
    }
    return {"seeds": list(seeds), **total}


def run_intervals(pool: ProcessPoolExecutor, seeds: Sequence[int], quick: bool, small: bool) -> Figures:
    """How often the 80 % interval holds the crossing."""
    parts = over_seeds(pool, thermal_walk.coverage, seeds, Size(4, 150) if quick else Size(32, 180))
    found: Figures = {"seeds": list(seeds)}
    for ahead in AHEAD:
        told = np.array([row for part in parts for row in part[ahead]]).reshape(-1, 4)
        low, middle, high, truth = told.T
        stated = ~np.isnan(low)
        high = np.where(np.isnan(high), np.inf, high)
        holds = int(np.sum((low <= truth) & (truth <= high)))
        found[ahead] = {
            "crossings": len(told),
            "stated": int(stated.sum()),
            "holds": holds,
            "holds_95": interval(holds, int(stated.sum())) if stated.any() else None,
            "sooner": int(np.sum(truth < low)),
            "later": int(np.sum(truth > high)),
            "median_error_days": float(np.nanmedian(middle - truth)) if stated.any() else None,
            "median_width_days": float(np.median((high - low)[stated])) if stated.any() else None,
        }
    return found


PARTS = {"null": run_null, "drift": run_drift, "decoys": run_decoys, "intervals": run_intervals}
ONCE = {
    "constants": thermal_constants.constants,
    "equivalence": thermal_places.equivalence,
    "places": thermal_places.places,
}
SEEDS = {"null": range(101, 105), "drift": range(101, 105), "decoys": range(101, 105), "intervals": range(101, 111)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*PARTS, *ONCE, "real"]
    parser.add_argument("--only", default=",".join(every), help=f"parts, of {','.join(every)}")
    parser.add_argument("--which", choices=["fixed", "fresh", "both"], default="both", help="seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="recorded step responses")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing kept: shows that it runs")
    today = datetime.now(UTC).strftime("%Y%m%d")
    parser.add_argument("--day", default=today, help="what fresh seeds are made from, YYYYMMDD (default: today)")
    given = parser.parse_args()
    day = given.day
    kept = MODEL / "study.json"
    figures: Figures = json.loads(kept.read_text()) if kept.is_file() and not given.quick else {}
    for name in given.only.split(","):
        with ProcessPoolExecutor(given.jobs) as pool:
            if name in PARTS and given.which != "fresh":
                seeds = list(SEEDS[name])[: 2 if given.quick else None]
                figures[name] = PARTS[name](pool, seeds, given.quick, False)
            if name in PARTS and given.which != "fixed":
                seeds = fresh_seeds(day)[: 1 if given.quick else None]
                figures[f"fresh_{name}"] = {**PARTS[name](pool, seeds, given.quick, True), "day": day}
        if name in ONCE:
            figures[name] = ONCE[name](given.quick)
        if name == "real":
            found = thermal_real.study(given.data, None if given.quick else MODEL)
            figures[name] = figures.get(name, found) if "missing" in found else found
            print(found.get("missing", ""), file=sys.stderr)
        print(name, json.dumps({key: figures[key] for key in (name, f"fresh_{name}") if key in figures}), flush=True)
        if not given.quick:
            kept.write_text(json.dumps(figures, indent=1) + "\n")
            renew_card(MODEL, tables(figures))


if __name__ == "__main__":
    main()
