"""Pushes alerts to Alertmanager's v2 API and keeps them alive there.

Alertmanager holds alerts in memory and ends one that is not sent again in time, so every standing alert goes out whole
at each resend, and an ended one goes out as ended for some minutes. Times on the wire are wall time, an argument.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
import structlog
import urllib3

from healthsvc.alerts import Alert
from healthsvc.config import AlertmanagerSettings
from healthsvc.publish.board import MISSED_CYCLES
from healthsvc.publish.times import timestamp

BATCH = 1000
RESOLVED_RESENT_S = 300.0  # Alertmanager's own documentation asks for it
MOST_PARTS = 64  # requests spent on finding the bad alerts of one push
MOST_SUSPECTS = 100  # alerts remembered as bad and sent apart
REFUSED = (400, 422)
READ_BYTES = 64 * 2**10  # of an answer: a refusal says why, the rest is not waited for
log = structlog.get_logger()


@dataclass(frozen=True)
class Sending:
    """An alert as it goes out: wall times; ended_s is None while it stands."""

    alert: Alert
    started_s: float
    ended_s: float | None = None


class AlertmanagerClient:
    """One Alertmanager. Failures are counted and logged, never raised: the next resend tries again.

    Blind to what Alertmanager does with an alert (silences, inhibitions, routes), and to how old the standing set is:
    whoever calls `resend` vouches for it. session carries credentials and trust. count(outcome, alerts) hears of every
    alert: `sent`, `refused` or `failed`. For one thread.
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

    def push(self, firing: Sequence[Alert], resolved: Sequence[Alert], wall_s: float) -> bool:
        """Send what a cycle decided; True when Alertmanager took all of it.

        firing is the whole standing set: an alert that is neither in it nor in `resolved` is no longer kept alive.
        """
        before = self._sendings
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
        return self.resend(wall_s)

    def resend(self, wall_s: float) -> bool:
        """Send the last push again; True when Alertmanager took all of it."""
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
        status, said = self._exchange(payload)
        if status not in REFUSED:
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
        log.error("alertmanager refused", alerts=len(batch), labels=labels, answer=said)
        return False

    def _exchange(self, payload: list[dict[str, Any]]) -> tuple[int, str]:
        """Status and the beginning of the answer: 2xx or a refusal, all else raises RequestException.

        Redirects are not followed: a POST would arrive as a GET, and its 200 would look like success.
        """
        with self._session.post(
            self._url, json=payload, timeout=self._timeout_s, allow_redirects=False, stream=True
        ) as answer:
            status = answer.status_code
            try:
                said = answer.raw.read1(READ_BYTES, decode_content=True)[:500].decode("utf-8", "replace")
            except urllib3.exceptions.HTTPError as failure:
                raise requests.ConnectionError(str(failure)) from failure
            if 200 <= status < 300 or status in REFUSED:
                return status, said
            to = f", redirected to {answer.headers['Location']}" if "Location" in answer.headers else ""
            raise requests.HTTPError(f"HTTP {status}{to}: {said or 'no reason given'}", response=answer)

    def _payload(self, sending: Sending, wall_s: float) -> dict[str, Any]:
        alert = sending.alert
        uuid = alert.labels.get("UUID")
        ends_s = wall_s + self._stands_s if sending.ended_s is None else sending.ended_s
        return {
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": timestamp(sending.started_s),
            "endsAt": timestamp(ends_s),
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
