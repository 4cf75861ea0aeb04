"""The figures of the throttling_cascade study as the tables of its card."""

from collections.abc import Iterator, Mapping
from typing import Any

from healthsvc.evaluation.exact import clopper_pearson
from scripts.studies.cards import table

Figures = Mapping[str, Any]
WHICH = ("fixed", "fresh")


def tables(figures: Figures) -> str:
    """Markdown; a part that was never run is left out."""
    drawn = {
        "ramps": _losses("Flow lost by 65-85 %, over 30 to 180 minutes", "measured", "hidden"),
        "sudden": _losses("Flow lost by 65-85 % within a minute", "measured", "hidden"),
        "partial": _losses("Flow lost by 20-50 %, over 30 to 180 minutes", "measured", "hidden"),
        "brake": _brake,
        "calibration": _calibration,
        "healthy": _healthy,
        "contagion": _contagion,
    }
    lines: list[str] = []
    for name, draw in drawn.items():
        if found := figures.get(name):
            lines += draw(found)
    return "\n".join(lines)


def _losses(title: str, *sites: str) -> Any:
    def draw(found: Figures) -> Iterator[str]:
        yield f"### {title}"
        yield ""
        head = [
            "seeds",
            "flow",
            "loops that throttle",
            "alert before the median member's onset",
            "before the third's",
            "lead on the median, minutes: 5 / 50 / 95 %",
            "incidents a loop",
            "after the fact, minutes: 50 / 95 %",
            "first alert",
        ]
        rows, quiet, why = [], [], []
        for which in WHICH:
            for site in sites:
                each = found.get(which, {}).get(site)
                if each is None:
                    continue
                lead, late = each["lead_minutes"], each["after_fact_minutes"]
                rows.append(
                    [
                        f"{which} ({_seeds(found[which])})",
                        site,
                        f"{each['throttling']} of {each['cases']}",
                        share(each["before_median_onset"], each["throttling"]),
                        str(each["before_third_onset"]),
                        " / ".join(f"{round(lead[q])}" for q in ("0.05", "0.5", "0.95") if lead),
                        _told(each["incidents"]),
                        " / ".join(f"{round(late[q])}" for q in ("0.5", "0.95") if late)
                        + f"; within 2: {each['within_2_cycles']} of {each['facts']}",
                        _told(each["first"]),
                    ]
                )
                quiet.append(
                    f"- {which}, flow {site}: {each['calm']} loops had fewer than three members throttling; "
                    f"{each['calm_alerted']} of these alerted, {each['never_throttled_alerted']} without any that ever "
                    f"throttled. At watch or alerted: {each['watched']} of {each['cases']}. Alerts that stood before "
                    f"the flow fell: {each['stood_before']}, on sound loops: {each['strangers']}."
                )
                first, last = _told(each["first_cause"]), _told(each["last_cause"])
                why.append(f"- {which}, flow {site}, cause given at first: {first}; in the end: {last}.")
        yield from table(head, rows)
        yield from [*quiet, *why, ""]

    return draw


def _brake(found: Figures) -> Iterator[str]:
    yield "### Power brake on 9 of 36 nodes"
    yield ""
    head = ["seeds", "feed", "one facility incident", "alert within 10 minutes", "minutes", "incidents", "GPU alerts"]
    rows = []
    for which in WHICH:
        for site in ("known", "unknown"):
            if each := found.get(which, {}).get(site):
                rows.append(
                    [
                        f"{which} ({_seeds(found[which])})",
                        site,
                        f"{each['exactly_one']} of {each['cases']}",
                        f"{each['within_10_minutes']} of {each['cases']}",
                        " to ".join(f"{m:.0f}" for m in each["minutes"]) or "never",
                        f"{_told(each['incidents'])}; on {_told(each['places'])}",
                        _told(each["gpu_alerts"]),
                    ]
                )
    yield from table(head, rows)


def _calibration(found: Figures) -> Iterator[str]:
    yield "### P(at least three members throttle), weeks that were not learned from"
    yield ""
    yield "Fleets with pumps and fans that fail at all speeds, heat waves and workload steps; every second one measures"
    yield "no flow. Asked every ten minutes. Still calm: fewer than three members throttle yet, so there is something"
    yield "left to foretell."
    yield ""
    head = ["seeds", "horizon", "domains", "cases / events", "Brier skill", "said / came", "slope"]
    rows = []
    for which in WHICH:
        for horizon in ("30 min", "2 h"):
            for name, each in found.get(which, {}).get(horizon, {}).items():
                rows.append(
                    [
                        f"{which} ({_seeds(found[which])})",
                        horizon,
                        name,
                        f"{each['cases']:,} / {each['events']:,}",
                        f"{each['brier_skill']:+.3f}",
                        f"{each['said_over_came']:.2f}",
                        f"{each['slope']:.2f}",
                    ]
                )
    yield from table(head, rows)
    head = ["seeds", "horizon", "said", "cases", "mean said", "came (95 %)"]
    rows = []
    for which in WHICH:
        for horizon in ("30 min", "2 h"):
            for low, high, n, said, came, least, most in (
                found.get(which, {}).get(horizon, {}).get("still calm", {}).get("reliability", [])
            ):
                rows.append(
                    [
                        which,
                        horizon,
                        f"{low:.2g} to {high:.2g}",
                        f"{n:,.0f}",
                        f"{said:.3g}",
                        f"{came:.3g} ({least:.2g} to {most:.2g})",
                    ]
                )
    yield "Reliability, domains with fewer than three members throttling yet."
    yield ""
    yield from table(head, rows)


def _healthy(found: Figures) -> Iterator[str]:
    yield "### Healthy fleets with heat waves and workload steps, a cycle every ten minutes"
    yield ""
    head = [
        "seeds",
        "incidents",
        "rack- and loop-months",
        "per 1,000 (95 % below)",
        "node-months",
        "per 10,000 (95 % below)",
    ]
    rows, said = [], []
    for which in WHICH:
        if each := found.get(which):
            wide, node = each["per_1000_rack_or_loop_months"], each["per_10000_node_months"]
            rows.append(
                [
                    f"{which} ({_seeds(each)})",
                    _told(each["incidents"]),
                    f"{each['rack_and_loop_months']:,.0f}",
                    f"{wide[0]:.2f} ({wide[1]:.2f})",
                    f"{each['node_months']:,.0f}",
                    f"{node[0]:.2f} ({node[1]:.2f})",
                ]
            )
            least = ", ".join(f"{layer} {p:.1g}" for layer, p in each["smallest_excess_p"].items())
            said.append(
                f"- {which}: {each['throttled']} of the incidents with three members that did throttle; "
                f"{each['gpu_throttled_bins']:,} times ten minutes throttled in {each['gpu_months']:,.0f} GPU-months. "
                f"Smallest tail probability of onsets in a half hour: {least or 'none'}."
            )
    yield from table(head, rows)
    yield from [*said, ""]


def _contagion(found: Figures) -> Iterator[str]:
    yield "### Contagion: what the fit says of throttling neighbours in the node"
    yield ""
    head = ["seeds", "true effect", "inlet", "fleets, onsets", "mean effect (error)", "covered", "above 0", "not 0"]
    head += ["rack or loop above 0", "not separable"]
    rows = []
    for which in WHICH:
        part = found.get(which, {})
        for gamma, sites in part.items():
            if gamma in ("seeds", "day"):
                continue
            for inlet, each in sites.items():
                told = "" if each["mean_effect"] is None else f"{each['mean_effect']:+.3f} ({each['mean_error']:+.3f})"
                rows.append(
                    [
                        f"{which} ({_seeds(part)})",
                        gamma,
                        inlet,
                        f"{each['fleets']}, at least {each['onsets_least']:,}",
                        told,
                        *(str(each[name]) for name in ("covered", "claimed", "rejected")),
                        f"{each['wider_claimed']} of {each['wider']}",
                        str(each["not_separable"]),
                    ]
                )
    yield from table(head, rows)


def _seeds(part: Figures) -> str:
    return ", ".join(map(str, part["seeds"]))


def share(count: int, total: int) -> str:
    """With its exact interval."""
    low, high = clopper_pearson(count, total)
    interval = f"95 %: {100 * float(low):.1f} to {100 * float(high):.1f}"
    return f"{count} of {total}, {100 * count / max(total, 1):.1f} % ({interval})"


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none"
