"""One GPU's row of a report, as the sentences about it ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from healthsvc.fleet import CLASSES, Band, EventKind, FleetHistory, RiskReport
from healthsvc.fleet.xids import XIDS_BY_CLASS
from healthsvc.guidance.words import XIDS, duration, percent

WATCH_IT = "Keep it in service and watch it."
NewestXids = Mapping[str, Mapping[int, tuple[int, float]]]  # failure class -> row -> (code, start_s)


def newest_xids(history: FleetHistory) -> NewestXids:
    """The newest XID of each class and GPU; one pass over the events, which are in order of start."""
    xids = history.events.of(EventKind.XID)
    found = {}
    for failure_class, codes in XIDS_BY_CLASS.items():
        mine = xids.where(np.isin(xids.value, list(codes)))
        told = zip(mine.value.astype(int).tolist(), mine.start_s.tolist(), strict=True)
        found[failure_class] = dict(zip(mine.row.tolist(), told, strict=True))
    return found


@dataclass(frozen=True)
class Case:
    """One GPU's row, with short names for the sentences."""

    report: RiskReport
    history: FleetHistory
    row: int
    degrading_p: Mapping[str, float]
    xids: NewestXids

    def evidence(self, failure_class: str, name: str) -> float:
        column = self.report.evidence.get(failure_class, {}).get(name)
        return float("nan") if column is None else float(column[self.row])

    def p_7d(self, column: int) -> float:
        return float(self.report.probability[self.row, column, 0, 1])

    def notable(self, column: int) -> bool:
        """Whether this class has something to say: a fact, a change, or a probability at the watch level."""
        report, row = self.report, self.row
        changed = report.change_p[row, column] < self.degrading_p.get(CLASSES[column], 0.0)
        fact = report.facts.open_events[row, column] or report.facts.terminal[row, column]
        return bool(fact or changed or report.class_band[row, column] >= Band.WATCH)

    def happened(self, kind: EventKind) -> bool:
        """Whether the GPU has an event of this kind."""
        events = self.history.events
        return bool(((events.row == self.row) & (events.kind == kind)).any())

    def last_xid(self, failure_class: str) -> str:
        """The newest XID of this class in words, or nothing."""
        code, start_s = self.xids.get(failure_class, {}).get(self.row, (0, 0.0))
        if not code:
            return ""
        ago = duration(max(self.history.now_s - start_s, 0.0))
        return f"XID {code} ({XIDS[code]}) {ago} ago" if code in XIDS else f"XID {code} {ago} ago"


def chance(case: Case, column: int, what: str) -> str:
    """P(T2, 7 d) of a class in words, and whether it is calibrated."""
    if np.isnan(case.p_7d(column)):
        return f"{what} within 7 days: unknown, nothing is observed"
    source = "calibrated" if case.report.calibrated[case.row, column] else "prior"
    return f"{what} within 7 days: {percent(case.p_7d(column))} ({source})"
