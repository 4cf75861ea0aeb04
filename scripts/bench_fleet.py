"""A fleet of any size with plausible numbers, made in arrays: what the measurements run on.

Nodes of 8 GPUs, racks of 8 nodes, loops of 16 racks. One GPU in a hundred has a past of events, half of those an
uncorrectable memory error of the last weeks, which puts them at watch; one rack in five hundred throttles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    DAY_S,
    DailyLedger,
    EventKind,
    EventLog,
    FleetWindow,
    Floats,
    GpuId,
    Placement,
    PlaceSeries,
    Signal,
    Topology,
    build_topology,
)
from healthsvc.telemetry.source import RawGrid

NODE_GPUS, RACK_NODES, LOOP_RACKS = 8, 8, 16
TODAY = 20_480  # 2026-01-27
NOW_S = TODAY * DAY_S + 6 * 3600.0  # a quarter of today is over
STEP_S, WINDOW_COLUMNS = 60.0, 120
INLET_CELSIUS, RESISTANCE, POWER_WATTS = 27.0, 0.072, 640.0
EVENTFUL = 0.01  # share of GPUs

GAUGES: Mapping[Signal, float] = {  # those that stand still on a healthy GPU
    Signal.POWER_LIMIT: 700.0,
    Signal.GPU_MAX_OPERATING_LIMIT: 87.0,
    Signal.GPU_SLOWDOWN_LIMIT: 89.0,
    Signal.MEMORY_MAX_OPERATING_LIMIT: 95.0,
    Signal.CLOCK_EVENT_REASONS: 0.0,
    Signal.XID: 0.0,
    Signal.REMAP_PENDING: 0.0,
    Signal.REMAP_FAILURE: 0.0,
    Signal.BANKS_LOW: 0.0,
    Signal.BANKS_NONE: 0.0,
}
COUNTS_A_STEP: Mapping[Signal, float] = {
    Signal.HARDWARE_THERMAL_THROTTLE: 0.0,
    Signal.POWER_BRAKE_THROTTLE: 0.0,
    Signal.SBE_AGGREGATE: 1e-4,
    Signal.DBE_AGGREGATE: 0.0,
    Signal.RETIRED_PAGES_DBE: 0.0,
    Signal.CORRECTABLE_REMAPS: 0.0,
    Signal.UNCORRECTABLE_REMAPS: 0.0,
    Signal.PCIE_REPLAYS: 1e-3,
}


@dataclass(frozen=True)
class Fleet:
    """Who they are, where they stand, and which throttle by heat (bool[gpu])."""

    gpus: tuple[GpuId, ...]
    placement: Placement
    topology: Topology
    hot: NDArray[np.bool_]


def make_fleet(count: int) -> Fleet:
    """`count` GPUs with labels as dcgm-exporter writes them."""
    gpus = tuple(
        GpuId(
            f"GPU-{row:08x}-52a3-4f3c-9d5e-{row:012x}",
            f"gpu-node-{row // NODE_GPUS:05d}",
            str(row % NODE_GPUS),
            "NVIDIA H100 80GB HBM3",
            f"00000000:{row % NODE_GPUS:02X}:00.0",
        )
        for row in range(count)
    )
    places = {gpus[row].hostname: _places(row // NODE_GPUS // RACK_NODES) for row in range(0, count, NODE_GPUS)}
    placement = Placement(places)
    rack = np.arange(count) // (NODE_GPUS * RACK_NODES)
    return Fleet(gpus, placement, build_topology(gpus, placement), rack % 500 == 3)


def _places(rack: int) -> dict[str, str]:
    return {"rack": f"rack-{rack:04d}", "cooling_loop": f"loop-{rack // LOOP_RACKS:03d}"}


def make_gauges(fleet: Fleet, columns: int, rng: np.random.Generator) -> tuple[dict[Signal, Floats], Floats]:
    """16 gauges and states, float32[gpu, time], and NaN where a scrape is missed (one in a hundred), else 0."""
    shape = (len(fleet.gpus), columns)
    # One missed scrape takes all signals of a GPU: NaN added to a number is NaN.
    missed = np.where(rng.random(shape, np.float32) < 0.01, np.float32(np.nan), np.float32(0.0))

    def noise(spread: float) -> NDArray[np.float32]:
        return rng.standard_normal(shape, np.float32) * np.float32(spread)

    power = POWER_WATTS + noise(12.0) + missed
    heat = np.floor(INLET_CELSIUS + RESISTANCE * power)
    return {
        Signal.GPU_TEMPERATURE: heat,
        Signal.MEMORY_TEMPERATURE: heat + np.float32(8.0),
        Signal.POWER: power,
        Signal.SM_CLOCK: np.float32(1.9e9) + noise(1e7) + missed,
        Signal.GPU_UTILIZATION: np.clip(np.float32(0.95) + noise(0.03), 0.0, 1.0) + missed,
        **{signal: np.float32(level) + missed for signal, level in GAUGES.items()},
    }, missed


def make_counters(fleet: Fleet, times_s: NDArray[np.float64]) -> Iterator[tuple[Signal, NDArray[np.float64]]]:
    """10 counters, cumulative since a common start, float64[gpu, time]: the same at the same time, call by call."""
    steps = (times_s - (TODAY - 30) * DAY_S) / STEP_S
    row = np.arange(len(fleet.gpus))[:, None]
    yield Signal.ENERGY, POWER_WATTS * STEP_S * steps + 0.0 * row
    yield Signal.SOFTWARE_THERMAL_THROTTLE, np.where(fleet.hot[:, None], 30.0 * steps, 0.0)
    for signal, rate in COUNTS_A_STEP.items():
        yield signal, np.floor(rate * steps + row * 0.618 % 1.0)


def make_window(fleet: Fleet, columns: int, end_s: float, rng: np.random.Generator) -> FleetWindow:
    """The recent window, its last column at `end_s`."""
    times = end_s + np.arange(1.0 - columns, 1.0) * STEP_S
    values, missed = make_gauges(fleet, columns, rng)
    for signal, counts in make_counters(fleet, np.append(times[0] - STEP_S, times)):
        values[signal] = np.diff(counts, axis=1).astype(np.float32) + missed
    values[Signal.DRIVER_RELOADS] = missed
    return FleetWindow(fleet.gpus, times, values)


def make_grid(fleet: Fleet, times_s: NDArray[np.float64], rng: np.random.Generator) -> RawGrid:
    """What a source answers: counters cumulative, float64[gpu, time], and the environment of nodes and loops.

    As from our sources, a GPU whose labels have not changed is the same object, and GPUs without any sample are absent.
    """
    gauges, missed = make_gauges(fleet, len(times_s), rng)
    rows = np.flatnonzero(~np.isnan(missed).all(axis=1))
    values = {signal: array[rows].astype(np.float64) for signal, array in gauges.items()}
    values |= {signal: (counts + missed)[rows] for signal, counts in make_counters(fleet, times_s)}
    gpus = tuple(fleet.gpus[row] for row in rows.tolist())
    nodes, loops = fleet.topology.names["node"], fleet.topology.names["cooling_loop"]
    return RawGrid(gpus, times_s, values, make_environment(nodes, loops, len(times_s), rng))


def make_environment(
    nodes: Sequence[str], loops: Sequence[str], columns: int, rng: np.random.Generator
) -> dict[Signal, PlaceSeries]:
    """Inlet by node, flow by loop, all well."""

    def series(layer: str, names: Sequence[str], level: float, spread: float) -> PlaceSeries:
        values = level + spread * rng.standard_normal((len(names), columns), np.float32)
        return PlaceSeries(layer, tuple(names), values.astype(np.float32))

    return {
        Signal.INLET: series("node", nodes, INLET_CELSIUS, 0.2),
        Signal.COOLANT_FLOW: series("cooling_loop", loops, 58.0, 0.5),
        Signal.RATED_COOLANT_FLOW: series("cooling_loop", loops, 60.0, 0.0),
    }


def make_ledger(fleet: Fleet, days: int, rng: np.random.Generator) -> DailyLedger:
    """`days` finished days up to yesterday; three days in a hundred had no steady load."""
    shape = (len(fleet.gpus), days)

    def noise(spread: float) -> NDArray[np.float32]:
        return rng.standard_normal(shape, np.float32) * np.float32(spread)

    def flat(level: float) -> NDArray[np.float32]:
        return np.full(shape, level, np.float32)

    board = 0.02 * rng.standard_normal((shape[0], 1), np.float32)
    log_r = np.float32(np.log(RESISTANCE)) + board + noise(0.004)
    log_r[rng.random(shape, np.float32) < 0.03] = np.nan
    throttled = np.where(fleet.hot[:, None], np.float32(900.0), np.float32(0.0))
    errors = np.where(rng.random(shape, np.float32) < 0.01, rng.poisson(3.0, shape), 0).astype(np.float64)
    features: dict[str, Floats] = {
        "gpu_log_resistance": log_r,
        "memory_log_resistance": log_r + np.float32(0.15),
        "steady_windows": np.where(np.isnan(log_r), np.float32(0), np.float32(100)),
        "power_q95_watts": 670.0 + noise(8.0),
        "inlet_q95_celsius": INLET_CELSIUS + noise(0.3),
        "inlet_measured_ratio": flat(1.0),
        "gpu_temperature_q95_celsius": 75.0 + noise(1.0),
        "gpu_max_operating_limit_celsius": flat(87.0),
        "gpu_slowdown_limit_celsius": flat(89.0),
        "memory_max_operating_limit_celsius": flat(95.0),
        "thermal_throttle_s": throttled + flat(0.0),
        "hardware_throttle_s": flat(0.0),
        "sbe_errors": errors,
        "sbe_windows": np.minimum(errors, 144).astype(np.float32),
        "dbe_errors": np.zeros(shape),
        "correctable_remaps_rows": flat(0.0),
        "uncorrectable_remaps_rows": flat(0.0),
        "remap_pending_bool": flat(0.0),
        "remap_failure_bool": flat(0.0),
        "retired_pages_pages": flat(0.0),
        "pcie_replays_errors": rng.poisson(2.0, shape).astype(np.float32),
    }
    features = {
        k: v.astype(np.float64 if k.endswith("be_errors") else np.float32, copy=False) for k, v in features.items()
    }
    known_days = np.arange(TODAY - days, TODAY, dtype=np.int64)
    return DailyLedger(fleet.gpus, known_days, features, flat(24.0), flat(1.0))


def make_events(fleet: Fleet, rng: np.random.Generator) -> EventLog:
    """Pasts of the eventful: half an uncorrectable memory error and its reset, half throttling and a precursor."""
    rows = rng.choice(len(fleet.gpus), max(2, round(EVENTFUL * len(fleet.gpus))), replace=False)
    failed, uneasy = np.array_split(rows, 2)
    told = [
        (failed, EventKind.XID, 94.0, 0.0),
        (failed, EventKind.UNCORRECTABLE_REMAP, 1.0, 0.0),
        (failed, EventKind.DRIVER_RELOAD, 1.0, 3600.0),
        (uneasy, EventKind.XID, 63.0, 0.0),
        (uneasy, EventKind.THERMAL_THROTTLE, 0.1, 7200.0),
        (uneasy, EventKind.CORRECTABLE_REMAP, 1.0, 0.0),
    ]
    age_s = dict(zip(rows.tolist(), rng.uniform(1.0, 20.0, len(rows)) * DAY_S, strict=True))
    row = np.concatenate([who for who, *_ in told])
    later = np.concatenate([np.full(len(who), after) for who, _, _, after in told])
    start = np.floor((NOW_S - np.array([age_s[r] for r in row.tolist()]) + later) / STEP_S) * STEP_S
    kind = np.concatenate([np.full(len(who), k, np.int16) for who, k, _, _ in told])
    value = np.concatenate([np.full(len(who), v) for who, _, v, _ in told])
    return EventLog().merged(EventLog(row.astype(np.int32), start, start + 60.0, kind, value))
