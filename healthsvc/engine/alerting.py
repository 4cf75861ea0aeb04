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
OURSELVES = "healthsvc, which has judged nothing for hours,"  # gives no telemetry where the source is not to blame


def load_state(journal: Journal) -> AlertState:
    """The state of the last run, so that a restart resolves nothing; empty, with a warning, if it cannot be read."""
    try:
        return AlertState.from_rows(journal.load_alerts().values())
    except ValueError as failure:
        log.warning("alert state not restored", error=str(failure))
        return AlertState()


def journal_rows(state: AlertState) -> dict[str, Any]:
    """One journal row a case, and the state's own under the empty key, which comes first."""
    own, *cases = state.to_rows()
    return {"": own, **{case["subject"]: case for case in cases}}


@dataclass
class Alerting:
    """client: None sends nothing (alerts still stand in REST). Wall time is only for Alertmanager's stamps.

    What stands is vouched for as long as `policy.silence_s` after the last judgement, on the monotonic clock; then
    GpuTelemetryUnknown takes over, whatever keeps the service from judging.
    """

    policy: AlertPolicy
    journal: Journal
    client: AlertmanagerClient | None
    resend_s: float
    state: AlertState = field(init=False)
    _sent: frozenset[str] = field(default=frozenset(), init=False)
    _sent_wall_s: float = field(default=-float("inf"), init=False)
    _down: Alert | None = field(default=None, init=False)
    _judged_at_s: float = field(default_factory=time.monotonic, init=False)

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
        self._judged_at_s = time.monotonic()
        ended = (self._down,) if self._down else ()
        self._down = None
        return self._settle(decision, ended)

    def source_is_down(self, source: str, reason: str, now_s: float) -> Decision:
        """The source has missed too many cycles: one alert says so, all others stand unchanged for six hours."""
        self._down = self._down or source_down(source, reason, now_s)
        return self._unjudged(now_s)

    def beat(self) -> Decision | None:
        """Between cycles: keep alive what stands; what stands instead, once nothing was judged for too long."""
        if self._vouched_for() or not self.state.firing():
            self.resend()
            return None
        return self._unjudged(self.state.last_s or 0.0)

    def _vouched_for(self) -> bool:
        return time.monotonic() - self._judged_at_s <= self.policy.silence_s

    def _unjudged(self, now_s: float) -> Decision:
        decision = Decision(self.state, self.state.firing())
        if not self._vouched_for():
            decision = take_over(self.state, now_s, self._down.labels["source"] if self._down else OURSELVES)
        down = (self._down,) if self._down else ()
        return self._settle(Decision(decision.state, (*decision.firing, *down), decision.resolved), ())

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
        """Keep alive what stands, however old it is."""
        if self.client is not None and time.time() - self._sent_wall_s >= self.resend_s:
            self.client.resend(time.time())
            self._sent_wall_s = time.time()
