"""Which GPUs there were, and since when: questions whose answers are labels, not samples."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor

import numpy as np

from healthsvc.fleet import DAY_S, GpuId
from healthsvc.telemetry.decode import Points
from healthsvc.telemetry.identity.labels import IDENTITY_LABELS, device_label, gpu_id, host_of, place_among, united
from healthsvc.telemetry.server.prometheus_api import PrometheusApi
from healthsvc.telemetry.server.refusals import TooMuchError

CHUNK_S = 7 * DAY_S  # a query's reach; some services refuse 32 days
LOOK_BACK_DAYS = 1830  # older history is not looked for
_PROBE_DAYS = 30  # VictoriaMetrics' index knows days up to a range of 40
_BY = ", ".join(IDENTITY_LABELS)
# Where the labels of a reading leave out what a GPU is, a metric of its own says it.
IDENTITY_METRICS = ("nvidia_smi_gpu_info",)
Hear = Callable[[Mapping[str, str]], None]


@dataclass(frozen=True)
class Found:
    """A GPU, and the label that names it on this server (the exporter generations differ).

    spellings: every (label, value) that names it; places: every place that claims to hold it, in order of name. More
    than one: it was moved or renamed, or two hosts speak of one UUID.
    """

    gpu: GpuId
    label: str
    value: str
    spellings: tuple[tuple[str, str], ...] = ()
    places: tuple[GpuId, ...] = ()

    def with_older(self, older: "Found | None") -> "Found":
        """With what an earlier stretch of time knew of it."""
        if older is None or older == self:
            return self
        places = united([(gpu, True) for gpu in dict.fromkeys((*self.places, *older.places))])
        spellings = tuple(sorted({*self.spellings, *older.spellings}))
        return replace(self, spellings=spellings, places=places)


class _Listener:
    """Asks, and keeps what the server warned of: a partial answer lacks GPUs without saying which.

    more: further labels to group by, of which `hear` is told.
    """

    def __init__(self, api: PrometheusApi, more: Sequence[str] = (), hear: Hear | None = None) -> None:
        self._api, self._hear = api, hear
        self.by = ", ".join(dict.fromkeys((*IDENTITY_LABELS, *more)))
        self.heard: set[str] = set()

    def points(self, query: str, time_s: int) -> Points:
        points = self._api.points(query, time_s)
        self.heard.update(points.warnings)
        return points

    def identities(self, query: str, time_s: int) -> tuple[Mapping[str, str], ...]:
        labels = self.points(query, time_s).labels
        if self._hear is not None:
            for each in labels:
                self._hear(each)
        return labels


def find_gpus(
    api: PrometheusApi,
    selectors: Sequence[str],
    start_s: float,
    end_s: float,
    more: Sequence[str] = (),
    hear: Hear | None = None,
) -> tuple[dict[str, Found], set[str]]:
    """device_id -> its newest identity, from the series of `selectors` with a sample in [start, end]; and warnings.

    hear: told of every label set, with the labels `more` among them.
    """
    found: dict[str, Found] = {}
    listener = _Listener(api, more, hear)
    if selectors:
        edges = [*np.arange(end_s, start_s, -CHUNK_S), start_s]
        for late, early in pairwise(edges):
            found = _both(_find(listener, selectors, early, late), found)
    return found, listener.heard


def _both(early: Mapping[str, Found], late: Mapping[str, Found]) -> dict[str, Found]:
    return {**early, **{device: found.with_older(early.get(device)) for device, found in late.items()}}


def _find(api: _Listener, selectors: Sequence[str], start_s: float, end_s: float) -> dict[str, Found]:
    """As find_gpus, halving the time while the server finds the question too large."""
    end, window = ceil(end_s), max(ceil(end_s) - floor(start_s), 1)
    try:
        return _newest(api, selectors, window, end)
    except TooMuchError:
        if window < 120:
            raise
    middle = end - window // 2
    return _both(_find(api, selectors, start_s, middle), _find(api, selectors, middle, end_s))


def _newest(api: _Listener, selectors: Sequence[str], window_s: int, end_s: int) -> dict[str, Found]:
    query = " or ".join(f"group by ({api.by}) (last_over_time({s}[{window_s}s]))" for s in selectors)
    claims: defaultdict[str, dict[tuple[GpuId, bool], None]] = defaultdict(dict)
    spellings: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for series in api.identities(query, end_s):
        gpu, named = gpu_id(series), device_label(series)
        if gpu and named:
            claims[gpu.device_id][gpu, host_of(series)[1]] = None
            spellings[gpu.device_id].add(named)
    places = {device: united(list(each)) for device, each in claims.items()}
    several = {device: each for device, each in places.items() if len(each) > 1}
    newest = _last_seen(api, selectors, window_s, end_s, several) if several else {}
    found = {}
    for device, each in places.items():
        names = tuple(sorted(spellings[device]))
        found[device] = Found(each[newest.get(device, 0)], *names[0], names, each)
    return found


def _last_seen(
    api: _Listener, selectors: Sequence[str], window_s: int, end_s: int, several: Mapping[str, tuple[GpuId, ...]]
) -> Mapping[str, int]:
    """device_id -> the place that it was at last; asked only where a GPU was moved or renamed inside the window.

    Of places that were all heard of to the end, the first by name: two hosts claim one UUID.
    """
    step = max(60, window_s // 500)
    query = " or ".join(f"max by ({_BY}) (max_over_time(timestamp({s})[{window_s}s:{step}s]))" for s in selectors)
    points = api.points(query, end_s)
    seen = {device: np.full(len(places), -np.inf) for device, places in several.items()}
    for series, time_s in zip(points.labels, points.values, strict=True):
        gpu = gpu_id(series)
        if gpu and gpu.device_id in several:
            place = place_among(several[gpu.device_id], series)
            seen[gpu.device_id][place] = max(seen[gpu.device_id][place], float(time_s))
    return {device: int(np.argmax(times >= times.max() - 2 * step)) for device, times in seen.items()}


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
