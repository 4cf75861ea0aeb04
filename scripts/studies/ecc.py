"""The study behind models/ecc_growth/card.md: real failures of Titan, made faults, and what correctable errors tell.

Every part keeps its figures in models/ecc_growth/study.json, and the tables of the card are drawn from there; a part
that is not asked for keeps the figures of its last run. Titan's data stay where they are: without them that part says
so. Its test, 2018-01 to 2019-06, decides nothing.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.studies import ecc_cases, ecc_rates, ecc_smartmem, titan, titan_fleet
from scripts.studies.cards import fresh_seeds, renew_card
from scripts.studies.ecc_tables import tables

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "ecc_growth"
FIXED = tuple(range(101, 106))
Figures = dict[str, Any]


def run_titan(day: str, data: Path) -> Figures:
    """Each kind of event: what was learned and chosen, and the test beside the simpler ways."""
    folder = data / titan_fleet.NAME
    if not (folder / "gc_full.csv").is_file():
        return {"missing": f"no {folder.name} at {data}: its part keeps its last figures"}
    fleet = titan_fleet.load(folder)
    test = titan_fleet.origins_s(titan.TEST, titan.END)
    found: Figures = {}
    for kind in titan_fleet.KINDS:
        kernel = titan.learn_kernel(fleet, kind, titan.CHOOSE)
        choice, scores = titan.choose(fleet, kind, kernel)
        print(f"{kind}: {choice}, {kernel}", file=sys.stderr, flush=True)
        ours = titan.predict(fleet, kind, test, kernel, choice)
        ways = {
            "ours": ours,
            "ours as shipped": titan.predict(fleet, kind, test, *titan.as_shipped()),
            "logistic": titan.logistic(fleet, kind, test),
            "boosting": titan.boosting(fleet, kind, test),
            "most in 90 days": titan.most_in_90_days(fleet, kind, test),
        }
        told = fleet.events[kind]
        found[kind] = {
            "choice": vars(choice),
            "tried": [{**vars(each), "log_score": score} for each, score in scores],
            "kernel": {"weights": kernel.weights, "scales_days": kernel.scales_days, "frailty": kernel.frailty},
            "origins": len(test),
            "ways": {name: titan.figures(cases, np.random.default_rng(0)) for name, cases in ways.items()},
            "difference": titan.ap_difference(ours, ways["logistic"], np.random.default_rng(0)),
            "random_split_auc": titan.random_split_auc(fleet, kind),
            "precursor": titan.with_a_past(fleet, kind, test),
            "rows": len(told),
        }
    return found


def run_cases(day: str, data: Path) -> Figures:
    """Wear, bursts and storms, on the fixed seeds and on fresh ones."""
    return {"fixed": ecc_cases.over(FIXED), "fresh": ecc_cases.over(fresh_seeds(day)), "day": day}


def run_counts(day: str, data: Path) -> Figures:
    """What correctable errors tell: false alerts, intervals, leaps."""
    return {"fixed": ecc_rates.study(ecc_rates.FIXED), "fresh": ecc_rates.study(fresh_seeds(day)), "day": day}


def run_smartmem(day: str, data: Path) -> Figures:
    """Two real memory modules, one that failed and one that did not."""
    folder = data / ecc_smartmem.NAME
    if not folder.is_dir():
        return {"missing": f"no {folder.name} at {data}: its part keeps its last figures"}
    return {"table": ecc_smartmem.smartmem_table(folder)}


PARTS: Mapping[str, Callable[[str, Path], Figures]] = {
    "titan": run_titan,
    "cases": run_cases,
    "counts": run_counts,
    "smartmem": run_smartmem,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="real failures")
    given = parser.parse_args()
    kept = MODEL / "study.json"
    for name in given.only.split(","):
        found = PARTS[name](datetime.now(UTC).strftime("%Y%m%d"), given.data)
        if "missing" in found:
            print(found["missing"], file=sys.stderr)
            continue
        figures: Figures = json.loads(kept.read_text()) if kept.is_file() else {}  # parts may run side by side
        figures[name] = found
        kept.write_text(json.dumps(figures, indent=1) + "\n")
        renew_card(MODEL, tables(figures))


if __name__ == "__main__":
    main()
