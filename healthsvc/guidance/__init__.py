"""Evidence in plain words: why a GPU stands where it stands, and what to do about it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from healthsvc.fleet import CLASSES, Band, FleetHistory, RiskReport
from healthsvc.guidance.case import WATCH_IT, Case, newest_xids
from healthsvc.guidance.device_loss import device_loss
from healthsvc.guidance.memory import memory
from healthsvc.guidance.thermal import thermal, thermal_grounds
from healthsvc.guidance.words import XIDS, counted, duration, percent

_SPEAKERS: tuple[Callable[[Case], tuple[list[str], str]], ...] = (thermal, memory, device_loss)


def _blind(observed: tuple[bool, ...], grounds: str) -> tuple[tuple[str, ...], str]:
    """What to say of a GPU that too little is known about."""
    missing = [name.replace("_", " ") for name, seen in zip(CLASSES, observed, strict=True) if not seen]
    return (
        (f"Too little telemetry to judge it: nothing observed for {', '.join(missing)}", *filter(None, [grounds])),
        "Check its exporter and enable the missing fields; until then nothing is known, which is not healthy.",
    )


def advise(report: RiskReport, history: FleetHistory, degrading_p: Mapping[str, float]) -> RiskReport:
    """The report with reasons and one action for every GPU that is not healthy, the gravest class first."""
    reasons: dict[int, tuple[str, ...]] = {}
    actions: dict[int, str] = {}
    said: dict[tuple[tuple[bool, ...], str], tuple[tuple[str, ...], str]] = {}
    for row in np.flatnonzero(report.band == Band.UNKNOWN).tolist():
        observed = tuple(report.observed[row].tolist())
        key = observed, "" if observed[0] else thermal_grounds(report, row)
        reasons[row], actions[row] = said.setdefault(key, _blind(*key))
    xids = newest_xids(history)
    for row in np.flatnonzero(report.band >= Band.WATCH).tolist():
        case = Case(report, history, row, degrading_p, xids)
        facts = report.facts
        weight = 4 * facts.terminal[row] + 2 * facts.open_events[row] + np.nan_to_num(report.share[row])
        texts: list[str] = []
        action = ""
        for column in np.argsort(-weight, kind="stable").tolist():
            if case.notable(column):
                words, advice = _SPEAKERS[column](case)
                texts += words
                action = action or advice
        reasons[row] = tuple(texts) or ("Its risk stands above the fleet's",)
        actions[row] = action or WATCH_IT
    return replace(report, reasons=reasons, actions=actions)


__all__ = ["WATCH_IT", "XIDS", "advise", "counted", "duration", "percent"]
