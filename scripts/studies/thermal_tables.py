"""The study's figures as the tables of the card."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scripts.studies.cards import table

Figures = Mapping[str, Any]


def tables(figures: Figures) -> str:
    """Markdown; a part that was never run is left out."""
    parts = [_null, _constants, _drift, _decoys, _intervals, _equivalence, _places, _real]
    return "\n".join(line for part in parts for line in part(figures))


def _both(figures: Figures, name: str) -> Iterator[tuple[str, Figures]]:
    """The fixed seeds' figures and the fresh ones', as far as there are any."""
    for key, words in ((name, "fixed"), (f"fresh_{name}", "fresh")):
        if key in figures:
            seeds = ", ".join(str(seed) for seed in figures[key]["seeds"])
            yield f"{words} ({seeds})", figures[key]


def _share(count: int, total: int, bounds: Sequence[float] | None) -> str:
    if not total or bounds is None:
        return "none"
    return f"{count} of {total}, {100 * count / total:.2f} % (95 %: {100 * bounds[0]:.2f} to {100 * bounds[1]:.2f})"


def _null(figures: Figures) -> Iterator[str]:
    rows = [
        [
            seeds,
            f"{each['runs']:,}",
            _share(each["failure"], each["stretches"], each["failure_95"]),
            _share(each["degrading"], each["stretches"], each["degrading_95"]),
            str(each["events"]),
        ]
        for seeds, each in _both(figures, "null")
    ]
    if rows:
        yield "### False alarms: healthy GPUs, 180 days, stretches of 80 days"
        yield ""
        yield from table(("seeds", "GPU-runs", "failure-grade", "degrading-grade or worse", "T2 events"), rows)


def _constants(figures: Figures) -> Iterator[str]:
    if "constants" not in figures:
        return
    each = figures["constants"]
    yield f"### Constants of the drift test: the best drift in noise without any, {each['days']} days"
    yield ""
    yield (
        f"Said: as the best of {each['tries']:g} independent ones. The odds are over {each['tries']:g} times "
        f"{each['slopes']:g}, a deliberately cautious divisor."
    )
    yield ""
    rows = [
        [
            f"{one['persistence']:g}",
            f"{one['series']:,}",
            *(f"{a:.2g} / {b:.2g}" for a, b in zip(one["simulated"], one["said"], strict=True)),
            f"{one['mean_odds_over_prior']:.3f}",
        ]
        for one in each["by_persistence"]
    ]
    bars = (f"P(best z > {bar:g}), simulated / said" for bar in each["bars"])
    yield from table(("persistence", "series", *bars, "mean odds of a drift over the prior ones"), rows)


def _drift(figures: Figures) -> Iterator[str]:
    rows = []
    for seeds, each in _both(figures, "drift"):
        for growth in ("0.003", "0.006", "0.03"):
            one = each[growth]
            days = [f"{day:.0f}" if day < 1e6 else "never" for day in one["days_q"]]
            enough = one["events"] >= 20
            rows.append(
                [
                    seeds,
                    f"+{100 * float(growth):g} %",
                    f"{one['drifts']} ({one['early']} left out)",
                    str(one["never"]),
                    days[1],
                    f"{days[0]} to {days[2]}",
                    _share(one["in_time"], one["events"], one["in_time_95"]) if enough else "too few events",
                    f"{one['failure_in_time']} of {one['events']}" if enough else "too few events",
                ]
            )
    if rows:
        yield "### Detection: drifts of one GPU of a node, from day 60 on"
        yield ""
        yield "Left out: drifts of GPUs that had an alert before. The last column asks for an alert of failure grade."
        yield ""
        first = ("median days to the first alert", "10 to 90 %")
        head = (
            "seeds",
            "R a day",
            "drifts",
            "never found",
            *first,
            "alerted 72 h before T2",
            "failure grade 72 h before",
        )
        yield from table(head, rows)


def _decoys(figures: Figures) -> Iterator[str]:
    rows = [
        [seeds, decoy, *(f"{one[name]:,}" for name in ("gpus", "added", "failure", "gone", "events"))]
        for seeds, each in _both(figures, "decoys")
        for decoy, one in each.items()
        if isinstance(one, Mapping)
    ]
    if rows:
        yield "### Decoys: the same seeds with and without"
        yield ""
        yield from table(
            ("seeds", "decoy", "GPU-runs", "alerts added", "failure grade", "alerts gone", "T2 events"), rows
        )


def _intervals(figures: Figures) -> Iterator[str]:
    rows = [
        [
            seeds,
            f"{ahead} days",
            f"{each[ahead]['crossings']} ({each[ahead]['crossings'] - each[ahead]['stated']} without)",
            _share(each[ahead]["holds"], each[ahead]["stated"], each[ahead]["holds_95"]),
            f"{each[ahead]['sooner']} / {each[ahead]['later']}",
            f"{each[ahead]['median_width_days']:.0f}",
            f"{each[ahead]['median_error_days']:+.1f}",
        ]
        for seeds, each in _both(figures, "intervals")
        for ahead in ("7", "14", "21")
    ]
    if rows:
        yield "### Time to the limit: 80 % intervals, drifts of 0.4 to 2 % a day"
        yield ""
        shares = ("held the crossing", "sooner / later")
        head = (
            "seeds",
            "ahead",
            "crossings (without an interval)",
            *shares,
            "median width, days",
            "median error, days",
        )
        yield from table(head, rows)


def _equivalence(figures: Figures) -> Iterator[str]:
    if "equivalence" not in figures:
        return
    each = figures["equivalence"]
    names = {
        "deviation_log": ("deviation of a day, log R", "{:.4f}"),
        "persistence": ("persistence, lag one day", "{:.2f}"),
        "kurtosis": ("kurtosis", "{:.2f}"),
        "days_missing": ("share of days missing", "{:.2f}"),
        "spread_log": ("spread between GPUs, log R", "{:.3f}"),
        "drift_found_a_day": ("drift of 0.6 % a day, found", "{:.4f}"),
        "drift_z": ("z of its test after 25 days", "{:.1f}"),
    }
    yield f"### The directly made fleet beside the full simulator ({each['gpus']} GPUs, {each['days']} days)"
    yield ""
    rows = [
        [words, *(form.format(each[who][name]) for who in ("simulator", "direct"))]
        for name, (words, form) in names.items()
    ]
    yield from table(("log R against peers", "full simulator", "direct"), rows)


def _places(figures: Figures) -> Iterator[str]:
    if "places" not in figures:
        return
    yield "### Faults of nodes and loops, 45 minutes after they began (full simulator, no flow sensor used)"
    yield ""
    rows = []
    for layer, words in (("node", "node fan fault"), ("loop", "loop flow loss")):
        one = figures["places"][layer]
        counts = [one.get(name, 0) for name in ("right", "wrong", "missed", "idle")]
        seen = sum(counts[:3])
        rows.append([words, str(seen), f"{counts[0]} ({100 * counts[0] / max(seen, 1):.0f} %)", *map(str, counts[1:])])
    head = ("fault", "cases at load", "right place and cause", "wrong", "missed", "no steady load")
    yield from table(head, rows)


def _real(figures: Figures) -> Iterator[str]:
    each = figures.get("real", {})
    if "benchmark" not in each:
        return
    yield "### Real boards: two poles fitted to recorded step responses"
    yield ""
    rows = [
        [
            one["name"],
            f"{one['seconds']} s, {one['rise_celsius']:.0f} C",
            " + ".join(f"{r:.3f}" for r in one["resistance_kelvin_per_watt"]),
            _taus(one),
            f"{one['rmse_celsius']:.2f}",
        ]
        for one in (*each["benchmark"], *each["siblings"])
    ]
    yield from table(("board", "record", "R, K/W", "time constants, s", "rmse, C"), rows)
    low, high = each["sibling_resistance_range"]
    yield (
        f"The 8 H100 of one node: R {low:.3f} to {high:.3f} K/W, median {each['sibling_resistance_median']:.3f}, "
        f"deviation of log R {each['sibling_resistance_spread']:.2f}."
    )
    yield ""
    for name, one in each["service"].items():
        yield (
            f"The service on run {name}: thermal unknown on {one['thermal_unknown']} of {one['gpus']} GPUs, "
            f"{one['thermal_alerts']} thermal alerts, {one['incidents']} incidents."
        )
    yield ""
    yield (
        "Records: nvidia-smi logs of the GPU Power Benchmark (Zeyu Yang, 2023, MIT licence), and a public 10 Hz "
        "record of a node of 8 H100, of which only what was fitted is shown."
    )
    yield ""
    yield "![Measured (grey) and fitted (red) step responses](step_responses.svg)"
    yield ""


def _taus(one: Figures) -> str:
    fast, slow = one["tau_s"]
    shown = f"{fast:.2g}" if one["fast_determined"] else "below a sample"
    return f"{shown}, " + (f"{slow:.2g}" if one["slow_determined"] else "beyond the record")
