"""With the full simulator: is the directly made fleet like it, and do node and loop faults point to their place."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.daily import daily_row
from healthsvc.features.medians import nan_median
from healthsvc.features.resistance import peer_ratio, place_findings
from healthsvc.features.windows import inlet_by_gpu, summarise
from healthsvc.fleet import DAY_S, DailyLedger, EventLog, FleetHistory, FleetWindow, PlaceSeries, Signal, Topology
from healthsvc.fleet.causes import ThermalCause
from healthsvc.forecasters.thermal.path import PathSpec, learn_path
from healthsvc.simulator.fleet import FleetSimulator
from healthsvc.simulator.scenario import Scenario, parse_scenario
from scripts.studies.thermal_fleet import make_run, quiet_plan

START_S = 20_454 * DAY_S  # 2026-01-01
BASE_DAYS = 10
SLOT_HOURS, FAULT_HOURS, SEEN_AFTER_MINUTES = 6.0, 2.0, 45.0
NODES, LOOPS = 32, 8
SHOWN = (
    Signal.GPU_TEMPERATURE,
    Signal.MEMORY_TEMPERATURE,
    Signal.POWER,
    Signal.ENERGY,
    Signal.POWER_LIMIT,
    Signal.SOFTWARE_THERMAL_THROTTLE,
    Signal.HARDWARE_THERMAL_THROTTLE,
)


@dataclass(frozen=True)
class Seen:
    """A day as it was shown: the window with its tail of the day before, and the environment on the same grid."""

    window: FleetWindow
    environment: dict[Signal, PlaceSeries]


def days_of(simulator: FleetSimulator) -> Iterator[Seen]:
    """The run, a day at a time, each after the last two hours of the day before."""
    before: dict[Signal, NDArray[np.float64]] = {}
    places: dict[Signal, PlaceSeries] = {}
    times = np.zeros(0)
    for chunk in simulator.chunks():
        shown = [signal for signal in SHOWN if signal in chunk.values]
        values = {s: np.concatenate([before[s], chunk.values[s]], axis=1) if before else chunk.values[s] for s in shown}
        all_times = np.concatenate([times, chunk.times_s])
        environment = {
            s: replace(e, values=np.concatenate([places[s].values, e.values], axis=1)) if places else e
            for s, e in chunk.environment.items()
        }
        framed = {}
        for signal in shown:
            steps = np.diff(values[signal], axis=1, prepend=np.nan) if signal.kind == "counter" else values[signal]
            framed[signal] = np.where(steps < 0, 0.0, steps).astype(np.float32) if signal.kind == "counter" else steps
        gauges = {s: v.astype(np.float32) for s, v in framed.items()}
        yield Seen(FleetWindow(simulator.gpus, all_times, gauges), environment)
        tail = round(7200 / (chunk.times_s[1] - chunk.times_s[0])) + 1
        before = {s: v[:, -tail:] for s, v in values.items()}
        places = {s: replace(e, values=e.values[:, -tail:]) for s, e in environment.items()}
        times = all_times[-tail:]


def ledger_day(seen: Seen, topology: Topology) -> DailyLedger:
    """The ledger row of the day that `seen` ends with."""
    window = seen.window
    inlet = inlet_by_gpu(seen.environment, topology, window.gpus, len(window.times_s))
    day = int(np.floor((window.times_s[-1] - 1.0) / DAY_S))
    summaries = summarise(window, inlet).within(day * DAY_S, (day + 1) * DAY_S)
    return daily_row(summaries, topology, window.step_s, day, unfinished=False)


def joined(days: list[DailyLedger]) -> DailyLedger:
    """Days side by side."""
    features = {name: np.concatenate([day.features[name] for day in days], axis=1) for name in days[0].features}
    return DailyLedger(
        days[0].gpus,
        np.concatenate([day.days for day in days]),
        features,
        np.concatenate([day.exposure_h for day in days], axis=1),
        np.concatenate([day.completeness for day in days], axis=1),
    )


def plan_faults(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Each loop by turns a fault of one of its nodes or of itself, six hours apart, so that no two meet."""
    rng = np.random.default_rng(seed)
    faults = []
    for loop in range(LOOPS):
        turns = [f"node-{4 * loop + i + 1:03d}" for i in range(4)] * (1 if quick else 4)
        turns += [f"loop-{loop + 1}"] * (2 if quick else 10)
        for slot, target in enumerate(rng.permutation(turns).tolist()):
            start = BASE_DAYS + (slot * SLOT_HOURS + 3.0) / 24.0
            fault = {"target": target, "start_day": start, "end_day": start + FAULT_HOURS / 24.0}
            if target.startswith("node"):
                ramp = float(rng.uniform(0, 0.3))
                fault |= {"kind": "node_fan_fault", "ramp_hours": ramp, "remaining_ratio": float(rng.uniform(0.3, 0.7))}
            else:
                ramp = float(rng.uniform(5, 20))
                fault |= {
                    "kind": "loop_flow_loss",
                    "ramp_minutes": ramp,
                    "remaining_ratio": float(rng.uniform(0.2, 0.6)),
                }
            faults.append(fault)
    return faults


def places(quick: bool = False, seed: int = 101) -> dict[str, Any]:
    """Node fan faults and loop flow losses, looked at 45 minutes after they began.

    Right: every measured GPU of the place is put down to it, and none else of its loop to a node or loop. `idle`: too
    few members were at steady load, so there was nothing to see. Flow sensors are not used: resistance has to tell.
    """
    faults = plan_faults(seed, quick)
    last = max(fault["end_day"] for fault in faults)
    scenario = parse_scenario(
        {
            "name": "places",
            "days": float(np.ceil(last + 0.1)),
            "step_s": 60,
            "fleet": {"gpus": NODES * 8, "nodes_per_rack": 2, "racks_per_loop": 2},
            "fault": faults,
        },
        "places",
    )
    simulator = FleetSimulator(scenario, np.random.default_rng(seed), START_S)
    topology = simulator.layout.topology(simulator.gpus)
    finished: list[DailyLedger] = []
    outcome: dict[str, Counter[str]] = {"node": Counter(), "loop": Counter()}
    for seen in days_of(simulator):
        if len(finished) >= BASE_DAYS:
            base = joined(finished[:BASE_DAYS])
            for fault in faults:
                now_s = START_S + fault["start_day"] * DAY_S + SEEN_AFTER_MINUTES * 60.0
                column = int(np.searchsorted(seen.window.times_s, now_s, "right")) - 1
                if seen.window.times_s[0] + 7000 < now_s <= seen.window.times_s[-1] and now_s > _midnight(seen):
                    outcome[fault["target"][:4]][judge(seen, column, base, topology, fault["target"])] += 1
        finished.append(ledger_day(seen, topology))
    return {"seed": seed, **{layer: dict(counts) for layer, counts in outcome.items()}}


def _midnight(seen: Seen) -> float:
    """When the day that `seen` ends with began."""
    return float(np.floor((seen.window.times_s[-1] - 1.0) / DAY_S) * DAY_S)


def judge(seen: Seen, column: int, base: DailyLedger, topology: Topology, target: str) -> str:
    """right, wrong, missed or idle."""
    window = seen.window.columns(slice(column - 119, column + 1))
    inlet = inlet_by_gpu(
        {s: replace(e, values=e.values[:, column - 119 : column + 1]) for s, e in seen.environment.items()},
        topology,
        window.gpus,
        120,
    )
    found = place_findings(FleetHistory(window, base, EventLog(), topology), inlet)
    layer = "node" if target.startswith("node") else "cooling_loop"
    members = topology.group(layer, len(window.gpus)) == topology.names[layer].index(target)
    measured = ~np.isnan(found.shifts.gpu)
    if layer == "node" and np.sum(members & measured) < 3:
        return "idle"
    nodes = topology.group("node", len(window.gpus))
    if layer == "cooling_loop" and sum(np.sum(members & measured & (nodes == n)) >= 3 for n in set(nodes)) < 2:
        return "idle"
    wanted = ThermalCause.NODE_AIRFLOW if layer == "node" else ThermalCause.LOOP_FLOW
    loop = topology.group("cooling_loop", len(window.gpus))
    here = measured & np.isin(loop, loop[members])  # other loops have faults of their own
    shared = np.where(np.isin(found.cause, (ThermalCause.NODE_AIRFLOW, ThermalCause.LOOP_FLOW)), found.cause, 0)[here]
    if not shared.any():
        return "missed"
    return "right" if np.array_equal(shared, np.where(members[here], wanted, 0)) else "wrong"


def simulated(gpus: int, days: int, drifts: dict[int, float], seed: int) -> DailyLedger:
    """The ledger of a run of the full simulator; drifts: row -> percent a day from day 20 on."""
    faults = [
        {"kind": "tim_drift", "target": row, "start_day": 20.0, "growth_percent_per_day": percent}
        for row, percent in drifts.items()
    ]
    table = {"name": "equivalence", "days": days, "step_s": 300, "fleet": {"gpus": gpus}, "fault": faults}
    scenario: Scenario = parse_scenario(table, "equivalence")
    simulator = FleetSimulator(scenario, np.random.default_rng(seed), START_S)
    topology = simulator.layout.topology(simulator.gpus)
    return joined([ledger_day(seen, topology) for seen in days_of(simulator)])


def looks(daily: DailyLedger, drifting: list[int]) -> dict[str, float]:
    """Deviation and persistence of log R against peers, days without it, spread between GPUs, the pace found."""
    node = np.arange(len(daily.gpus), dtype=np.int32) // 8
    ratio = peer_ratio(daily.get("gpu_log_resistance").astype(np.float64), node)
    calm = np.delete(ratio, drifting, axis=0)
    calm = calm - nan_median(calm)[:, None]
    squares = float(np.nanmean(calm**2))
    found, _ = learn_path(ratio, np.zeros(len(ratio), np.intp), np.zeros(len(ratio)), PathSpec())
    return {
        "deviation_log": float(np.sqrt(squares)),
        "persistence": float(np.nanmean(calm[:, 1:] * calm[:, :-1])) / squares,
        "kurtosis": float(np.nanmean(calm**4)) / squares**2,
        "days_missing": float(np.isnan(calm).mean()),
        "spread_log": float(np.nanstd(nan_median(ratio))),
        "drift_found_a_day": float(np.median(found.slope[drifting])),
        "drift_z": float(np.median(found.z[drifting])),
    }


def equivalence(quick: bool = False, seed: int = 101) -> dict[str, Any]:
    """64 GPUs over 45 days, 8 drifting by 0.6 % a day from day 20 on: the full simulator and the direct fleet."""
    gpus, days = (16, 24) if quick else (64, 45)
    rows = list(range(0, gpus, 8))
    full = simulated(gpus, days, dict.fromkeys(rows, 0.6), seed)
    plan = quiet_plan(gpus)
    growth, start = plan.growth_a_day.copy(), plan.start_day.copy()
    growth[rows], start[rows] = 0.006, 20.0
    direct = make_run(gpus // 8, days, seed, replace(plan, growth_a_day=growth, start_day=start)).daily
    return {"seed": seed, "gpus": gpus, "days": days, "simulator": looks(full, rows), "direct": looks(direct, rows)}
