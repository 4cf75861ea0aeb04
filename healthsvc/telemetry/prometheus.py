"""The source that is a real server: Prometheus, or anything with its API (Thanos, Mimir, VictoriaMetrics)."""

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import requests
from numpy.typing import NDArray

from healthsvc.config import PrometheusSettings
from healthsvc.fleet import DAY_S, MINUTE_S, GpuId, Placement
from healthsvc.telemetry.catalogue import ENVIRONMENT_ROWS, GPU_ROWS, PRESENCE_METRICS
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.discovery import Found, find_gpus, find_span
from healthsvc.telemetry.fetch import Ask, Fetcher
from healthsvc.telemetry.framing import Framer
from healthsvc.telemetry.grid import step_of
from healthsvc.telemetry.identity import DEVICE_LABELS
from healthsvc.telemetry.prometheus_api import PrometheusApi
from healthsvc.telemetry.sharding import Shard, shards
from healthsvc.telemetry.source import RawGrid

NAMES_FRESH_S = 300.0  # a first XID brings a new metric: it must not wait long
_NAMES_REACH_S = 400 * DAY_S
_MATCHER = re.compile(r'([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"(?:\\.|[^"\\])*"')
_EXPORTERS_OWN = frozenset({"job", "instance"})  # matchers on these name the GPU exporter, not the site


@dataclass(frozen=True)
class _Names:
    """Metric names of a stretch of history, and until when (monotonic clock) they are believed."""

    names: frozenset[str] = frozenset()
    start_s: float = np.inf
    end_s: float = -np.inf
    until_s: float = -np.inf

    def hold(self, start_s: float, end_s: float) -> bool:
        return bool(self.names) and self.start_s <= start_s and end_s <= self.end_s and time.monotonic() < self.until_s


class PrometheusSource:
    """Telemetry from a Prometheus server: raw samples by range selector, a metric a query, split to suit the server.

    Only metrics that exist are asked for. Blind to series without a UUID, and to samples that arrive after the read.
    """

    name = "prometheus"

    def __init__(self, settings: PrometheusSettings, session: requests.Session | None = None) -> None:
        self._settings = settings
        self._api = PrometheusApi(settings, session)
        self._fetch = Fetcher(self._api, settings.samples_a_query, settings.concurrency)
        self._devices: dict[str, Found] = {}
        self._names = _Names()
        self._heard: set[str] = set()  # warnings that no grid has carried yet

    def metrics(self, start_s: float, end_s: float) -> frozenset[str]:
        """Names of all metrics in [start, end], asked anew once they are NAMES_FRESH_S old. Raises SourceError."""
        if not self._names.hold(start_s, end_s):
            start, end = min(start_s, end_s - _NAMES_REACH_S), end_s + 2 * NAMES_FRESH_S
            names = self._api.metric_names(start, end)
            self._names = _Names(names, start, end, time.monotonic() + NAMES_FRESH_S)
        return self._names.names

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        """Every GPU with a liveness or XID sample in [start, end], in order of device_id. Raises SourceError."""
        names = self.metrics(start_s, end_s)
        selectors = [self._selector(m) for m in PRESENCE_METRICS if m in names]
        found, warnings = find_gpus(self._api, selectors, start_s, end_s)
        self._heard |= warnings
        # A GPU whose labels have not changed stays the same object: comparing whole fleets then costs next to nothing.
        found = {device: known if (known := self._devices.get(device)) == one else one for device, one in found.items()}
        self._devices = {**self._devices, **found}
        return tuple(found[device].gpu for device in sorted(found))

    def placement(self) -> Placement | None:
        """None: a server knows no racks."""
        return None

    def span(self) -> tuple[float, float] | None:
        """First and last moment with GPU samples (find_span tells how exact), if any. Raises SourceError."""
        now_s = float(self._api.points("vector(time())").values[0])
        span, warnings = find_span(self._api, [self._selector(m) for m in PRESENCE_METRICS], now_s)
        self._heard |= warnings
        return span

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        """Samples on the uniform grid `times_s` for `gpus`, or for every GPU found there. Raises SourceError.

        A signal that no GPU has here is absent. One column alone is 60 s wide unless `step_s` says otherwise. The
        warnings are those of this read and of every discovery since the last one: a partial answer there loses GPUs.
        """
        step_s = step_of(times_s, step_s, MINUTE_S)
        start_s, end_s = float(times_s[0]) - step_s, float(times_s[-1])
        if gpus is None:
            gpus = self.discover(start_s, end_s)
        elif any(gpu.device_id not in self._devices for gpu in gpus):
            self.discover(start_s, end_s)
        framer = Framer(gpus, times_s, step_s)

        def take(ask: Ask, samples: Samples, columns: slice) -> None:
            framer.take(ask.row, samples, columns)

        fetched = self._fetch(self._asks(self.metrics(start_s, end_s), gpus), times_s, step_s, take)
        heard, self._heard = self._heard, set()
        return framer.grid(fetched.samples, [*(fetched.warnings | heard)])

    def _asks(self, names: frozenset[str], gpus: Sequence[GpuId]) -> list[Ask]:
        parts = self._shards([gpu.device_id for gpu in gpus]) if gpus else []
        of_gpus = [
            Ask(row, self._selector(row.metric, part.matcher), part.devices)
            for row in GPU_ROWS
            if row.metric in names
            for part in parts
        ]
        of_places = [
            Ask(row, self._selector(row.metric, row.matcher, foreign=True), max(len(gpus), 1))
            for row in ENVIRONMENT_ROWS
            if row.metric in names
        ]
        return of_gpus + of_places

    def _shards(self, wanted: Sequence[str]) -> list[Shard]:
        """One shard without a matcher where the fleet is small and most of it is wanted; else by UUID prefix."""
        fleet, most = len(self._devices.keys() | set(wanted)), self._settings.shard_gpus
        if fleet <= min(most, 2 * len(wanted)):
            return [Shard("", fleet)]
        known: defaultdict[str, list[str]] = defaultdict(list)
        for found in self._devices.values():
            known[found.label].append(found.value)
        asked: defaultdict[str, list[str]] = defaultdict(list)
        for device in wanted:
            where = self._devices.get(device)
            asked[where.label if where else DEVICE_LABELS[0]].append(where.value if where else device)
        return [shard for label, values in asked.items() for shard in shards(label, values, known[label], most)]

    def _selector(self, metric: str, matcher: str = "", *, foreign: bool = False) -> str:
        """metric{...} with the configured matchers; a `foreign` exporter is not held to the GPU exporter's job."""
        own = self._settings.selector.strip().removeprefix("{").removesuffix("}")
        if foreign:
            own = ",".join(m[0] for m in _MATCHER.finditer(own) if m[1] not in _EXPORTERS_OWN)
        inside = ",".join(part for part in (own, matcher) if part)
        return f"{metric}{{{inside}}}" if inside else metric
