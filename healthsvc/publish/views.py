"""Projections of one snapshot: orders and masks once per snapshot and on demand, then a page costs its own length."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts import Alert, Held
from healthsvc.fleet import GRADES, QUANTILES, Band, Snapshot, first_rows
from healthsvc.publish.board import ServiceStatus
from healthsvc.publish.domain_models import FleetAnswer
from healthsvc.publish.domain_views import DomainView, actions_of
from healthsvc.publish.metrics import expected_failures, place_names
from healthsvc.publish.models import (
    AlertModel,
    ClassRisk,
    GpuDetail,
    GpuSummary,
    HeldModel,
    StatusModel,
    WorkloadModel,
    number,
)
from healthsvc.publish.times import horizon_label, timestamp


class SnapshotView:
    """Reads one snapshot; keeps what it has derived from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.report = snapshot, snapshot.report
        self.horizons = tuple(horizon_label(h) for h in self.report.horizons_s)
        self.as_of = timestamp(self.report.as_of_s)
        self._orders: dict[str, NDArray[np.intp]] = {}

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """device_id -> row."""
        return first_rows(self.report.gpus)

    @cached_property
    def domains(self) -> DomainView:
        """The same snapshot's domains and incidents."""
        return DomainView(self.snapshot)

    @cached_property
    def hostnames(self) -> NDArray[np.str_]:
        return np.array([gpu.hostname for gpu in self.report.gpus], np.str_)

    @cached_property
    def places(self) -> Mapping[str, tuple[str, ...]]:
        """Layer -> the place of each GPU, "" where unknown."""
        topology = self.snapshot.history.topology
        return {layer: place_names(topology, layer) for layer in topology.groups}

    @cached_property
    def racks(self) -> NDArray[np.str_]:
        return np.array(self.places.get("rack", ("",) * len(self.report.gpus)), np.str_)

    @cached_property
    def leading_class(self) -> NDArray[np.intp]:
        """The class with the largest share [gpu], -1 where no share is known."""
        share = self.report.share
        known = ~np.isnan(share).all(axis=1)
        return np.where(known, np.argmax(np.where(np.isnan(share), -1.0, share), axis=1), -1)

    @cached_property
    def open_event(self) -> NDArray[np.bool_]:
        facts = self.report.facts
        found: NDArray[np.bool_] = facts.open_events.any(1) | facts.terminal.any(1) | ~np.isnan(facts.lost_s)
        return found

    def order(self, sort: str) -> NDArray[np.intp]:
        """Rows in this order, a leading minus for the reverse; unknown stays last in both."""
        if sort not in self._orders:
            self._orders[sort] = self._sorted(sort)
        return self._orders[sort]

    def _sorted(self, sort: str) -> NDArray[np.intp]:
        report, gpus = self.report, self.report.gpus
        match sort.removeprefix("-"):
            case "risk" if sort == "-risk":
                return report.ranking()
            case "risk":
                return np.argsort(report.risk[:, 1], kind="stable")
            case "coverage":
                return np.argsort(-report.coverage if sort[0] == "-" else report.coverage, kind="stable")
            case "hostname":
                rows = sorted(range(len(gpus)), key=lambda r: (gpus[r].hostname, gpus[r].index), reverse=sort[0] == "-")
            case _:
                rows = sorted(range(len(gpus)), key=lambda r: gpus[r].device_id, reverse=sort[0] == "-")
        return np.array(rows, np.intp)

    def select(
        self, band: str | None, failure_class: str | None, hostname: str | None, rack: str | None, sort: str
    ) -> NDArray[np.intp]:
        """Rows that match every filter, in order."""
        order = self.order(sort)
        keep = np.ones(len(order), bool)
        if band is not None:
            keep &= self.report.band == Band[band.upper()]
        if failure_class is not None:
            keep &= self.leading_class == self.report.classes.index(failure_class)
        if hostname is not None:
            keep &= self.hostnames == hostname
        if rack is not None:
            keep &= self.racks == rack
        return order[keep[order]]

    def _place(self, layer: str, row: int) -> str:
        return self.places[layer][row] if layer in self.places else ""

    def _workload(self, device: str) -> WorkloadModel | None:
        pod = self.snapshot.history.workloads.get(device)
        return None if pod is None else WorkloadModel(namespace=pod.namespace, pod=pod.pod, container=pod.container)

    def _risk(self, row: int) -> dict[str, float | None]:
        return self._by_horizon(self.report.risk[row])

    def _by_horizon(self, values: Any) -> dict[str, float | None]:
        return {name: number(value) for name, value in zip(self.horizons, values, strict=True)}

    def summary(self, row: int) -> GpuSummary:
        """One line."""
        report, gpu, leading = self.report, self.report.gpus[row], int(self.leading_class[row])
        fields = {
            "uuid": gpu.device_id,
            "gpu": gpu.index,
            "hostname": gpu.hostname,
            "model": gpu.product,
            "rack": self._place("rack", row),
            "workload": self._workload(gpu.device_id),
            "band": Band(int(report.band[row])).label,
            "risk": self._risk(row),
            "coverage": number(report.coverage[row]),
            "class": report.classes[leading] if leading >= 0 else None,
            "open_event": bool(self.open_event[row]),
            "reasons": list(report.reasons.get(row, ())),
            "action": report.actions.get(row, ""),
        }
        return GpuSummary.model_validate(fields)

    def detail(self, row: int, firing: tuple[Alert, ...], held: tuple[tuple[Alert, Held], ...]) -> GpuDetail:
        """Everything on one GPU, with the alerts about it."""
        report, gpu = self.report, self.report.gpus[row]
        lost_s = float(report.facts.lost_s[row])
        fields = {
            "uuid": gpu.device_id,
            "gpu": gpu.index,
            "hostname": gpu.hostname,
            "model": gpu.product,
            "slot": gpu.slot,
            "cluster": gpu.cluster,
            "places": {layer: names[row] for layer, names in self.places.items() if names[row]},
            "workload": self._workload(gpu.device_id),
            "band": Band(int(report.band[row])).label,
            "risk": self._risk(row),
            "coverage": number(report.coverage[row]),
            "classes": [self._class_risk(row, column) for column in range(len(report.classes))],
            "headroom_celsius": {name: number(values[row]) for name, values in report.headroom_celsius.items()},
            "lost_since": None if math.isnan(lost_s) else timestamp(lost_s),
            "reasons": list(report.reasons.get(row, ())),
            "action": report.actions.get(row, ""),
            "alerts": [alert_model(a) for a in firing if a.labels.get("UUID") == gpu.device_id],
            "held": [held_model(a, why) for a, why in held if a.labels.get("UUID") == gpu.device_id],
            "as_of": self.as_of,
        }
        return GpuDetail.model_validate(fields)

    def _class_risk(self, row: int, column: int) -> ClassRisk:
        report, name = self.report, self.report.classes[column]
        evidence = {key: number(values[row]) for key, values in report.evidence.get(name, {}).items()}
        limits = zip(QUANTILES, report.time_to_limit_s[row, column], strict=True)
        fields = {
            "class": name,
            "source": "calibrated" if report.calibrated[row, column] else "prior",
            "observed": bool(report.observed[row, column]),
            "probability": {
                grade: self._by_horizon(report.probability[row, column, g]) for g, grade in enumerate(GRADES)
            },
            "share": number(report.share[row, column]),
            "time_to_limit_seconds": {f"{quantile:g}": number(value) for quantile, value in limits},
            "evidence": {key: value for key, value in evidence.items() if value is not None},
            "open_event": bool(report.facts.open_events[row, column]),
            "terminal": bool(report.facts.terminal[row, column]),
        }
        return ClassRisk.model_validate(fields)

    def fleet(self, status: ServiceStatus, firing: tuple[Alert, ...]) -> FleetAnswer:
        """The fleet in numbers, its incidents with what the alerts say of them."""
        report = self.report
        totals, actions = expected_failures(report).tolist(), actions_of(firing)
        fields = {
            "gpus": len(report.gpus),
            "bands": {band.label: int(np.count_nonzero(report.band == band)) for band in Band},
            "expected_failures": {
                name: dict(zip(self.horizons, row, strict=True))
                for name, row in zip(report.classes, totals, strict=True)
            },
            "incidents": [self.domains.incident(each, actions) for each in self.domains.incidents()],
            "status": status_model(status, self.snapshot.trained_at_s),
            "as_of": self.as_of,
        }
        return FleetAnswer.model_validate(fields)


def alert_model(alert: Alert) -> AlertModel:
    """An alert that stands."""
    return AlertModel(
        fingerprint=alert.key,
        labels=dict(alert.labels),
        annotations=dict(alert.annotations),
        raised_at=timestamp(alert.raised_s),
    )


def held_model(alert: Alert, why: Held) -> HeldModel:
    """An alert that is held back."""
    return HeldModel(labels=dict(alert.labels), reason=why.value)


def status_model(status: ServiceStatus, trained_at_s: float | None) -> StatusModel:
    """How the service is."""
    done, total = status.backfill_days or (None, None)
    return StatusModel(
        ready=status.ready,
        reasons=list(status.reasons),
        missed_cycles=status.missed_cycles,
        source_ok=status.source_ok,
        source_message=status.source_message,
        backfill_days_done=done,
        backfill_days_total=total,
        replay_position=None if status.replay_s is None else timestamp(status.replay_s),
        trained_at=None if trained_at_s is None else timestamp(trained_at_s),
    )
