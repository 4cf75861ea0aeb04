"""What surrounds the GPUs, from a server: inlet air and coolant, by metric or by an expression of the site's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.config import EnvironmentSettings
from healthsvc.telemetry.catalogue.environment import HWMON, HWMON_NAMES, hwmon_row, mapped_row, metric_rows
from healthsvc.telemetry.catalogue.rows import EnvironmentRow
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.identity.labels import host_of, place_name
from healthsvc.telemetry.server.prometheus_api import PrometheusApi
from healthsvc.telemetry.source import SourceError

MOST_POINTS = 10_000  # columns of one evaluation: Prometheus refuses more than 11,000
UNAME = "node_uname_info"
UNAME_WINDOW_S = 3600
PRIMARY = "primary"  # the facility's side of a CDU; the GPUs are on the other

Take = Callable[[EnvironmentRow, Samples, slice], None]


@dataclass
class Surroundings:
    """The environment of a site as its settings describe it. Remembers what node_exporter calls each scraped host."""

    settings: EnvironmentSettings
    _nodes: dict[str, str] = field(default_factory=dict, init=False)
    _asked_s: float = field(default=-np.inf, init=False)

    @property
    def rows(self) -> tuple[EnvironmentRow, ...]:
        """What is asked for as stored samples, metric by metric."""
        return metric_rows(self.settings)

    def evaluate(
        self,
        api: PrometheusApi,
        names: frozenset[str],
        times_s: NDArray[np.float64],
        step_s: float,
        take: Take,
    ) -> list[str]:
        """Ask for what only an expression gives, and hand it on. Returns the server's complaints about expressions:
        those that it cannot take, and what it remarks on those it can, which says nothing of the GPUs' own samples.

        An expression cannot be asked for as stored samples. It is evaluated at each column, where the server fills in
        the newest sample of the last five minutes: temperatures and flows of a site change slowly, none of them tells
        whether a GPU is alive, and a sensor that died shows at most five minutes late. Raises SourceError.
        """
        complaints: list[str] = []
        for name, expression in self.settings.mapping.items():
            try:
                for samples, columns in _evaluated(api, expression, times_s, step_s):
                    complaints += (f"environment.mapping.{name}: {warning}" for warning in samples.warnings)
                    labels = sorted({label for each in samples.labels for label in each})
                    take(mapped_row(name, self.settings, labels), self.named(_secondary(samples)), columns)
            except SourceError as failure:
                if not failure.permanent:
                    raise
                complaints.append(f"environment.mapping.{name} = {expression!r}: {failure.what}")
        if {HWMON, HWMON_NAMES} <= names:
            row, expression = hwmon_row(self.settings)
            for samples, columns in _evaluated(api, expression, times_s, step_s):
                take(row, self.named(samples), columns)
        return complaints

    def learn_nodes(self, api: PrometheusApi, names: frozenset[str], end_s: float) -> None:
        """Ask node_exporter what the scraped hosts are called, at most once an hour. Raises SourceError."""
        if UNAME not in names or abs(end_s - self._asked_s) < UNAME_WINDOW_S:
            return
        query = f"group by (instance, nodename) (last_over_time({UNAME}[{UNAME_WINDOW_S}s]))"
        for labels in api.points(query, int(end_s)).labels:
            host, node = place_name(labels, ("instance",)), labels.get("nodename", "")
            if host and node:
                self._nodes[host] = node
        self._asked_s = end_s

    def named(self, samples: Samples) -> Samples:
        """With the node's name where a series has only the address of its scrape and node_exporter knows whose it is.

        Blind to a BMC that is scraped under its own address: its name has to resemble the node's, or topology.csv says
        it in a column `bmc`.
        """
        if not self._nodes:
            return samples
        return replace(samples, labels=tuple(self._with_node(labels) for labels in samples.labels))

    def _with_node(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        host, told = host_of(labels)
        node = self._nodes.get(host)
        return labels if told or node is None else {**labels, "nodename": node}


def _secondary(samples: Samples) -> Samples:
    """Without the facility's side of each CDU."""
    keep = np.array([labels.get("side") != PRIMARY for labels in samples.labels], bool)
    if keep.all():
        return samples
    kept = np.repeat(keep, samples.counts)
    return replace(
        samples,
        labels=tuple(labels for labels, stays in zip(samples.labels, keep.tolist(), strict=True) if stays),
        counts=samples.counts[keep],
        times_s=samples.times_s[kept],
        values=samples.values[kept],
    )


def _evaluated(
    api: PrometheusApi, expression: str, times_s: NDArray[np.float64], step_s: float
) -> list[tuple[Samples, slice]]:
    parts = []
    for first in range(0, len(times_s), MOST_POINTS):
        columns = slice(first, min(first + MOST_POINTS, len(times_s)))
        part = times_s[columns]
        parts.append((api.evaluated(expression, float(part[0]), float(part[-1]), step_s), columns))
    return parts
