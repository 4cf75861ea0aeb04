"""Pushes alerts to Alertmanager's v2 API and keeps them alive there.

Alertmanager holds alerts in memory and ends one that is not sent again in time, so every standing alert goes out whole
at each resend, and an ended one goes out as ended for some minutes. Times on the wire are wall time, an argument.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
import structlog

from healthsvc.alerts import Alert
from healthsvc.config import AlertmanagerSettings
from healthsvc.publish.times import rfc3339

BATCH = 1000
RESOLVED_RESENT_S = 300.0  # Alertmanager's own documentation asks for it
UNCHANGED_FOR_S = 6 * 3600.0  # silence is no recovery, for this long
MOST_PARTS = 64  # requests spent on finding the bad alerts of one push
MOST_SUSPECTS = 100  # alerts remembered as bad and sent apart
MISSED_CYCLES = 3
REFUSED = (400, 422)
log = structlog.get_logger()


@dataclass(frozen=True)
class Sending:
    """An alert as it goes out: wall times; ended_s is None while it stands."""

    alert: Alert
    started_s: float
    ended_s: float | None = None


class AlertmanagerClient:
    """One Alertmanager. Failures are counted and logged, never raised: the next resend tries again.

    Blind to what Alertmanager does with an alert (silences, inhibitions, routes). session carries credentials, trust
    and retries. count(outcome, alerts) hears of every alert: `sent`, `refused` or `failed`. Safe to call from two
    threads (the cycle pushes, a timer resends).
    """

    def __init__(
        self,
        settings: AlertmanagerSettings,
        session: requests.Session,
        cycle_s: float,
        count: Callable[[str, int], None] = lambda _outcome, _alerts: None,
    ) -> None:
        if settings.url is None:
            raise ValueError("alertmanager.url is not set; give the base URL, e.g. http://alertmanager:9093")
        self._url = str(settings.url).rstrip("/") + "/api/v2/alerts"
        self._external_url = settings.external_url.rstrip("/")
        self._timeout_s = settings.timeout_s
        self._stands_s = max(4 * settings.resend_s, MISSED_CYCLES * cycle_s)
        self._session, self._count = session, count
        self._sendings: dict[str, Sending] = {}
        self._suspects: dict[str, None] = {}  # keys refused before, in order
        self._pushed_s = 0.0
        self._lock = threading.Lock()

    def push(self, firing: Sequence[Alert], resolved: Sequence[Alert], wall_s: float) -> bool:
        """Send what a cycle decided; True when Alertmanager took all of it.

        firing is the whole standing set: an alert that is neither in it nor in `resolved` is no longer kept alive.
        """
        with self._lock:
            before, self._pushed_s = self._sendings, wall_s
            ending = {k: s for k, s in before.items() if s.ended_s is not None}
            for alert in resolved:
                known = before.get(alert.key)
                ending[alert.key] = Sending(alert, known.started_s if known else wall_s, wall_s)
            standing = {}
            for alert in firing:
                known = before.get(alert.key)
                started_s = known.started_s if known and known.ended_s is None else wall_s
                standing[alert.key] = Sending(alert, started_s)
            self._sendings = {**ending, **standing}
            return self._send(wall_s)

    def resend(self, wall_s: float) -> bool:
        """Send the same again. After six hours without a push nothing is sent: the set is too old to be vouched for."""
        with self._lock:
            if wall_s - self._pushed_s > UNCHANGED_FOR_S:
                self._sendings = {}
            return self._send(wall_s)

    def _send(self, wall_s: float) -> bool:
        kept = {k: s for k, s in self._sendings.items() if s.ended_s is None or wall_s - s.ended_s <= RESOLVED_RESENT_S}
        self._sendings = kept
        self._suspects = {k: None for k in self._suspects if k in kept}
        good = [s for k, s in kept.items() if k not in self._suspects]
        apart = [kept[k] for k in self._suspects]
        batches = [good[i : i + BATCH] for i in range(0, len(good), BATCH)] + [[s] for s in apart]
        budget, complete = _Budget(MOST_PARTS), True
        for position, batch in enumerate(batches):
            try:
                complete &= self._post(batch, wall_s, budget)
            except requests.RequestException as failure:
                rest = sum(map(len, batches[position:]))
                self._count("failed", rest)
                log.warning("alertmanager not reached", url=self._url, alerts=rest, error=str(failure))
                return False
        return complete

    def _post(self, batch: Sequence[Sending], wall_s: float, budget: "_Budget") -> bool:
        """Send a batch; one that is refused is halved until the bad alerts are found. Raises RequestException.

        Alertmanager answers 400 to a batch with one bad alert although it keeps the good ones, and 422 keeps none.
        """
        payload = [self._payload(sending, wall_s) for sending in batch]
        answer = self._session.post(self._url, json=payload, timeout=self._timeout_s)
        if answer.status_code not in REFUSED:
            answer.raise_for_status()
            self._count("sent", len(batch))
            for sending in batch:
                self._suspects.pop(sending.alert.key, None)
            return True
        if len(batch) > 1 and budget.take(2):
            middle = len(batch) // 2
            parts = [self._post(part, wall_s, budget) for part in (batch[:middle], batch[middle:])]
            return all(parts)
        self._count("refused", len(batch))
        if len(batch) == 1 and len(self._suspects) < MOST_SUSPECTS:
            self._suspects[batch[0].alert.key] = None
        labels = [dict(sending.alert.labels) for sending in batch[:3]]
        log.error("alertmanager refused", alerts=len(batch), labels=labels, answer=answer.text[:500])
        return False

    def _payload(self, sending: Sending, wall_s: float) -> dict[str, Any]:
        alert = sending.alert
        uuid = alert.labels.get("UUID")
        ends_s = wall_s + self._stands_s if sending.ended_s is None else sending.ended_s
        return {
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": rfc3339(sending.started_s),
            "endsAt": rfc3339(ends_s),
            "generatorURL": f"{self._external_url}/api/v1/" + (f"gpus/{quote(uuid)}" if uuid else "alerts"),
        }


@dataclass
class _Budget:
    """Requests that may still be spent on halving."""

    left: int

    def take(self, requests_: int) -> bool:
        if self.left < requests_:
            return False
        self.left -= requests_
        return True
