"""Which GPUs there were, and since when: questions whose answers are labels, not samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor

import numpy as np

from healthsvc.fleet import DAY_S, GpuId
from healthsvc.telemetry.decode import Points
from healthsvc.telemetry.identity import IDENTITY_LABELS, device_label, gpu_id
from healthsvc.telemetry.prometheus_api import PrometheusApi
from healthsvc.telemetry.refusals import TooMuchError

CHUNK_S = 7 * DAY_S  # a query's reach; some services refuse 32 days
LOOK_BACK_DAYS = 1830  # older history is not looked for
_PROBE_DAYS = 30  # VictoriaMetrics' index knows days up to a range of 40
_BY = ", ".join(IDENTITY_LABELS)


@dataclass(frozen=True)
class Found:
    """A GPU, and the label that names it on this server (the exporter generations differ)."""

    gpu: GpuId
    label: str
    value: str


class _Listener:
    """Asks, and keeps what the server warned of: a partial answer lacks GPUs without saying which."""

    def __init__(self, api: PrometheusApi) -> None:
        self._api = api
        self.heard: set[str] = set()

    def points(self, query: str, time_s: int) -> Points:
        points = self._api.points(query, time_s)
        self.heard.update(points.warnings)
        return points


def find_gpus(
    api: PrometheusApi, selectors: Sequence[str], start_s: float, end_s: float
) -> tuple[dict[str, Found], set[str]]:
    """device_id -> its newest identity, from the series of `selectors` with a sample in [start, end]; and warnings."""
    found: dict[str, Found] = {}
    listener = _Listener(api)
    if selectors:
        edges = [*np.arange(end_s, start_s, -CHUNK_S), start_s]
        for late, early in pairwise(edges):
            found = {**_find(listener, selectors, early, late), **found}
    return found, listener.heard


def _find(api: _Listener, selectors: Sequence[str], start_s: float, end_s: float) -> dict[str, Found]:
    """As find_gpus, halving the time while the server finds the question too large."""
    end, window = ceil(end_s), max(ceil(end_s) - floor(start_s), 1)
    try:
        return _newest(api, selectors, window, end)
    except TooMuchError:
        if window < 120:
            raise
    middle = end - window // 2
    return {**_find(api, selectors, start_s, middle), **_find(api, selectors, middle, end_s)}


def _newest(api: _Listener, selectors: Sequence[str], window_s: int, end_s: int) -> dict[str, Found]:
    query = " or ".join(f"group by ({_BY}) (last_over_time({s}[{window_s}s]))" for s in selectors)
    candidates: dict[str, dict[GpuId, Found]] = {}
    for series in api.points(query, end_s).labels:
        gpu, named = gpu_id(series), device_label(series)
        if gpu and named:
            candidates.setdefault(gpu.device_id, {})[gpu] = Found(gpu, *named)
    if all(len(each) == 1 for each in candidates.values()):
        return {device: next(iter(each.values())) for device, each in candidates.items()}
    seen = _last_seen(api, selectors, window_s, end_s)
    return {d: max(each.values(), key=lambda f: seen.get(f.gpu, -np.inf)) for d, each in candidates.items()}


def _last_seen(api: _Listener, selectors: Sequence[str], window_s: int, end_s: int) -> Mapping[GpuId, float]:
    """When each identity last had a sample; asked only where a GPU was moved or renamed inside the window."""
    step = max(60, window_s // 500)
    query = " or ".join(f"max by ({_BY}) (max_over_time(timestamp({s})[{window_s}s:{step}s]))" for s in selectors)
    points = api.points(query, end_s)
    seen: dict[GpuId, float] = {}
    for series, time_s in zip(points.labels, points.values, strict=True):
        if gpu := gpu_id(series):
            seen[gpu] = max(seen.get(gpu, -np.inf), float(time_s))
    return seen


def find_span(
    api: PrometheusApi, selectors: Sequence[str], now_s: float
) -> tuple[tuple[float, float] | None, set[str]]:
    """First and last moment with samples of `selectors`, or None; and warnings.

    Day by day from the server's index, then to five minutes by one query at each end. Where the index knows only a
    block (Prometheus: up to 31 days once compacted), the first moment may be that block's start: never too late.
    """
    listener = _Listener(api)
    if not selectors:
        return None, listener.heard
    now = now_s + DAY_S
    edges = [now - k * DAY_S for k in range(0, LOOK_BACK_DAYS + 1, _PROBE_DAYS)]
    held = [(early, late) for late, early in pairwise(edges) if api.present(selectors, early, late)]
    if not held:
        return None, listener.heard
    (first, first_end), (last_start, last) = held[-1], held[0]
    for _ in range(5):  # 30 days to a day
        middle = (first + first_end) / 2
        first, first_end = (first, middle) if api.present(selectors, first, middle) else (middle, first_end)
        middle = (last_start + last) / 2
        last_start, last = (middle, last) if api.present(selectors, middle, last) else (last_start, middle)
    last = min(last, now_s)
    # VictoriaMetrics' index knows whole days (UTC), so each end may lie up to a day outside its bracket.
    begin = _edge(listener, selectors, "min", first, first_end + DAY_S)
    end = _edge(listener, selectors, "max", last_start - DAY_S, last)
    return (begin if begin is not None else first, end if end is not None else last), listener.heard


def _edge(api: _Listener, selectors: Sequence[str], which: str, start_s: float, end_s: float) -> float | None:
    """The first ("min") or last ("max") sample time among those seen at five-minute instants of [start, end]."""
    window = ceil(end_s - start_s) + 300
    times = (f"{which}_over_time({which}(timestamp({s}))[{window}s:300s])" for s in selectors)
    try:
        points = api.points(" or ".join(times), ceil(end_s))
    except TooMuchError:
        return None
    if not len(points.values):
        return None
    return float(points.values.min() if which == "min" else points.values.max())
