"""The fleet's own metric families, as text format 0.0.4 bytes, once a cycle.

Built from joined strings with cached label prefixes: metric objects for 100,000 GPUs take seconds, this takes tenths.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    GRADES,
    HOUR_S,
    LEAST_MEMBERS,
    QUANTILES,
    Band,
    DomainForecast,
    GpuId,
    RiskReport,
    Same,
    Snapshot,
    Topology,
)
from healthsvc.publish.times import horizon_label

Detail = Literal["watch", "all"]
Lines = Iterable[str]
Domains = tuple[DomainForecast, NDArray[np.intp]]  # and which of its domains are shown
SHOWN_FROM = 0.01  # P(at least 3 members throttle) from which a domain has series of its own
DOMAIN_ALERTS = ("ThrottlingCascadePredicted", "CoolingIncident", "FacilityPowerIncident")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

HELP = {
    "healthsvc_gpu_info": "What and where the GPU is; 1. Join on UUID.",
    "healthsvc_gpu_workload_info": "The pod that holds the GPU; 1. Join on UUID.",
    "healthsvc_gpu_risk_ratio": "Probability that the GPU needs service (any class, T2 or worse) within the horizon.",
    "healthsvc_gpu_band": "Health band: -1 unknown, 0 healthy, 1 watch, 2 degraded, 3 critical.",
    "healthsvc_gpu_coverage_ratio": "Share of the prior risk that is observed on the GPU.",
    "healthsvc_gpu_failure_probability_ratio": "Probability of a failure of the class, of the grade or worse.",
    "healthsvc_gpu_time_to_limit_seconds": "Predictive distribution of the time until the class reaches its limit.",
    "healthsvc_gpu_headroom_celsius": "Limit minus temperature at the sensor.",
    "healthsvc_domain_throttling_probability_ratio": "Probability that 3 or more members of the domain throttle.",
    "healthsvc_domain_throttling_gpus": "Members of the domain that throttle by heat now.",
    "healthsvc_domain_expected_lost_gpu_seconds": "GPU time that throttling is expected to cost within 2 h.",
    "healthsvc_domain_watch": "1 if the domain is worth a look, though no alert.",
    "healthsvc_incidents": "Open incidents; at watch they have no alert name yet.",
    "healthsvc_fleet_gpus": "GPUs in the band.",
    "healthsvc_fleet_expected_failures": "Expected service events (T2 or worse) of the class: sum over GPUs.",
}
# Text format keeps the label `quantile` for summaries, so a predictive distribution travels as one.
SUMMARIES = frozenset({"healthsvc_gpu_time_to_limit_seconds"})


def escape(value: str) -> str:
    """A label value as the text format wants it."""
    return value.translate(_ESCAPES)


def label_set(**labels: str) -> str:
    """The inside of the braces; an empty value is no label."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in labels.items() if value)


@lru_cache(maxsize=4)
def gpu_prefixes(fleet: Same[tuple[GpuId, ...]]) -> tuple[str, ...]:
    """Opening brace and identity of each GPU, kept as long as the fleet stays the same."""
    return tuple("{" + label_set(UUID=g.device_id, gpu=g.index, hostname=g.hostname) for g in fleet.it)


def render_fleet(snapshot: Snapshot, detail: Detail = "watch") -> bytes:
    """Every family of `HELP`, each with its HELP and TYPE. A series whose value is NaN is absent.

    detail: the families by class, and headroom, only for GPUs at watch or above, those of domains only where there is
    something to see, or for all.
    """
    report = snapshot.report
    prefixes = gpu_prefixes(Same(report.gpus))
    shown = np.flatnonzero(report.band >= Band.WATCH) if detail == "watch" else np.arange(len(report.gpus))
    domains = _shown_domains(report, detail)
    families: dict[str, Lines] = {
        "healthsvc_gpu_info": _info_lines(Same(report.gpus), Same(snapshot.history.topology)),
        "healthsvc_gpu_workload_info": _workloads(snapshot, shown),
        "healthsvc_gpu_risk_ratio": _risk(report, prefixes),
        "healthsvc_gpu_band": _samples("healthsvc_gpu_band", prefixes, "", report.band),
        "healthsvc_gpu_coverage_ratio": _samples("healthsvc_gpu_coverage_ratio", prefixes, "", report.coverage),
        "healthsvc_gpu_failure_probability_ratio": _probabilities(report, prefixes, shown),
        "healthsvc_gpu_time_to_limit_seconds": _times_to_limit(report, prefixes, shown),
        "healthsvc_gpu_headroom_celsius": _headroom(report, prefixes, shown),
        "healthsvc_domain_throttling_probability_ratio": _domain_chances(domains),
        "healthsvc_domain_throttling_gpus": _of_domains(
            "healthsvc_domain_throttling_gpus", domains, lambda forecast: forecast.throttling
        ),
        "healthsvc_domain_expected_lost_gpu_seconds": _of_domains(
            "healthsvc_domain_expected_lost_gpu_seconds",
            domains,
            lambda forecast: forecast.expected_lost_gpu_hours * HOUR_S,
        ),
        "healthsvc_domain_watch": _of_domains("healthsvc_domain_watch", domains, lambda forecast: forecast.watch),
        "healthsvc_incidents": _incidents(report),
        "healthsvc_fleet_gpus": _bands(report),
        "healthsvc_fleet_expected_failures": _expected(report),
    }
    parts: list[str] = []
    for name, lines in families.items():
        kind = "summary" if name in SUMMARIES else "gauge"
        parts.append(f"# HELP {name} {HELP[name]}\n# TYPE {name} {kind}\n")
        parts.extend(lines)
    return "".join(parts).encode()


def _samples(
    name: str, prefixes: Sequence[str], suffix: str, values: NDArray[Any], rows: NDArray[np.intp] | None = None
) -> Lines:
    """One line a GPU: name, prefix, `suffix` (further labels, starting with a comma), value to 6 digits."""
    chosen = np.arange(len(values)) if rows is None else rows
    picked = values[chosen].astype(np.float64)
    seen = ~np.isnan(picked)
    pairs = zip(chosen[seen].tolist(), picked[seen].tolist(), strict=True)
    return [f"{name}{prefixes[row]}{suffix}}} {value:.6g}\n" for row, value in pairs]


@lru_cache(maxsize=2)
def _info_lines(fleet: Same[tuple[GpuId, ...]], where: Same[Topology]) -> tuple[str, ...]:
    gpus, topology = fleet.it, where.it
    places = [(layer, place_names(topology, layer)) for layer in topology.groups if layer != "node"]
    prefixes = gpu_prefixes(fleet)
    lines = []
    for row, gpu in enumerate(gpus):
        labels = {layer: names[row] for layer, names in places}
        rest = label_set(modelName=gpu.product, pci_bus_id=gpu.slot, cluster=gpu.cluster, **labels)
        lines.append(f"healthsvc_gpu_info{prefixes[row]}{',' if rest else ''}{rest}}} 1\n")
    return tuple(lines)


def _workloads(snapshot: Snapshot, rows: NDArray[np.intp]) -> Iterator[str]:
    """A family of its own, for pods come and go: in the labels of another they would end its series each time."""
    workloads, gpus = snapshot.history.workloads, snapshot.report.gpus
    for row in rows.tolist() if workloads else ():
        if pod := workloads.get(gpus[row].device_id):
            labels = label_set(UUID=gpus[row].device_id, namespace=pod.namespace, pod=pod.pod, container=pod.container)
            yield f"healthsvc_gpu_workload_info{{{labels}}} 1\n"


def place_names(topology: Topology, layer: str) -> tuple[str, ...]:
    """The place of each GPU in this layer, "" where unknown."""
    names = (*topology.names[layer], "")  # group -1 picks the last
    return tuple(names[group] for group in topology.groups[layer].tolist())


def _risk(report: RiskReport, prefixes: Sequence[str]) -> Iterator[str]:
    for column, horizon_s in enumerate(report.horizons_s):
        suffix = f',horizon="{horizon_label(horizon_s)}"'
        yield from _samples("healthsvc_gpu_risk_ratio", prefixes, suffix, report.risk[:, column])


def _probabilities(report: RiskReport, prefixes: Sequence[str], rows: NDArray[np.intp]) -> Iterator[str]:
    for c, name in enumerate(report.classes):
        calibrated = report.calibrated[rows, c]
        for source, chosen in (("calibrated", rows[calibrated]), ("prior", rows[~calibrated])):
            for g, grade in enumerate(GRADES):
                for h, horizon_s in enumerate(report.horizons_s):
                    horizon = horizon_label(horizon_s)
                    suffix = "," + label_set(**{"class": name}, grade=grade, horizon=horizon, source=source)
                    values = report.probability[:, c, g, h]
                    yield from _samples("healthsvc_gpu_failure_probability_ratio", prefixes, suffix, values, chosen)


def _times_to_limit(report: RiskReport, prefixes: Sequence[str], rows: NDArray[np.intp]) -> Iterator[str]:
    for c, name in enumerate(report.classes):
        for q, quantile in enumerate(QUANTILES):
            suffix = f',class="{name}",quantile="{quantile:g}"'
            values = report.time_to_limit_s[:, c, q]
            yield from _samples("healthsvc_gpu_time_to_limit_seconds", prefixes, suffix, values, rows)


def _headroom(report: RiskReport, prefixes: Sequence[str], rows: NDArray[np.intp]) -> Iterator[str]:
    for sensor, values in report.headroom_celsius.items():
        suffix = f',sensor="{escape(sensor)}"'
        yield from _samples("healthsvc_gpu_headroom_celsius", prefixes, suffix, values, rows)


@lru_cache(maxsize=4)
def _domain_prefixes(domains: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple("{" + label_set(layer=layer, domain=domain) for layer, domain in domains)


def _shown_domains(report: RiskReport, detail: Detail) -> list[Domains]:
    """In detail "watch" those that are at watch, throttle, or may do so within the longest horizon; else all."""
    found = []
    for forecast in report.domains:
        worth = forecast.watch | (forecast.throttling > 0)
        worth |= forecast.probability_at_least_k[:, LEAST_MEMBERS - 1, -1] >= SHOWN_FROM
        rows = np.flatnonzero(worth) if detail == "watch" else np.arange(len(worth))
        found.append((forecast, rows))
    return found


def _domain_chances(domains: Iterable[Domains]) -> Iterator[str]:
    name = "healthsvc_domain_throttling_probability_ratio"
    for forecast, rows in domains:
        for column, horizon_s in enumerate(forecast.horizons_s):
            suffix = f',horizon="{horizon_label(horizon_s)}"'
            values = forecast.probability_at_least_k[:, LEAST_MEMBERS - 1, column]
            yield from _samples(name, _domain_prefixes(forecast.domains), suffix, values, rows)


def _of_domains(
    name: str, domains: Iterable[Domains], values: Callable[[DomainForecast], NDArray[Any]]
) -> Iterator[str]:
    for forecast, rows in domains:
        yield from _samples(name, _domain_prefixes(forecast.domains), "", values(forecast), rows)


def _incidents(report: RiskReport) -> Iterator[str]:
    """Those that alert are counted by name, none as 0, so that an alert on them knows an end from a silence."""
    count: Counter[tuple[str, str]] = Counter()
    count.update((each.state, each.alertname) for each in report.incidents if each.state != "cleared")
    usual = [("watch", ""), ("predicted", DOMAIN_ALERTS[0]), *(("active", name) for name in DOMAIN_ALERTS)]
    for state, alertname in sorted({*usual, *count}):
        yield f"healthsvc_incidents{{{label_set(state=state, alertname=alertname)}}} {count[state, alertname]}\n"


def _bands(report: RiskReport) -> Iterator[str]:
    for band in Band:
        yield f'healthsvc_fleet_gpus{{band="{band.label}"}} {np.count_nonzero(report.band == band)}\n'


def expected_failures(report: RiskReport) -> NDArray[np.float64]:
    """Expected service events, [class, horizon]: the sum of P(T2) over the GPUs for which it is known."""
    total: NDArray[np.float64] = np.nansum(report.probability[:, :, 0].astype(np.float64), axis=0)
    return total


def _expected(report: RiskReport) -> Iterator[str]:
    for name, row in zip(report.classes, expected_failures(report).tolist(), strict=True):
        for horizon_s, total in zip(report.horizons_s, row, strict=True):
            labels = f'class="{name}",horizon="{horizon_label(horizon_s)}"'
            yield f"healthsvc_fleet_expected_failures{{{labels}}} {total:.6g}\n"
