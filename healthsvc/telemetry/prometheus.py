"""The source that is a real server: Prometheus, or anything with its API (Thanos, Mimir, VictoriaMetrics)."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import requests
from numpy.typing import NDArray

from healthsvc.config import EnvironmentSettings, PrometheusSettings
from healthsvc.fleet import MINUTE_S, GpuId, Placement
from healthsvc.telemetry.catalogue import PRESENCE_METRICS, EnvironmentRow, presence_in, rows_in
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.framing.gathering import Gathering, KnownDevices
from healthsvc.telemetry.framing.grid import step_of
from healthsvc.telemetry.framing.read_memory import ReadMemory
from healthsvc.telemetry.identity.labels import DEVICE_LABELS
from healthsvc.telemetry.identity.topology import LabelledPlaces
from healthsvc.telemetry.server.census import Exporter, ServerFacts, census_metrics, find_first_seen, take_census
from healthsvc.telemetry.server.discovery import IDENTITY_METRICS, Found, find_gpus, find_span
from healthsvc.telemetry.server.fetch import Ask, Fetcher
from healthsvc.telemetry.server.probe import Backend
from healthsvc.telemetry.server.prometheus_api import PrometheusApi
from healthsvc.telemetry.server.sharding import Shard, shards
from healthsvc.telemetry.server.surroundings import Surroundings
from healthsvc.telemetry.source import RawGrid, SourceError

NAMES_FRESH_S = 300.0  # a first XID brings a new metric: it must not wait long
CLOCK_AHEAD_S = 60.0  # a difference between the server's clock and ours that is told
_MATCHER = re.compile(r'([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"(?:\\.|[^"\\])*"')
_EXPORTERS_OWN = frozenset({"job", "instance"})  # matchers on these name the GPU exporter, not the site


@dataclass(frozen=True)
class _Names:
    """Metric names of a stretch of history, until when (monotonic clock) they are believed, and the doubts about them:
    a metric that a partial list lacks is not asked for, so every read that goes by the list is incomplete."""

    names: frozenset[str] = frozenset()
    start_s: float = np.inf
    end_s: float = -np.inf
    until_s: float = -np.inf
    warnings: frozenset[str] = frozenset()

    def hold(self, start_s: float, end_s: float) -> bool:
        return self.start_s <= start_s and end_s <= self.end_s and time.monotonic() < self.until_s


class PrometheusSource:
    """Telemetry from a Prometheus server: raw samples by range selector, a metric a query, split to suit the server.

    Only metrics that exist are asked for. Blind to series without a UUID, and to samples that arrive after the read.
    """

    name = "prometheus"

    def __init__(
        self,
        settings: PrometheusSettings,
        session: requests.Session | None = None,
        now: Callable[[], float] = time.time,
        environment: EnvironmentSettings | None = None,
    ) -> None:
        self._settings = settings
        environment = environment or EnvironmentSettings()
        self._surroundings = Surroundings(environment)
        self._labelled = LabelledPlaces(dict(environment.topology_labels.items()))
        self._api = PrometheusApi(settings, session, now=now)
        self._fetch = Fetcher(self._api, settings.samples_a_query, settings.concurrency)
        self._devices = KnownDevices()
        self._memory = ReadMemory()
        self._names = _Names()
        self._heard: set[str] = set()  # warnings that no grid has carried yet
        self._told_ahead_s = 0.0

    @property
    def backend(self) -> Backend:
        """What kind of server it is, found out at the first call. Raises SourceError."""
        return self._api.backend

    def metrics(self, start_s: float, end_s: float) -> frozenset[str]:
        """Names of all metrics in [start, end], asked anew once they are NAMES_FRESH_S old. Raises SourceError."""
        if not self._names.hold(start_s, end_s):
            end = end_s + 2 * NAMES_FRESH_S
            # As far back as the server may be asked at once: a walk through the past then asks seldom.
            start = min(start_s, end - self.backend.profile.index_reach_s)
            names = self._api.metric_names(start, end)
            doubts = frozenset(self._api.overheard())
            # A list without any GPU is not believed for long: whoever appears is to be judged in the next cycle.
            fresh_s = NAMES_FRESH_S if presence_in(names) else 0.0
            self._names = _Names(names, start, end, time.monotonic() + fresh_s, doubts)
        self._heard |= self._names.warnings
        return self._names.names

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        """Every GPU with a liveness or XID sample in [start, end], in order of device_id. Raises SourceError."""
        with self._forgetting():
            found = self._discover(start_s, end_s)
        return tuple(found[device].gpu for device in sorted(found))

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """What was heard on the way to an answer that never came is no warning about the next one."""
        try:
            yield
        except SourceError:
            self._heard = set()
            raise

    def _discover(self, start_s: float, end_s: float) -> dict[str, Found]:
        names = self.metrics(start_s, end_s)
        selectors = [self._selector(m) for m in (*presence_in(names), *IDENTITY_METRICS) if m in names]
        more, hear = self._labelled.labels, self._labelled.hear
        found, warnings = find_gpus(self._api, selectors, start_s, end_s, more, hear)
        self._heard |= warnings
        return self._devices.learn(found)

    def about(self) -> ServerFacts:
        """Who answers, and how far its clock is ahead of ours. Raises SourceError."""
        backend = self.backend
        self._api.points("vector(time())")  # an answer shows its clock
        return ServerFacts(backend.profile.title, backend.version, backend.why, self._api.ahead_s)

    def census(self, start_s: float, end_s: float) -> dict[str, Exporter]:
        """device_id -> the exporter and driver of each GPU with a sample in [start, end]. Raises SourceError."""
        metrics = census_metrics(self.metrics(start_s, end_s), PRESENCE_METRICS)
        return take_census(self._api.points, {m: self._selector(m) for m in metrics}, start_s, end_s)

    def first_seen(self, metrics: Iterable[str], start_s: float, end_s: float) -> dict[str, float]:
        """metric -> its first day in [start, end], from the server's index. Raises SourceError."""
        reach_s = self.backend.profile.index_reach_s
        return find_first_seen(self._api.metric_names, metrics, start_s, end_s, reach_s)

    def placement(self) -> Placement | None:
        """Where hosts stand, by the labels of the GPUs found so far; None as long as these tell nothing."""
        return self._labelled.placement()

    def span(self) -> tuple[float, float] | None:
        """First and last moment with GPU samples (find_span tells how exact), if any. Raises SourceError."""
        now_s = float(self._api.points("vector(time())").values[0])
        span, warnings = find_span(self._api, [self._selector(m) for m in PRESENCE_METRICS], now_s)
        self._heard |= warnings | self._api.overheard()
        return span

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        """Samples on the uniform grid `times_s` for `gpus`, or for every GPU found there. Raises SourceError.

        A signal that no GPU has here is absent. One column alone is 60 s wide unless `step_s` says otherwise. The
        warnings are those of this read and of every discovery since the last one: a partial answer there loses GPUs.
        Any of them makes the grid incomplete. A server whose clock is off is told of once, without that.
        """
        with self._forgetting():
            return self._read(times_s, gpus, step_of(times_s, step_s, MINUTE_S))

    def _read(self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None, step_s: float) -> RawGrid:
        start_s, end_s = float(times_s[0]) - step_s, float(times_s[-1])
        if gpus is None:
            found = self._discover(start_s, end_s)
            gpus = tuple(found[device].gpu for device in sorted(found))
        else:
            if any(gpu.device_id not in self._devices.found for gpu in gpus):
                self._discover(start_s, end_s)
            found = self._devices.found
        framer = Framer(gpus, times_s, step_s, self._memory)
        gathering = Gathering(framer, gpus, found, self._devices, times_s, step_s)
        names = self.metrics(start_s, end_s)
        self._surroundings.learn_nodes(self._api, names, end_s)

        def take(ask: Ask, samples: Samples, columns: slice) -> None:
            if isinstance(ask.row, EnvironmentRow):
                samples = self._surroundings.named(samples)
            gathering.take(ask.row, samples, columns)

        fetched = self._fetch(self._asks(names, gpus), times_s, step_s, take)
        complaints = self._surroundings.evaluate(self._api, names, times_s, step_s, gathering.take)
        heard, self._heard = self._heard | fetched.warnings, set()
        grid = gathering.grid(fetched.samples, [*heard, *complaints, *self._clock()], bool(heard))
        return replace(grid, incomplete=bool(heard))

    def _clock(self) -> list[str]:
        """A warning where the server's clock has moved away from ours."""
        ahead_s = self._api.ahead_s
        if abs(ahead_s - self._told_ahead_s) <= CLOCK_AHEAD_S:
            return []
        self._told_ahead_s = ahead_s
        which = "ahead of" if ahead_s > 0 else "behind"
        return [f"the server's clock is {abs(ahead_s):.0f} s {which} ours; set both by NTP"]

    def _asks(self, names: frozenset[str], gpus: Sequence[GpuId]) -> list[Ask]:
        parts = self._shards([gpu.device_id for gpu in gpus]) if gpus else []
        of_gpus = [
            Ask(row, self._selector(row.metric, ",".join(filter(None, (row.matcher, part.matcher)))), part.devices)
            for row in rows_in(names)
            for part in parts
        ]
        of_places = [
            Ask(row, self._selector(row.metric, row.matcher, foreign=True), max(len(gpus), 1))
            for row in self._surroundings.rows
            if row.metric in names
        ]
        return of_gpus + of_places

    def _shards(self, wanted: Sequence[str]) -> list[Shard]:
        """One shard without a matcher where the fleet is small and most of it is wanted; else by UUID prefix."""
        devices = self._devices.found
        fleet, most = len(devices.keys() | set(wanted)), self._settings.shard_gpus
        if fleet <= min(most, 2 * len(wanted)):
            return [Shard("", fleet)]
        known: defaultdict[str, list[str]] = defaultdict(list)
        for found in devices.values():
            for label, value in found.spellings:
                known[label].append(value)
        asked: defaultdict[str, list[str]] = defaultdict(list)
        for device in wanted:
            where = devices.get(device)
            for label, value in where.spellings if where else ((DEVICE_LABELS[0], device),):
                asked[label].append(value)
        return [shard for label, values in asked.items() for shard in shards(label, values, known[label], most)]

    def _selector(self, metric: str, matcher: str = "", *, foreign: bool = False) -> str:
        """metric{...} with the configured matchers; a `foreign` exporter is not held to the GPU exporter's job."""
        own = self._settings.selector.strip().removeprefix("{").removesuffix("}")
        if foreign:
            own = ",".join(m[0] for m in _MATCHER.finditer(own) if m[1] not in _EXPORTERS_OWN)
        inside = ",".join(part for part in (own, matcher) if part)
        return f"{metric}{{{inside}}}" if inside else metric
