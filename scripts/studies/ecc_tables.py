"""The figures of the ecc_growth study as the tables of its card."""

from collections.abc import Iterator, Mapping
from typing import Any

from healthsvc.evaluation.exact import clopper_pearson
from scripts.studies import ecc_rates_tables
from scripts.studies.cards import table

Figures = Mapping[str, Any]


def tables(figures: Figures) -> str:
    """Markdown; a part that was never run is left out."""
    parts = [*_titan(figures.get("titan")), *_cases(figures.get("cases"))]
    if counts := figures.get("counts"):
        parts.append(ecc_rates_tables.tables({which: counts[which] for which in ("fixed", "fresh")}))
    if smartmem := figures.get("smartmem"):
        parts += ["### A storm before a failure, and one before none (SmartMem, DDR4)", "", smartmem["table"]]
    return "\n".join(parts)


def _titan(found: Figures | None) -> Iterator[str]:
    if found is None:
        return
    yield "### Real failures: Titan, 2018-01 to 2019-06, run once"
    yield ""
    yield "30-day origins, 30-day horizon; each GPU in place is"
    yield "a case. Learned before 2017, chosen on 2017; ours is re-fitted at every origin on the past, the logistic"
    yield "regression (ever, log since, n30, n90, log age) and the boosting once. 95 % intervals from draws of GPUs."
    yield ""
    head = [
        "event",
        "way",
        "cases / events",
        "AUC",
        "AP (95 %)",
        "top 20 / 100 pooled",
        "per origin",
        "said / came",
        "Brier skill",
    ]
    rows = []
    for kind, each in found.items():
        for name, way in each["ways"].items():
            ranks = name == "most in 90 days"
            rows.append(
                [
                    kind,
                    name,
                    f"{way['cases']:,} / {way['events']:,}",
                    f"{way['auc']:.3f}",
                    f"{way['ap']:.4f} ({way['ap_95'][0]:.4f} to {way['ap_95'][1]:.4f})",
                    f"{way['top_20']:.2f} / {way['top_100']:.2f}",
                    f"{way['top_20_per_origin']:.2f} / {way['top_100_per_origin']:.2f}",
                    "only ranks" if ranks else f"{way['calibration']:.2f}",
                    "" if ranks else f"{way['brier_skill']:+.4f}",
                ]
            )
    yield from table(head, rows)
    for kind, each in found.items():
        value, low, high = each["difference"]
        boosting, logistic = each["random_split_auc"]
        once = each["ways"]["boosting"]["auc"], each["ways"]["logistic"]["auc"]
        kernel, choice, past = each["kernel"], each["choice"], each["precursor"]
        weights = ", ".join(f"{weight:.3g}" for weight in kernel["weights"])
        yield (
            f"- {kind}: average precision of ours less the logistic's {value:+.4f} ({low:+.4f} to {high:+.4f}, "
            f"paired). The trap of a random split: trained on half of all cases at random, boosting has AUC "
            f"{boosting:.3f} and the logistic {logistic:.3f} on the other half of the same months, trained on the past "
            f"{once[0]:.3f} and {once[1]:.3f}. {past[0]:,} of {past[1]:,} had such an event "
            f"in the 90 days before ({100 * past[0] / max(past[1], 1):.1f} %), {past[2]:,} ever. Kernel weights "
            f"{weights} at 7, 30, 90 days, for ever {kernel['frailty']:.3g}; window {choice['window_days']:.0f} d, "
            f"ridge {choice['ridge']:g}, kernel weighs {choice['recurrent_events']:g} events."
        )
    yield ""


def _cases(found: Figures | None) -> Iterator[str]:
    if found is None:
        return
    yield "### Made faults"
    yield ""
    yield "In fleets of 10,240 GPUs, fixed seeds and fresh ones of the day of the run."
    yield ""
    rows = []
    for words in ("fixed", "fresh"):
        each = found[words]
        burst, storm, above = each["bursts"], each["storms"], each["wears_above"]
        rows.append(
            [
                f"{words} ({', '.join(str(seed) for seed in each['seeds'])})",
                "; ".join(f"{hours} h: {_share(count, each['wears'])}" for hours, count in above.items()),
                f"{_share(burst['failure'], burst['bursts'])}; at watch {burst['watched']}, "
                f"{burst['odd']} of them for the hour of the burst",
                f"{storm['seen']} of {storm['storms']}, {storm['failure']} of them failure-grade",
            ]
        )
    head = [
        "seeds",
        "wear: P(T2 or T1, 7 d) above the failure threshold so long before the end",
        "single bursts, one row remapped (XID 63, waits for a reset): failure-grade",
        "storm of 17,700 errors/s: at watch when the hour of its onset ends",
    ]
    yield from table(head, rows)


def _share(count: int, total: int) -> str:
    low, high = clopper_pearson(count, total)
    return f"{count} of {total}, {100 * count / total:.0f} % (95 %: {100 * float(low):.1f} to {100 * float(high):.1f})"
