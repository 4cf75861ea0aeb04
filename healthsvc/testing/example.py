"""A small fleet that has one of everything: the history that the rules are tried on when none is given."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    DAY_S,
    DailyLedger,
    EventKind,
    EventLog,
    FleetHistory,
    FleetWindow,
    Floats,
    GpuId,
    Placement,
    PlaceSeries,
    Signal,
    Topology,
    build_topology,
)

FIRST_DAY = 20_454  # 2026-01-01
NODE_GPUS = 8
STEP_S, COLUMNS = 60.0, 120
NOW_OF_DAY_S = 6 * 3600.0  # the last day of the ledger is today, a quarter over
INLET_CELSIUS, RESISTANCE = 27.0, 0.078  # K/W: 53 K above the inlet at 680 W
DRIFT_A_DAY = 0.004  # of log R, over the second half of the days
DRIFTING, CORRECTING, UNCORRECTABLE, OFF_BUS = 2, 4, 5, 6  # rows of the first node


@dataclass(frozen=True)
class Cast:
    """Who plays what. The last node is silent; the one before it throttles, and has lost its first GPU."""

    gpus: tuple[GpuId, ...]
    topology: Topology
    silent: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    hot: NDArray[np.bool_]


def _cast(count: int) -> Cast:
    node = np.arange(count) // NODE_GPUS
    gpus = tuple(
        GpuId(f"GPU-{i:04d}", f"node-{node[i]:03d}", str(i % NODE_GPUS), "NVIDIA H100 80GB HBM3") for i in range(count)
    )
    places = {
        f"node-{n:03d}": {"rack": f"rack-{n // 2}", "cooling_loop": f"loop-{n // 4}", "power_feed": f"feed-{n // 2}"}
        for n in range(int(node.max(initial=0)) + 1)
    }
    last = int(node.max(initial=0))
    slot = np.arange(count) % NODE_GPUS
    lost = (node == last - 1) & (slot == 0)
    hot = (node == last - 1) & (slot > 0) & (slot <= 4)
    return Cast(gpus, build_topology(gpus, Placement(places)), node == last, lost, hot)


def example_history(rng: np.random.Generator, gpus: int = 56, days: int = 40) -> FleetHistory:
    """Nodes of eight in racks of two and loops of four, `days` of ledger of which the last is today.

    One GPU drifts, one has correctable errors, one an uncorrectable past, one fell off the bus once; one node has
    no data, and on another one GPU is lost and four throttle. The rest is well, with the noise of healthy GPUs.
    Raises ValueError below three nodes, which it takes to have all of that.
    """
    if gpus < 3 * NODE_GPUS or days < 2:
        raise ValueError(f"example_history(gpus={gpus}, days={days}): needs at least {3 * NODE_GPUS} GPUs and 2 days")
    cast = _cast(gpus)
    now_s = (FIRST_DAY + days - 1) * DAY_S + NOW_OF_DAY_S
    log_r = _log_resistance(rng, cast, days)
    recent = _recent(rng, cast, now_s, log_r[:, -1])
    daily = _daily(rng, cast, log_r)
    nodes = cast.topology.names["node"]
    inlet = (INLET_CELSIUS + rng.normal(0, 0.2, (len(nodes), COLUMNS))).astype(np.float32)
    return FleetHistory(
        recent, daily, _events(rng, cast, now_s, days), cast.topology, {Signal.INLET: PlaceSeries("node", nodes, inlet)}
    )


def _log_resistance(rng: np.random.Generator, cast: Cast, days: int) -> NDArray[np.float64]:
    """Board spread, a movement common to the node, and AR(1) noise of 0.4; one GPU drifts."""
    count = len(cast.gpus)
    node = cast.topology.groups["node"]
    common = rng.normal(0, 0.004, (int(node.max()) + 1, days))[node]
    noise = rng.normal(0, 0.003, (count, days))
    for day in range(1, days):
        noise[:, day] += 0.4 * noise[:, day - 1]
    log_r: NDArray[np.float64] = np.log(RESISTANCE) + rng.normal(0, 0.02, (count, 1)) + common + noise
    log_r[DRIFTING] += DRIFT_A_DAY * np.maximum(np.arange(days) - days / 2, 0)
    return log_r


def _recent(rng: np.random.Generator, cast: Cast, now_s: float, log_r: NDArray[np.float64]) -> FleetWindow:
    shape = (len(cast.gpus), COLUMNS)
    times: NDArray[np.float64] = now_s + np.arange(1.0 - COLUMNS, 1.0) * STEP_S
    power = rng.normal(640, 12, shape)
    none = np.zeros(shape)
    throttled = np.where(cast.hot[:, None], rng.uniform(20, 50, shape), 0.0)
    values: dict[Signal, NDArray[np.float64]] = {
        Signal.GPU_TEMPERATURE: np.floor(INLET_CELSIUS + power * np.exp(log_r)[:, None]),
        Signal.MEMORY_TEMPERATURE: np.floor(INLET_CELSIUS + 8 + power * np.exp(log_r)[:, None]),
        Signal.POWER: power,
        Signal.ENERGY: power * STEP_S,
        Signal.SM_CLOCK: rng.normal(1.9e9, 1e7, shape),
        Signal.GPU_UTILIZATION: rng.uniform(0.9, 1.0, shape),
        Signal.POWER_LIMIT: np.full(shape, 700.0),
        Signal.GPU_MAX_OPERATING_LIMIT: np.full(shape, 87.0),
        Signal.GPU_SLOWDOWN_LIMIT: np.full(shape, 89.0),
        Signal.MEMORY_MAX_OPERATING_LIMIT: np.full(shape, 95.0),
        Signal.SOFTWARE_THERMAL_THROTTLE: throttled,
        Signal.HARDWARE_THERMAL_THROTTLE: none,
        Signal.XID: none,
        Signal.SBE_AGGREGATE: np.where(np.arange(shape[0])[:, None] == CORRECTING, rng.poisson(3.0, shape), 0.0),
        Signal.DBE_AGGREGATE: none,
        Signal.CORRECTABLE_REMAPS: none,
        Signal.UNCORRECTABLE_REMAPS: none,
        Signal.REMAP_PENDING: np.where(np.arange(shape[0])[:, None] == UNCORRECTABLE, 1.0, 0.0),
        Signal.REMAP_FAILURE: none,
        Signal.PCIE_REPLAYS: rng.poisson(0.01, shape).astype(np.float64),
    }
    absent = np.broadcast_to(cast.silent[:, None], shape).copy()
    absent[cast.lost, -20:] = True
    absent |= rng.random(shape) < 0.01  # a missed scrape takes all of a GPU's signals
    absent[:, -1] = cast.silent | cast.lost
    return FleetWindow(cast.gpus, times, {s: np.where(absent, np.nan, v).astype(np.float32) for s, v in values.items()})


def _daily(rng: np.random.Generator, cast: Cast, log_r: NDArray[np.float64]) -> DailyLedger:
    shape = log_r.shape
    row = np.arange(shape[0])[:, None]
    exposure = np.full(shape, 24.0)
    exposure[:, -1] = NOW_OF_DAY_S / 3600.0
    exposure[cast.silent] = 0.0
    unseen = (rng.random(shape) < 0.03) | cast.silent[:, None]  # a day off the load leaves no resistance
    errors = rng.negative_binomial(0.05, 0.05, shape) + np.where(row == CORRECTING, rng.poisson(4000, shape), 0)
    remaps = np.zeros(shape)
    remaps[UNCORRECTABLE, -min(9, shape[1])] = 1
    power = rng.normal(680, 8, shape)
    features: Mapping[str, NDArray[np.float64]] = {
        "gpu_log_resistance": np.where(unseen, np.nan, log_r),
        "memory_log_resistance": np.where(unseen, np.nan, log_r + 0.15),
        "steady_windows": np.where(unseen, 0.0, 100.0),
        "power_q95_watts": power,
        "inlet_q95_celsius": INLET_CELSIUS + rng.normal(0, 0.3, shape),
        "inlet_measured_ratio": np.ones(shape),
        "gpu_temperature_q95_celsius": INLET_CELSIUS + power * np.exp(log_r),
        "gpu_max_operating_limit_celsius": np.full(shape, 87.0),
        "gpu_slowdown_limit_celsius": np.full(shape, 89.0),
        "memory_max_operating_limit_celsius": np.full(shape, 95.0),
        "thermal_throttle_s": np.where(cast.hot[:, None], rng.uniform(0, 900, shape), 0.0),
        "hardware_throttle_s": np.zeros(shape),
        "sbe_errors": errors.astype(np.float64),
        "sbe_windows": np.minimum(errors, 144).astype(np.float64),
        "dbe_errors": np.zeros(shape),
        "correctable_remaps_rows": np.where(row == CORRECTING, rng.poisson(0.1, shape), 0.0),
        "uncorrectable_remaps_rows": remaps,
        "remap_pending_bool": np.where(row == UNCORRECTABLE, 1.0, 0.0) * np.ones(shape),
        "remap_failure_bool": np.zeros(shape),
        "retired_pages_pages": np.zeros(shape),
        "pcie_replays_errors": rng.poisson(2.0, shape).astype(np.float64),
    }
    typed: dict[str, Floats] = {
        name: np.where(cast.silent[:, None], np.nan, v).astype(np.float64 if name.endswith("errors") else np.float32)
        for name, v in features.items()
    }
    days = FIRST_DAY + np.arange(shape[1], dtype=np.int64)
    complete = np.where(exposure > 0, 1.0, 0.0).astype(np.float32)
    return DailyLedger(cast.gpus, days, typed, exposure.astype(np.float32), complete, unfinished=True)


def _events(rng: np.random.Generator, cast: Cast, now_s: float, days: int) -> EventLog:
    """The pasts of three GPUs, a history of throttling, and the loss that goes on."""
    rows = np.arange(len(cast.gpus))
    recent_s = min(9.0, days / 2) * DAY_S
    told = [
        (UNCORRECTABLE, recent_s, 60.0, EventKind.UNCORRECTABLE_REMAP, 1.0),
        (UNCORRECTABLE, recent_s, 60.0, EventKind.XID, 94.0),
        (UNCORRECTABLE, recent_s, 60.0, EventKind.REMAP_PENDING, 1.0),
        (CORRECTING, recent_s / 3, 0.0, EventKind.XID, 63.0),
        (OFF_BUS, recent_s / 2, 0.0, EventKind.XID, 79.0),
        (OFF_BUS, recent_s / 2 - 3600.0, 0.0, EventKind.DRIVER_RELOAD, 1.0),
        *((row, 1200.0, np.inf, EventKind.LOST, 1.0) for row in rows[cast.lost]),
        *((row, 3600.0, np.inf, EventKind.THERMAL_THROTTLE, 0.6) for row in rows[cast.hot]),
    ]
    throttled = rng.choice(rows[~cast.silent], 20)
    told += [
        (row, age_s, 300.0, EventKind.THERMAL_THROTTLE, 0.1)
        for row, age_s in zip(throttled, rng.uniform(0.1, days, 20) * DAY_S, strict=True)
    ]
    row, age_s, lasts_s, kind, value = (np.array(column, np.float64) for column in zip(*told, strict=True))
    start = np.floor((now_s - age_s) / STEP_S) * STEP_S
    return EventLog().merged(
        EventLog(row.astype(np.int32), start, start + lasts_s, kind.astype(np.int16), value),
    )
