"""The questions asked of a Prometheus HTTP API. Every failure is a SourceError."""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from healthsvc.config import PrometheusSettings
from healthsvc.telemetry.decode import (
    MalformedAnswerError,
    Points,
    Samples,
    decode_points,
    decode_samples,
    decode_warnings,
)
from healthsvc.telemetry.server.credentials import flavour_credentials
from healthsvc.telemetry.server.http_session import (
    RETRIED_STATUSES,
    Answer,
    Exchanger,
    ServerBusyError,
    build_session,
    persist,
)
from healthsvc.telemetry.server.probe import Backend, chosen_profile, find_backend
from healthsvc.telemetry.server.refusals import no_answer, not_the_api, refusal
from healthsvc.telemetry.source import SourceError

T = TypeVar("T")

BYTES_A_SAMPLE = 100  # a generous [1700000000.123,"12345.678901"], with its share of the labels
ASKED_AGAIN_S = 300.0  # what kind it is, of a server that could not say
_STATUS = re.compile(r"HTTP Status Code (\d+) \((.*)\)", re.DOTALL)


class PrometheusApi:
    """Queries through our own exchanger; names of metrics through prometheus-api-client, on the same session.

    How the server wants to be asked is found out at the first question (`backend`). Answers carry the server's
    warnings; those beside names, which prometheus-api-client drops, are overheard and kept until `overheard` is called.
    Safe for several threads. ahead_s: how far the server's clock was ahead of ours at the last answer.
    """

    def __init__(
        self,
        settings: PrometheusSettings,
        session: requests.Session | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        if settings.url is None:
            raise SourceError(
                "prometheus.url", "is not set", "Set HEALTHSVC_PROMETHEUS_URL=http://host:9090", permanent=True
            )
        self._settings = settings
        self._url = str(settings.url).rstrip("/")
        parts = urlsplit(self._url)
        self.where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # without a password
        self.ahead_s = 0.0
        self._clock, self.now = clock, now
        self._session = session or build_session(settings)
        if settings.tenant:
            self._session.headers["X-Scope-OrgID"] = settings.tenant
        self._session.hooks["response"].append(self._overhear)
        most_bytes = 2**24 + BYTES_A_SAMPLE * settings.samples_a_query
        self._exchange = Exchanger(self._session, settings.timeout_s, settings.attempts, most_bytes)
        self._overheard: set[str] = set()
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._asked_again_s = -float("inf")  # of `clock`
        self._identified = False

    @property
    def backend(self) -> Backend:
        """What kind of server it is; one that could not say is asked again after a while. Raises SourceError."""
        with self._lock:
            known = self._backend
            if known is not None and (known.sure or self._clock() < self._asked_again_s):
                return known
            once = replace(self._exchange, attempts=1, most_bytes=2**20)
            try:
                self._identify()
                found = find_backend(self._settings, self._url, lambda m, url, form: self._send(once, m, url, form))
            except requests.RequestException as failure:
                raise no_answer(self.where, failure) from None
            self._backend, self._asked_again_s = found, self._clock() + ASKED_AGAIN_S
            return found

    def _identify(self) -> None:
        """Signatures and client credentials, which the flavour has a part in. Raises CredentialsError."""
        if self._identified:
            return
        profile, _ = chosen_profile(self._settings, self._url)
        plain = self._settings.model_copy(update={"bearer_token_file": None, "basic_user": "", "headers": {}})
        special = flavour_credentials(self._settings, profile, build_session(plain))
        self._session.auth = special or self._session.auth
        self._identified = True

    def overheard(self) -> set[str]:
        """Warnings that came with names since the last call."""
        heard, self._overheard = self._overheard, set()
        return heard

    def metric_names(self, start_s: float, end_s: float) -> frozenset[str]:
        """Names of the metrics with series in [start, end], give or take a block."""
        names: set[str] = set()
        until_s = end_s
        while until_s > start_s:
            since_s = max(start_s, until_s - self.backend.profile.index_reach_s)
            names.update(self._label_values("__name__", {"start": int(since_s), "end": int(until_s)}))
            until_s = since_s
        return frozenset(names)

    def present(self, selectors: Sequence[str], start_s: float, end_s: float) -> bool:
        """Whether any selector has series in [start, end]: from the index, exact to a block and cheap, if there is one
        that takes selectors; else by a query."""
        if self.backend.profile.index:
            span = {"match[]": list(selectors), "start": int(start_s), "end": int(end_s)}
            return bool(self._label_values("__name__", span))
        window = max(int(end_s) - int(start_s), 1)
        return any(len(self.points(f"count(last_over_time({s}[{window}s]))", int(end_s)).values) for s in selectors)

    def samples(self, selector: str, window_s: int, time_s: int, *, coarse: bool = False) -> Samples:
        """Raw samples in [time - window, time] (some servers leave the start out), as stored: no fill, no alignment.

        coarse: the server's 5-minute averages instead, where its profile has any.
        """
        return self._query(f"{selector}[{window_s}s]", time_s, decode_samples, coarse=coarse)

    def points(self, query: str, time_s: int | None = None) -> Points:
        """An instant query, at the server's own now if `time_s` is None."""
        return self._query(query, time_s, decode_points)

    def evaluated(self, expression: str, start_s: float, end_s: float, step_s: float) -> Samples:
        """An expression's value at each step of [start, end], as the server fills it in."""
        span = {"start": f"{start_s:.0f}", "end": f"{end_s:.0f}", "step": f"{max(step_s, 1):.0f}"}  # GMP: whole seconds
        return self._query(expression, None, decode_samples, path="query_range", more=span)

    def _query(
        self,
        query: str,
        time_s: int | None,
        decode: Callable[[bytes], T],
        *,
        coarse: bool = False,
        path: str = "query",
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> T:
        backend = self.backend
        where = f"{self.where}/api/v1/{path} {query[:200]}"
        profile = backend.profile
        form = {"query": query, "timeout": f"{self._settings.timeout_s:g}s", **more}
        form |= {**(profile.coarse if coarse else profile.parameters), **self._settings.parameters}
        if time_s is not None:
            form["time"] = str(time_s)
        try:
            answer = self._send(self._exchange, "POST" if profile.post else "GET", f"{backend.url}/api/v1/{path}", form)
        except requests.RequestException as failure:
            raise no_answer(where, failure) from None  # its own text has the URL, parameters and all
        if answer.status != 200:
            raise refusal(where, answer, profile.credentials)
        try:
            return decode(answer.body)
        except MalformedAnswerError as failure:
            raise not_the_api(where, answer.body, str(failure)) from None

    def _send(self, exchange: Exchanger, method: str, url: str, form: Mapping[str, str]) -> Answer:
        asked_s = self.now()
        answer = exchange(method, url, **{"data" if method == "POST" else "params": form})
        if answer.date_s is not None:
            # To the second, and at most as old as the exchange took: only more than that is a difference of clocks.
            early, late = answer.date_s + 1 - asked_s, answer.date_s - self.now()
            self.ahead_s = late if late > 0 else min(early, 0.0)
        return answer

    def _label_values(self, label: str, params: dict[str, Any]) -> list[str]:
        backend = self.backend
        asked = {**backend.profile.parameters, **self._settings.parameters, **params}
        adapter = self._session.get_adapter(self._url)
        connect = PrometheusConnect(backend.url, session=self._session, timeout=self._settings.timeout_s)
        self._session.mount(backend.url, adapter)  # PrometheusConnect has put its own in front of ours
        found = self._connected(lambda: connect.get_label_values(label, params=dict(asked)))
        return [str(value) for value in found]

    def _overhear(self, response: requests.Response, **_: Any) -> None:
        """Warnings beside names; an answer to a query is left alone, it has not been read yet."""
        if response.status_code == 200 and "/api/v1/label/" in urlsplit(response.url).path:
            with suppress(MalformedAnswerError):
                self._overheard.update(decode_warnings(response.content))

    def _connected(self, call: Callable[[], Any]) -> Any:
        """A call of prometheus-api-client, its three families of errors made one, with our retries."""

        def once() -> Any:
            try:
                return call()
            except PrometheusApiClientException as failure:
                told = _STATUS.search(str(failure))
                status, body = (int(told[1]), told[2]) if told else (0, str(failure))
                answer = Answer(status, {}, body.removeprefix("b").strip("'\"").encode())
                if answer.status in RETRIED_STATUSES:
                    raise ServerBusyError(answer) from failure
                raise refusal(self.where, answer, self.backend.profile.credentials) from failure

        try:
            return persist(self._settings.attempts, once)
        except ServerBusyError as busy:
            raise refusal(self.where, busy.answer, self.backend.profile.credentials) from busy
        except requests.exceptions.JSONDecodeError as failure:
            raise not_the_api(self.where, failure.doc.encode(), failure.msg) from failure
        except requests.RequestException as failure:
            raise no_answer(self.where, failure) from None
        except (KeyError, TypeError) as failure:
            raise not_the_api(self.where, b"", f"no data ({failure})") from failure
