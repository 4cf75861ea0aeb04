"""A source that shows one scrape of an exporter again and again, as a server would have it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId, Placement, Signal
from healthsvc.telemetry.catalogue import PRESENCE_METRICS, rows_in
from healthsvc.telemetry.catalogue.rows import Row, predicate
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.identity.labels import gpu_id
from healthsvc.telemetry.server.census import Exporter, ServerFacts, exporters
from healthsvc.telemetry.source import RawGrid
from tests.telemetry.scrapes import parse

WATTS = 300.0  # of every board: energy counters rise by it


@dataclass
class ExpositionSource:
    """text: one scrape, seen every 60 s in (start_s, end_s]. since_s: metric -> its first moment on the server."""

    text: str
    start_s: float
    end_s: float
    name: str = "exposition"
    server: ServerFacts = field(default_factory=lambda: ServerFacts("Prometheus 3", "3.1.0", "its build", 0.0))
    since_s: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, start_s: float, end_s: float) -> "ExpositionSource":
        return cls(path.read_text(), start_s, end_s)

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        found: dict[str, GpuId] = {}
        for row, samples in self._scrape():
            if row.metric in PRESENCE_METRICS:
                met = [labels for labels in samples.labels if predicate(row.matcher)(labels)]
                found |= {gpu.device_id: gpu for gpu in map(gpu_id, met) if gpu}
        return tuple(found[device] for device in sorted(found))

    def placement(self) -> Placement | None:
        return None

    def span(self) -> tuple[float, float] | None:
        return self.start_s, self.end_s

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        step_s = step_s or 60.0
        framer = Framer(gpus or self.discover(times_s[0], times_s[-1]), times_s, step_s)
        scrapes_s = np.arange(times_s[0] - step_s + 60.0, times_s[-1] + 1.0, 60.0)
        seen = 0
        for row, samples in self._scrape():
            repeated = self._repeated(row, samples, scrapes_s)
            seen += len(repeated.values)
            framer.take(row, repeated)
        return framer.grid(seen, ())

    def about(self) -> ServerFacts:
        return self.server

    def census(self, start_s: float, end_s: float) -> Mapping[str, Exporter]:
        return exporters((row.metric, labels) for row, samples in self._scrape() for labels in samples.labels)

    def first_seen(self, metrics: Iterable[str], start_s: float, end_s: float) -> Mapping[str, float]:
        return {metric: self.since_s.get(metric, self.start_s) for metric in metrics}

    def _scrape(self) -> list[tuple[Row, Samples]]:
        found = parse(self.text, at_s=0.0).samples
        return [(row, found[row.metric]) for row in rows_in(found)]

    def _repeated(self, row: Row, samples: Samples, times_s: NDArray[np.float64]) -> Samples:
        """Each series at every scrape; energy goes on."""
        values = np.repeat(samples.values, len(times_s)).reshape(len(samples.values), -1)
        if row.signal is Signal.ENERGY:
            values = values + WATTS / row.by_name.factor * (times_s - times_s[0])
        counts = samples.counts * len(times_s)
        return replace(samples, counts=counts, times_s=np.tile(times_s, len(values)), values=values.ravel())
