"""Small histories to test on: every builder gives the least that the type needs, and what a test names on top."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    DAY_S,
    OPEN,
    DailyLedger,
    EventKind,
    EventLog,
    FleetHistory,
    FleetWindow,
    Floats,
    GpuId,
    Placement,
    Signal,
    build_topology,
)

NOW_S = 20_500 * DAY_S  # a midnight, a whole number of ten-minute windows
Maybe = float | None


def make_gpus(count: int, per_node: int = 8, product: str = "NVIDIA H100 80GB HBM3") -> tuple[GpuId, ...]:
    return tuple(GpuId(f"GPU-{i:03d}", f"node-{i // per_node:02d}", str(i % per_node), product) for i in range(count))


def make_window(
    values: Mapping[Signal, Sequence[Sequence[float]] | Floats],
    per_node: int = 8,
    step_s: float = 60.0,
    end_s: float = NOW_S,
) -> FleetWindow:
    """Rows of numbers by signal, the last column at `end_s`; NaN = no sample."""
    arrays = {signal: np.asarray(rows, np.float32) for signal, rows in values.items()}
    gpus, columns = next(iter(arrays.values())).shape
    times = end_s + np.arange(1.0 - columns, 1.0) * step_s
    return FleetWindow(make_gpus(gpus, per_node), times, arrays)


def flat_window(
    gpus: int,
    columns: int = 120,
    per_node: int = 8,
    step_s: float = 60.0,
    extra: Mapping[Signal, float] | None = None,
) -> FleetWindow:
    """Healthy GPUs at constant load; `extra` adds constant signals or overrides."""
    level = {
        Signal.GPU_TEMPERATURE: 60.0,
        Signal.POWER: 500.0,
        Signal.SBE_AGGREGATE: 0.0,
        Signal.XID: 0.0,
        Signal.SOFTWARE_THERMAL_THROTTLE: 0.0,
        **(extra or {}),
    }
    return make_window({s: np.full((gpus, columns), v) for s, v in level.items()}, per_node, step_s)


def make_daily(
    gpus: Sequence[GpuId], days: int, features: Mapping[str, Floats], unfinished: bool = False
) -> DailyLedger:
    """Finished days up to NOW_S with full exposure."""
    shape = (len(gpus), days)
    first = int(NOW_S // DAY_S) - days
    return DailyLedger(
        tuple(gpus),
        first + np.arange(days, dtype=np.int64),
        features,
        np.full(shape, 24.0, np.float32),
        np.ones(shape, np.float32),
        unfinished,
    )


def make_events(*events: tuple[int, float, EventKind, float]) -> EventLog:
    """(row, start_s, kind, value), each still open, in any order."""
    if not events:
        return EventLog()
    row, start, kind, value = zip(*events, strict=True)
    return EventLog().merged(
        EventLog(
            np.array(row, np.int32),
            np.array(start, np.float64),
            np.full(len(row), OPEN),
            np.array(kind, np.int16),
            np.array(value, np.float64),
        )
    )


def make_history(
    window: FleetWindow,
    daily: DailyLedger | None = None,
    events: EventLog | None = None,
    racks: Mapping[str, str] | None = None,
) -> FleetHistory:
    """racks: {hostname: rack}."""
    placement = Placement({host: {"rack": rack} for host, rack in (racks or {}).items()})
    return FleetHistory(
        window,
        daily if daily is not None else make_daily(window.gpus, 0, {}),
        events if events is not None else EventLog(),
        build_topology(window.gpus, placement),
    )


def thermal_history(
    log_r: NDArray[np.float64], power_watts: float = 690.0, inlet_celsius: float = 27.0
) -> FleetHistory:
    """A fleet whose daily log R is `log_r` [gpu, day], on nodes of eight, at constant load and inlet."""
    gpus, days = log_r.shape
    window = flat_window(gpus)
    features: dict[str, Floats] = {
        "gpu_log_resistance": log_r.astype(np.float32),
        "power_q95_watts": np.full((gpus, days), power_watts, np.float32),
        "inlet_q95_celsius": np.full((gpus, days), inlet_celsius, np.float32),
        "inlet_measured_ratio": np.ones((gpus, days), np.float32),
    }
    return make_history(window, make_daily(window.gpus, days, features))


def random_floats(rng: np.random.Generator, shape: tuple[int, ...], gaps: float = 0.2) -> NDArray[np.float64]:
    """Normal deviates of which a share `gaps` is missing."""
    values = rng.normal(size=shape)
    values[rng.random(shape) < gaps] = np.nan
    return values


def as_maybe(values: NDArray[np.floating]) -> list[Maybe]:
    """A row as the slow twins take it."""
    return [None if np.isnan(v) else float(v) for v in values]


def as_float(value: Maybe) -> float:
    return np.nan if value is None else value
