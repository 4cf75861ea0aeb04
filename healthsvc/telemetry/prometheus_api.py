"""The questions asked of a Prometheus HTTP API. Every failure is a SourceError."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from healthsvc.config import PrometheusSettings
from healthsvc.telemetry.decode import MalformedAnswerError, Points, Samples, decode_points, decode_samples
from healthsvc.telemetry.http_session import (
    RETRIED_STATUSES,
    Answer,
    Exchanger,
    ServerBusyError,
    build_session,
    persist,
)
from healthsvc.telemetry.refusals import no_answer, not_the_api, refusal
from healthsvc.telemetry.source import SourceError

T = TypeVar("T")

BYTES_A_SAMPLE = 100  # a generous [1700000000.123,"12345.678901"], with its share of the labels
_STATUS = re.compile(r"HTTP Status Code (\d+) \((.*)\)", re.DOTALL)


class PrometheusApi:
    """Queries through our own exchanger; names of metrics through prometheus-api-client, on the same session.

    Answers to queries carry the server's warnings. Blind to those beside names: prometheus-api-client drops them.
    """

    def __init__(self, settings: PrometheusSettings, session: requests.Session | None = None) -> None:
        if settings.url is None:
            raise SourceError(
                "prometheus.url", "is not set", "Set HEALTHSVC_PROMETHEUS_URL=http://host:9090", permanent=True
            )
        self._settings = settings
        self._url = str(settings.url).rstrip("/")
        parts = urlsplit(self._url)
        self.where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # without a password
        session = session or build_session(settings)
        adapter = session.get_adapter(self._url)
        self._connect = PrometheusConnect(self._url, session=session, timeout=settings.timeout_s)
        session.mount(self._url, adapter)  # PrometheusConnect has put its own in front of ours
        most_bytes = 2**24 + BYTES_A_SAMPLE * settings.samples_a_query
        self._exchange = Exchanger(session, settings.timeout_s, settings.attempts, most_bytes)

    def metric_names(self, start_s: float, end_s: float) -> frozenset[str]:
        """Names of the metrics with series in [start, end], give or take a block."""
        return frozenset(self._label_values("__name__", {"start": int(start_s), "end": int(end_s)}))

    def present(self, selectors: Sequence[str], start_s: float, end_s: float) -> bool:
        """Whether any selector has series in [start, end], from the index: exact to a block, and cheap."""
        span = {"match[]": list(selectors), "start": int(start_s), "end": int(end_s)}
        return bool(self._label_values("__name__", span))

    def samples(self, selector: str, window_s: int, time_s: int) -> Samples:
        """Raw samples in [time - window, time] (some servers leave the start out), as stored: no fill, no alignment."""
        return self._query(f"{selector}[{window_s}s]", time_s, decode_samples)

    def points(self, query: str, time_s: int | None = None) -> Points:
        """An instant query, at the server's own now if `time_s` is None."""
        return self._query(query, time_s, decode_points)

    def _query(self, query: str, time_s: int | None, decode: Callable[[bytes], T]) -> T:
        where = f"{self.where}/api/v1/query {query[:200]}"
        form = {"query": query, "timeout": f"{self._settings.timeout_s:g}s", "nocache": "1"}
        if time_s is not None:
            form["time"] = str(time_s)
        try:
            answer = self._exchange("POST", f"{self._url}/api/v1/query", data=form)
        except requests.RequestException as failure:
            raise no_answer(where, failure) from failure
        if answer.status != 200:
            raise refusal(where, answer)
        try:
            return decode(answer.body)
        except MalformedAnswerError as failure:
            raise not_the_api(where, answer.body, str(failure)) from None

    def _label_values(self, label: str, params: dict[str, Any]) -> list[str]:
        found = self._connected(lambda: self._connect.get_label_values(label, params=params))
        return [str(value) for value in found]

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
                raise refusal(self.where, answer) from failure

        try:
            return persist(self._settings.attempts, once)
        except ServerBusyError as busy:
            raise refusal(self.where, busy.answer) from busy
        except requests.exceptions.JSONDecodeError as failure:
            raise not_the_api(self.where, failure.doc.encode(), failure.msg) from failure
        except requests.RequestException as failure:
            raise no_answer(self.where, failure) from failure
        except (KeyError, TypeError) as failure:
            raise not_the_api(self.where, b"", f"no data ({failure})") from failure
