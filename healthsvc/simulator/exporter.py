"""What an exporter shows of a chunk: gauges, counters that continue from chunk to chunk, and the sensors of places."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import PlaceSeries, Signal
from healthsvc.simulator.drive import CLEAR, COUNTED, GPU_RESET, REBOOT, Drive
from healthsvc.simulator.scenario import Scenario
from healthsvc.simulator.series import Array, accumulate, hold
from healthsvc.simulator.thermal import (
    MAX_OPERATING_CELSIUS,
    MEMORY_MAX_OPERATING_CELSIUS,
    SLOWDOWN_CELSIUS,
    Heat,
)
from healthsvc.simulator.workload import IDLE_WATTS

THROTTLE_COUNTERS = (
    Signal.THERMAL_THROTTLE,
    Signal.SOFTWARE_THERMAL_THROTTLE,
    Signal.HARDWARE_THERMAL_THROTTLE,
    Signal.POWER_BRAKE_THROTTLE,
)
BOOST_HERTZ, IDLE_HERTZ, CLOCK_STEP_HERTZ = 1980e6, 345e6, 15e6
# The exporter counts in whole millijoules and nanoseconds. What is shown is such a count times the unit, the product
# that a reader of the exporter computes: so a recording and a server fed with these counts hold the same bits.
COUNTS_PER_UNIT = {Signal.ENERGY: 1e3, **dict.fromkeys(THROTTLE_COUNTERS, 1e9)}
# Clock event reasons, DCGM field 112.
GPU_IDLE, POWER_CAP, HARDWARE_SLOWDOWN = 0x1, 0x4, 0x8
SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x20, 0x40, 0x80
LIMITS = {
    Signal.GPU_MAX_OPERATING_LIMIT: MAX_OPERATING_CELSIUS,
    Signal.GPU_SLOWDOWN_LIMIT: SLOWDOWN_CELSIUS,
    Signal.MEMORY_MAX_OPERATING_LIMIT: MEMORY_MAX_OPERATING_CELSIUS,
}


@dataclass
class Exporter:
    """Where every counter and state of the fleet stands [gpu]; `show` goes on from there, so chunks come in order."""

    scenario: Scenario
    standing: dict[Signal, Array] = field(default_factory=dict)

    def show(self, drive: Drive, heat: Heat, busy: NDArray[np.bool_]) -> dict[Signal, Array]:
        """Every signal [gpu, time], counters cumulative, NaN while a GPU does not answer."""
        values = {**_gauges(drive, heat, busy), **self._counters(drive, heat)}
        return {signal: np.where(drive.alive, array, np.nan) for signal, array in values.items()}

    def _count(self, signal: Signal, increments: NDArray[np.floating], restarts: NDArray[np.bool_]) -> Array:
        before = self.standing.get(signal, np.zeros(len(increments)))
        values = accumulate(before, increments, restarts)
        self.standing[signal] = values[:, -1]
        return values

    def _state(self, signal: Signal, marks: NDArray[np.int32]) -> Array:
        before = self.standing.get(signal, np.zeros(len(marks)))
        values = hold(before, marks)
        self.standing[signal] = values[:, -1]
        return values

    def _counters(self, drive: Drive, heat: Heat) -> dict[Signal, Array]:
        step = self.scenario.step_s
        reboot, reset = drive.restarts == REBOOT, drive.restarts >= GPU_RESET
        never = np.zeros_like(reboot)
        driver = {  # these begin again with the driver
            Signal.ENERGY: heat.power * step,
            Signal.THERMAL_THROTTLE: np.maximum(heat.software, heat.hardware) * step,
            Signal.SOFTWARE_THERMAL_THROTTLE: heat.software * step,
            Signal.HARDWARE_THERMAL_THROTTLE: heat.hardware * step,
            Signal.POWER_BRAKE_THROTTLE: drive.brake_ratio * step,
        }
        lifetime = {  # these live in the InfoROM
            Signal.SBE_AGGREGATE: drive.counts[Signal.SBE_VOLATILE],
            Signal.DBE_AGGREGATE: drive.counts[Signal.DBE_VOLATILE],
        }
        values = {s: self._count(s, np.where(drive.alive, a, 0.0), reboot) for s, a in driver.items()}
        values |= {s: np.round(values[s] * per) * (1 / per) for s, per in COUNTS_PER_UNIT.items()}
        values |= {s: self._count(s, np.where(drive.alive, a, 0.0), never) for s, a in lifetime.items()}
        for signal in COUNTED:
            volatile = signal in (Signal.SBE_VOLATILE, Signal.DBE_VOLATILE)
            restarts = reset if volatile else reboot if signal is Signal.PCIE_REPLAYS else never
            values[signal] = self._count(signal, np.where(drive.alive, drive.counts[signal], 0.0), restarts)
        xid = np.where(drive.alive | (drive.xid == CLEAR), drive.xid, 0)
        values[Signal.XID] = self._state(Signal.XID, xid)
        values[Signal.REMAP_PENDING] = self._state(Signal.REMAP_PENDING, drive.pending)
        values[Signal.REMAP_FAILURE] = self._state(Signal.REMAP_FAILURE, drive.failed)
        return values

    def places(self, drive: Drive, flow_noise: Array) -> dict[Signal, PlaceSeries]:
        """The sensors of nodes and loops [place, time]; NaN while a node is dark."""
        layout = drive.layout
        inlet = np.where(drive.dark, np.nan, np.round(drive.inlet_celsius, 1)).astype(np.float32)
        places = {Signal.INLET: PlaceSeries("node", layout.nodes, inlet)}
        if self.scenario.fleet.cooling == "liquid":
            gpus = np.bincount(layout.loop_of)[:, None]
            rated = gpus * self.scenario.environment.rated_flow_liters_per_minute_per_gpu
            rated = np.broadcast_to(rated, drive.flow_ratio.shape)
            for signal, values in (
                (Signal.COOLANT_SUPPLY, drive.supply_celsius),
                (Signal.COOLANT_FLOW, rated * np.maximum(drive.flow_ratio + flow_noise, 0.0)),
                (Signal.RATED_COOLANT_FLOW, rated),
            ):
                rounded = np.round(values, 2).astype(np.float32)
                places[signal] = PlaceSeries("cooling_loop", layout.loops, rounded)
        return places


def _gauges(drive: Drive, heat: Heat, busy: NDArray[np.bool_]) -> dict[Signal, Array]:
    above_idle = np.maximum(drive.wanted_watts - IDLE_WATTS, 1e-9)
    pace = np.sqrt(np.clip((heat.power - IDLE_WATTS) / above_idle, 0.0, 1.0))  # power goes about as clock squared
    slowed, braked = heat.hardware > 0, drive.brake_ratio > 0
    pace = np.where(slowed | braked, np.minimum(pace, 0.5), pace)  # hardware slowdown at least halves the clock
    clock = np.where(busy, np.maximum(BOOST_HERTZ * pace, IDLE_HERTZ), IDLE_HERTZ)
    capped = drive.wanted_watts >= 0.97 * drive.limit_watts
    reasons = np.where(busy, 0, GPU_IDLE) | np.where(capped, POWER_CAP, 0)
    reasons |= np.where(heat.software > 0, SOFTWARE_THERMAL, 0)
    reasons |= np.where(slowed, HARDWARE_THERMAL | HARDWARE_SLOWDOWN, 0)
    reasons |= np.where(braked, POWER_BRAKE | HARDWARE_SLOWDOWN, 0)
    return {
        # NVML reports whole degrees; the margin keeps a temperature that is held at a limit from flickering.
        Signal.GPU_TEMPERATURE: np.floor(heat.temperature + 1e-6),
        Signal.MEMORY_TEMPERATURE: np.floor(heat.memory_temperature + 1e-6),
        Signal.POWER: np.round(heat.power, 3),
        Signal.SM_CLOCK: np.floor(clock / CLOCK_STEP_HERTZ) * CLOCK_STEP_HERTZ,
        Signal.GPU_UTILIZATION: np.where(busy, np.round(0.96 + 0.04 * np.sqrt(pace), 2), 0.0),
        Signal.CLOCK_EVENT_REASONS: reasons.astype(np.float64),
        Signal.POWER_LIMIT: drive.limit_watts,
        **{signal: np.full(heat.power.shape, limit) for signal, limit in LIMITS.items()},
    }
