"""Runs cycles of `decide`, for sentences such as "three hours of this, then that"."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from healthsvc.alerts import AlertPolicy, AlertState, Decision, Held, decide
from healthsvc.fleet import RiskReport
from tests.reports import NOW_S

STEP_S = 600.0
POLICY = AlertPolicy(cycle_s=STEP_S)


@dataclass
class Cycles:
    """State and data time, moved on by `run`. Starts long after the warm-up."""

    policy: AlertPolicy = POLICY
    now_s: float = NOW_S
    state: AlertState = field(default_factory=lambda: AlertState(started_s=NOW_S - 1e6, last_s=NOW_S - STEP_S))
    last: Decision | None = None

    def once(self, report: RiskReport) -> Decision:
        """One cycle; time moves on afterwards."""
        self.last = decide(self.state, replace(report, as_of_s=self.now_s), self.now_s, self.policy)
        self.state = self.last.state
        self.now_s += STEP_S
        return self.last

    def run(self, report: RiskReport, duration_s: float) -> Decision:
        """Cycles over this span, both ends included."""
        for _ in range(int(duration_s / STEP_S)):
            self.once(report)
        return self.once(report)

    def until(self, report: RiskReport, done: Callable[[Decision], bool], within_s: float) -> float:
        """Seconds from the first of these cycles to the first decision that is `done`."""
        began_s = self.now_s
        while self.now_s - began_s <= within_s:
            at_s = self.now_s
            if done(self.once(report)):
                return at_s - began_s
        raise AssertionError(f"not within {within_s:g} s")


def names(decision: Decision) -> list[tuple[str, str, str]]:
    """(alertname, class, grade) of what fires."""
    return [(a.alertname, a.labels.get("class", ""), a.labels.get("grade", "")) for a in decision.firing]


def reasons(decision: Decision) -> set[Held]:
    """Why alerts are held back."""
    return {why for _, why in decision.held}


def endings(decision: Decision) -> list[str]:
    """How alerts ended."""
    return [a.annotations["resolution"].split(":")[0] for a in decision.resolved]
