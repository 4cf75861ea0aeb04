"""What a server knows beside samples: who it is, which exporter and driver each GPU has, since when each metric is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor
from typing import Protocol, runtime_checkable

from healthsvc.fleet import DAY_S
from healthsvc.telemetry.catalogue import GPU_ROWS
from healthsvc.telemetry.catalogue.rows import AMD, CLASSIC, DCGM_46, DCGM_49, EXPORTER_OWN, NVIDIA_SMI, OTEL
from healthsvc.telemetry.decode import Points
from healthsvc.telemetry.identity.labels import IDENTITY_LABELS, device_id

DRIVER_LABELS = ("DCGM_FI_SYSTEM_DRIVER_VERSION", "DCGM_FI_DRIVER_VERSION", "driver_version")
INFO_METRICS = ("nvidia_smi_gpu_info",)  # has the driver, where the samples' own series do not
# A GPU with several is of the first: an exporter keeps old names beside new ones, never the other way round.
GENERATIONS = (DCGM_49, DCGM_46, CLASSIC, EXPORTER_OWN, NVIDIA_SMI, AMD, OTEL)
_BY = ", ".join((*IDENTITY_LABELS, *DRIVER_LABELS))

Names = Callable[[float, float], frozenset[str]]


@dataclass(frozen=True)
class Exporter:
    """What reports a GPU: the generation of the names it uses, and the driver; "" where nothing tells."""

    generation: str = ""
    driver: str = ""


@dataclass(frozen=True)
class ServerFacts:
    """title and version of the server, and why we think so; ahead_s: its clock minus ours."""

    title: str
    version: str
    why: str
    ahead_s: float


@runtime_checkable
class Inspectable(Protocol):
    """A source that can tell more than samples."""

    def about(self) -> ServerFacts:
        """Who answers. Raises SourceError."""
        ...

    def census(self, start_s: float, end_s: float) -> Mapping[str, Exporter]:
        """device_id -> its exporter, for GPUs with a sample in [start, end]. Raises SourceError."""
        ...

    def first_seen(self, metrics: Iterable[str], start_s: float, end_s: float) -> Mapping[str, float]:
        """metric -> its first moment in [start, end], to a day and never too late. Raises SourceError."""
        ...


def take_census(
    ask: Callable[[str, int], Points], selectors: Mapping[str, str], start_s: float, end_s: float
) -> dict[str, Exporter]:
    """device_id -> exporter. selectors: metric -> its selector; one instant query each."""
    window, end = max(ceil(end_s) - floor(start_s), 1), ceil(end_s)
    told: list[tuple[str, Mapping[str, str]]] = []
    for metric, selector in selectors.items():
        points = ask(f"group by ({_BY}) (last_over_time({selector}[{window}s]))", end)
        told += [(metric, labels) for labels in points.labels]
    return exporters(told)


def exporters(series: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, Exporter]:
    """device_id -> exporter, from the metrics and labels of series."""
    generation_of = {row.metric: row.since for row in GPU_ROWS}
    found: dict[str, Exporter] = {}
    for metric, labels in series:
        device = device_id(labels)
        if not device:
            continue
        known = found.get(device, Exporter())
        generations = [g for g in (known.generation, generation_of.get(metric, "")) if g]
        found[device] = Exporter(
            min(generations, key=GENERATIONS.index, default=""),
            known.driver or next((labels[name] for name in DRIVER_LABELS if labels.get(name)), ""),
        )
    return found


def find_first_seen(
    names: Names, wanted: Iterable[str], start_s: float, end_s: float, reach_s: float
) -> dict[str, float]:
    """metric -> start of the earliest day in [start, end] that has it. names(early, late): the metrics of that time.

    The index is asked in brackets that double, `reach_s` at most, and each metric's earliest one is then halved.
    """
    edges, width_s = [end_s], DAY_S
    while edges[-1] > start_s:
        edges.append(max(edges[-1] - width_s, start_s))
        width_s = min(2 * width_s, reach_s)
    earliest: dict[str, tuple[float, float]] = {}
    looked_for = frozenset(wanted)
    for late_s, early_s in pairwise(edges):
        earliest |= dict.fromkeys(names(early_s, late_s) & looked_for, (early_s, late_s))
    found: dict[str, float] = {}
    for bracket in sorted(set(earliest.values())):
        metrics = frozenset(metric for metric, own in earliest.items() if own == bracket)
        found |= _halved(names, metrics, *bracket)
    return found


def _halved(names: Names, metrics: frozenset[str], early_s: float, late_s: float) -> dict[str, float]:
    if not metrics or late_s - early_s <= DAY_S:
        return dict.fromkeys(metrics, early_s)
    middle_s = (early_s + late_s) / 2
    earlier = names(early_s, middle_s) & metrics
    return _halved(names, earlier, early_s, middle_s) | _halved(names, metrics - earlier, middle_s, late_s)


def census_metrics(names: frozenset[str], presence: Sequence[str]) -> tuple[str, ...]:
    """The metrics to take a census of, out of those that exist."""
    return tuple(metric for metric in (*dict.fromkeys(presence), *INFO_METRICS) if metric in names)
