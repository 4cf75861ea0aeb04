"""Two nodes on one cooling loop, minute by minute: what a load, the weather or a failing path makes of temperatures."""

from dataclasses import replace

import numpy as np

from healthsvc.features.daily import ASSUMED_INLET_CELSIUS
from healthsvc.fleet import EventLog, FleetHistory, Placement, PlaceSeries, Signal, build_topology
from tests.histories import make_daily, make_window

GPUS, COLUMNS, INLET, R = 16, 120, 30.0, 0.0625
MINUTES = np.arange(COLUMNS) - COLUMNS + 1.0


def running(
    ratio: np.ndarray | float = 1.0,
    watts: np.ndarray | float = 560.0,
    inlet: np.ndarray | float = INLET,
    measured: bool = True,
    struck: slice = slice(None),
) -> FleetHistory:
    """Two nodes on one loop; resistance, load and inlet over two hours, sensors that show the integer below."""
    rng = np.random.default_rng(5)
    shape = (GPUS, COLUMNS)
    apart = np.exp(rng.normal(0.0, 0.04, (GPUS, 1)))
    multiple = np.ones(shape)
    multiple[struck] = np.broadcast_to(ratio, shape)[struck]
    power = np.broadcast_to(watts, shape) * np.exp(rng.normal(0.0, 0.01, shape))
    heat, slow = np.empty(shape), power[:, 0] * R * apart[:, 0] * multiple[:, 0]
    for t in range(COLUMNS):
        steady = power[:, t] * R * apart[:, 0] * multiple[:, t]
        slow = slow + (steady - slow) * -np.expm1(-60.0 / 240.0)
        heat[:, t] = 0.45 * steady + 0.55 * slow
    cold = np.broadcast_to(inlet, (1, COLUMNS)).astype(np.float32)
    window = make_window(
        {
            Signal.GPU_TEMPERATURE: np.floor(cold + heat),
            Signal.POWER: power,
            Signal.POWER_LIMIT: np.full(shape, 700.0),
            Signal.SOFTWARE_THERMAL_THROTTLE: np.zeros(shape),
        }
    )
    places = {host: {"cooling_loop": "loop-1"} for host in ("node-00", "node-01")}
    environment = {Signal.COOLANT_SUPPLY: PlaceSeries("cooling_loop", ("loop-1",), cold)} if measured else {}
    # Where no inlet is measured the ledger's resistance is above the level that it assumes.
    normal = R * apart + (0.0 if measured else (INLET - ASSUMED_INLET_CELSIUS) / 560.0)
    daily = make_daily(window.gpus, 14, {"gpu_log_resistance": np.log(normal * np.ones((1, 14))).astype(np.float32)})
    history = FleetHistory(window, daily, EventLog(), build_topology(window.gpus, Placement(places)))
    return replace(history, environment=environment)


def rising(per_minute: float, minutes: float = 40.0) -> np.ndarray:
    """Resistance that grows exponentially for the last so many minutes."""
    return np.asarray(np.exp(per_minute * np.maximum(MINUTES + minutes, 0.0)))
