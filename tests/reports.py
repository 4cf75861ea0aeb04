"""Small reports and snapshots by hand: a calm fleet, then one change at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from healthsvc.fleet import (
    CLASSES,
    GRADES,
    HORIZONS_S,
    QUANTILES,
    Band,
    DailyLedger,
    DomainForecast,
    EventLog,
    Facts,
    FleetHistory,
    FleetWindow,
    GpuId,
    Incident,
    Placement,
    RiskReport,
    Snapshot,
    Workload,
    build_topology,
)

NOW_S = 1_790_000_000.0
HOUR_S, DAY_S = 3600.0, 86_400.0
CALM = 1e-4  # P(T2, 7 d)


def fleet(count: int, a_host: int = 8) -> tuple[GpuId, ...]:
    """GPUs in full hosts."""
    return tuple(
        GpuId(
            f"GPU-{i:04d}",
            f"node{i // a_host}",
            str(i % a_host),
            "NVIDIA H100 80GB HBM3",
            f"00000000:{i % a_host:02X}:00.0",
        )
        for i in range(count)
    )


def calm_report(gpus: Sequence[GpuId] | int = 4, now_s: float = NOW_S) -> RiskReport:
    """Everybody observed, calibrated and healthy."""
    known = fleet(gpus) if isinstance(gpus, int) else tuple(gpus)
    count, shape = len(known), (len(known), len(CLASSES))
    a_week = np.array([0.5, 1.0, 3.0], np.float32)
    probability = np.zeros((*shape, len(GRADES), len(HORIZONS_S)), np.float32)
    probability[:, :, 0], probability[:, :, 1] = CALM * a_week, CALM / 4 * a_week
    return RiskReport(
        as_of_s=now_s,
        gpus=known,
        probability=probability,
        calibrated=np.ones(shape, bool),
        observed=np.ones(shape, bool),
        risk=probability[:, :, 0].sum(axis=1),
        share=np.full(shape, 1 / 3, np.float32),
        coverage=np.ones(count, np.float32),
        band=np.zeros(count, np.int8),
        class_band=np.zeros(shape, np.int8),
        facts=Facts(np.zeros(shape, bool), np.zeros(shape, bool), np.full(count, np.nan)),
        change_p=np.full(shape, np.nan, np.float32),
        time_to_limit_s=np.full((*shape, len(QUANTILES)), np.nan, np.float32),
        headroom_celsius={},
        evidence={},
        watch_p_30d=(0.01,) * len(CLASSES),
    )


def changed(report: RiskReport, name: str, where: Any, value: Any) -> RiskReport:
    """The report with one array (or one of the facts) changed at one place."""
    holder: Any = report.facts if hasattr(report.facts, name) else report
    array = np.array(getattr(holder, name))
    array[where] = value
    after = replace(holder, **{name: array})
    return replace(report, facts=after) if holder is report.facts else after


def with_probability(
    report: RiskReport, row: int, name: str, week: float, month: float | None = None, terminal_week: float = 0.0
) -> RiskReport:
    """One GPU and class with these P(T2) and P(T1) within 7 d, and P(T2) within 30 d (default: the same as 7 d)."""
    column = CLASSES.index(name)
    t2 = (week / 4, week, week if month is None else month)
    t1 = (terminal_week / 4, terminal_week, terminal_week)
    return changed(report, "probability", (row, column), np.array([t2, t1], np.float32))


def unknown(report: RiskReport, rows: Sequence[int]) -> RiskReport:
    """These GPUs without any data."""
    chosen = list(rows)
    report = changed(report, "band", chosen, Band.UNKNOWN)
    report = changed(report, "coverage", chosen, 0.0)
    report = changed(report, "observed", chosen, False)
    report = changed(report, "share", chosen, np.nan)
    return changed(report, "risk", chosen, np.nan)


def cooling_incident(members: Sequence[str], state: Any = "active", onset_s: float = NOW_S) -> Incident:
    """A cooling loop in trouble."""
    name = "ThrottlingCascadePredicted" if state == "predicted" else "CoolingIncident"
    return Incident("inc-1", "cooling_loop", "loop-a", state, name, "pump failure", onset_s, tuple(members), members[0])


def snapshot_of(
    report: RiskReport, racks: Mapping[str, str] | None = None, workloads: Mapping[str, Workload] | None = None
) -> Snapshot:
    """A finished cycle around `report`; racks: hostname -> rack."""
    gpus = report.gpus
    placement = Placement({host: {"rack": rack, "cooling_loop": "loop-a"} for host, rack in (racks or {}).items()})
    empty = np.zeros((len(gpus), 0), np.float32)
    history = FleetHistory(
        FleetWindow(gpus, np.array([report.as_of_s - 60, report.as_of_s]), {}),
        DailyLedger(gpus, np.zeros(0, np.int64), {}, empty, empty),
        EventLog(),
        build_topology(gpus, placement),
        workloads=workloads or {},
    )
    return Snapshot(report, history, {}, trained_at_s=report.as_of_s - HOUR_S)


def five_gpu_report() -> RiskReport:
    """One GPU in each band: healthy, watch (thermal), degraded (memory), critical (lost), unknown."""
    gpus = (
        *fleet(4, a_host=2),
        GpuId("GPU-0004", 'node"2\\', "0", "NVIDIA A100-SXM4-80GB", "00000000:07:00.0", "east"),
    )
    report = calm_report(gpus)
    report = with_probability(report, 1, "thermal", week=0.012, month=0.0456789)
    report = with_probability(report, 2, "memory", week=0.3, month=0.45, terminal_week=0.12)
    report = unknown(report, [4])
    report = changed(report, "band", slice(0, 4), [Band.HEALTHY, Band.WATCH, Band.DEGRADED, Band.CRITICAL])
    report = changed(report, "risk", slice(0, 4), report.probability[:4, :, 0].sum(axis=1))
    report = changed(report, "share", 2, [0.1, 0.85, 0.05])
    report = changed(report, "calibrated", (slice(None), 0), False)
    report = changed(report, "lost_s", 3, NOW_S - 600)
    report = changed(report, "open_events", (3, 2), True)
    report = changed(report, "time_to_limit_s", (1, 0), [2 * DAY_S, 9.5 * DAY_S, 31 * DAY_S])
    drift = np.array([0.01, 0.21, 0.02, np.nan, np.nan], np.float32)
    headroom = np.array([20, 4.5, 18, np.nan, np.nan], np.float32)
    domains = DomainForecast(
        domains=(("node", "node0"), ("cooling_loop", "loop-a")),
        horizons_s=(1800.0, 7200.0, DAY_S),
        probability_at_least_k=np.array(
            [
                [[0.2, 0.3, 0.4], [0.1, 0.2, 0.3], [np.nan, np.nan, np.nan]],
                [[0.5, 0.7, 0.8], [0.4, 0.6, 0.7], [0.3, 0.55, 0.6]],
            ],
            np.float32,
        ),
        expected_lost_gpu_hours=np.array([0.1, 1.5], np.float32),
        throttling=np.array([0, 1], np.int32),
        members=(np.array([0, 1], np.int32), np.array([0, 1, 2, 3], np.int32)),
    )
    return replace(
        report,
        headroom_celsius={"gpu": headroom, "memory": headroom - 2},
        evidence={"thermal": {"slope_celsius_per_day": drift}},
        reasons={
            1: ("runs hotter than its peers and drifts",),
            2: ("12 rows remapped in 3 days",),
            3: ("gone for 10 min",),
        },
        actions={1: "check fan and thermal paste at the next stop", 2: "drain and reset", 3: "power-cycle the node"},
        domains=(domains,),
        incidents=(cooling_incident(("GPU-0000", "GPU-0001", "GPU-0002"), "predicted"),),
    )


def five_gpu_snapshot() -> Snapshot:
    """The same as a finished cycle, with racks and two pods."""
    pods = {"GPU-0000": Workload("team-a", "quiet-0"), "GPU-0002": Workload("team-a", 'llm "8b"', "main")}
    return snapshot_of(five_gpu_report(), {"node0": "r1", "node1": "r2"}, pods)
