"""The figures of the study of correctable errors as Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.stats import chi2

from healthsvc.evaluation.exact import clopper_pearson
from scripts.studies.cards import table

Figures = dict[str, Any]


def tables(figures: Mapping[str, Figures]) -> str:
    """Markdown of {"fixed": {...}, "fresh": {...}}, each as `study` of ecc_rates gives it."""
    return "\n".join(
        line for part in (_seed_lines, _alert_lines, _coverage_lines, _storm_lines) for line in part(figures)
    )


def _alert_lines(figures: Mapping[str, Figures]) -> Iterator[str]:
    thresholds = next(iter(figures.values()))["thresholds"]
    yield "### False degrading-grade alerts: healthy fleets, 30 days, bursts included"
    yield ""
    lines = []
    for which, each in figures.items():
        rows = dict(each["alerts"])
        every = np.sum([one["alerts"] for one in rows.values()], axis=0).tolist()
        rows["all"] = {"gpu_months": sum(one["gpu_months"] for one in rows.values()), "alerts": every}
        for fleet, one in rows.items():
            cells = [_per_thousand(count, one["gpu_months"]) for count in one["alerts"]]
            lines.append([which, fleet, f"{one['gpu_months']:,}", *cells])
    yield from table(["seeds", "fleet", "GPU-months", *(f"below {q:g}" for q in thresholds)], lines)
    yield "Each cell: alerts, and per 1,000 GPU-months the upper 95 % bound."
    yield ""


def _coverage_lines(figures: Mapping[str, Figures]) -> Iterator[str]:
    yield "### What the 90 % intervals of the next 30 days hold"
    yield ""
    lines = []
    names = {
        "quiet_plain": "quiet GPUs, whole counts",
        "quiet_randomised": "quiet GPUs, randomised for discreteness",
        "bursting_gamma_poisson": "GPUs that burst always, without the mixture",
        "bursting_mixture": "GPUs that burst always, by their mixture",
        "single_bursts_explained": "single bursts on any GPU, tail above the threshold",
    }
    for which, each in figures.items():
        for kind, one in each["coverage"].items():
            spread, runs = one["variance_by_mean"]
            share = one["top_percent_share"][0] / runs
            for key, words in names.items():
                held, total = one[key]
                if total:
                    low, high = clopper_pearson(int(held), int(total))
                    told = f"{int(held)} of {int(total)}, {100 * held / total:.1f} %"
                    interval = f"(95 %: {100 * low:.1f} to {100 * high:.1f})"
                    spreads = [f"{spread / runs:.0f}", f"{100 * share:.0f} %"]
                    lines.append([which, kind, *spreads, words, f"{told} {interval}"])
    yield from table(["seeds", "fleet", "variance / mean", "of 1 % of GPUs", "of", "held"], lines)


def _storm_lines(figures: Mapping[str, Figures]) -> Iterator[str]:
    thresholds = next(iter(figures.values()))["thresholds"]
    yield "### A GPU leaps, its siblings do not: out of character within 1 h of onset"
    yield ""
    lines = [
        [which, f"{float(rate):,g}", str(total), *(str(count) for count in below)]
        for which, each in figures.items()
        for rate, (*below, total) in each["storms"].items()
    ]
    yield from table(["seeds", "errors/s under load", "leaps", *(f"below {q:g}" for q in thresholds)], lines)


def _per_thousand(count: int, months: int) -> str:
    upper = float(chi2.ppf(0.95, 2 * (count + 1))) / 2.0
    return f"{count}, < {1000 * upper / months:.2f}"


def _seed_lines(figures: Mapping[str, Figures]) -> Iterator[str]:
    for which, each in figures.items():
        yield f"Seeds, {which}: {', '.join(str(seed) for seed in each['seeds'])}."
    yield ""
