"""The alert state of the running service: decided each cycle, kept in the journal, pushed to Alertmanager."""

import time
from dataclasses import dataclass, field
from typing import Any

import structlog

from healthsvc.alerts import Alert, AlertPolicy, AlertState, Decision, decide, source_down, take_over
from healthsvc.fleet import RiskReport
from healthsvc.publish.alertmanager import AlertmanagerClient
from healthsvc.store import Journal, StoreError

log = structlog.get_logger()
UNCHANGED_FOR_S = 6 * 3600.0  # silence is no recovery; after this, GpuTelemetryUnknown takes over


def load_state(journal: Journal) -> AlertState:
    """The state of the last run, so that a restart resolves nothing; empty, with a warning, if it cannot be read."""
    rows = sorted(journal.load_alerts(), key=lambda row: str(row["key"]) != "")
    try:
        return AlertState.from_rows(row["payload"] for row in rows)
    except ValueError as failure:
        log.warning("alert state not restored", error=str(failure))
        return AlertState()


def journal_rows(state: AlertState) -> list[dict[str, Any]]:
    """One journal row a case, and the state's own under the empty key."""
    own, *cases = state.to_rows()
    rows: list[dict[str, Any]] = [{"key": "", "labels": {}, "state": "own", "payload": own}]
    for case in cases:
        alert = case["alert"] or {}
        rows.append(
            {
                "key": case["subject"],
                "labels": alert.get("labels", {}),
                "annotations": alert.get("annotations", {}),
                "state": "pending" if case["firing"] is None else "firing",
                "raised_s": alert.get("raised_s"),
                "payload": case,
            }
        )
    return rows


@dataclass
class Alerting:
    """client: None sends nothing (alerts still stand in REST). Wall time is only for Alertmanager's stamps."""

    policy: AlertPolicy
    journal: Journal
    client: AlertmanagerClient | None
    resend_s: float
    state: AlertState = field(init=False)
    _sent: frozenset[str] = field(default=frozenset(), init=False)
    _sent_wall_s: float = field(default=-float("inf"), init=False)
    _down: Alert | None = field(default=None, init=False)
    _down_since_wall_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.state = load_state(self.journal)

    def resume(self, now_s: float) -> None:
        """At the start: what stood before the restart is sent again before anything is known of it."""
        if self.state.last_s is not None and self.state.last_s <= now_s:
            self._send(Decision(self.state, self.state.firing()), ())

    def decide(self, report: RiskReport) -> Decision:
        """What stands after this cycle; kept before it is sent. A full disk costs the memory, not the alert."""
        if self.state.last_s is not None and self.state.last_s > report.as_of_s:
            log.info("alert state of a later data time left aside", later_s=self.state.last_s, now_s=report.as_of_s)
            self.state = AlertState()  # a replay that begins again
        decision = decide(self.state, report, report.as_of_s, self.policy)
        ended = (self._down,) if self._down else ()
        self._down = None
        return self._settle(decision, ended)

    def source_is_down(self, source: str, reason: str, now_s: float) -> Decision:
        """The source has missed too many cycles: one alert says so, all others stand unchanged for six hours."""
        if self._down is None:
            self._down = source_down(source, reason, now_s)
            self._down_since_wall_s = time.monotonic()
        if time.monotonic() - self._down_since_wall_s > UNCHANGED_FOR_S:
            decision = take_over(self.state, now_s, source)
        else:
            decision = Decision(self.state, self.state.firing())
        whole = Decision(decision.state, (*decision.firing, self._down), decision.resolved, decision.held)
        return self._settle(whole, ())

    def _settle(self, decision: Decision, ended: tuple[Alert, ...]) -> Decision:
        if decision.state != self.state:
            self.state = decision.state
            try:
                self.journal.save_alerts(journal_rows(self.state))
            except StoreError as failure:
                log.error("alert state not saved", error=str(failure))
        self._send(decision, ended)
        return decision

    def _send(self, decision: Decision, ended: tuple[Alert, ...]) -> None:
        """At once when the set has changed, else at every resend: replay runs many cycles a second."""
        if self.client is None:
            return
        wall_s, keys = time.time(), frozenset(alert.key for alert in decision.firing)
        if keys != self._sent or decision.resolved or ended or wall_s - self._sent_wall_s >= self.resend_s:
            self.client.push(decision.firing, (*decision.resolved, *ended), wall_s)
            self._sent, self._sent_wall_s = keys, wall_s

    def resend(self) -> None:
        """Between cycles: keep alive what stands."""
        if self.client is not None and time.time() - self._sent_wall_s >= self.resend_s:
            self.client.resend(time.time())
            self._sent_wall_s = time.time()
