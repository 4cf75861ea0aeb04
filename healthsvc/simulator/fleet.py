"""The fleet, simulated day by day: drive, faults, physics, and what an exporter would have shown of it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, GpuId, PlaceSeries, Signal
from healthsvc.simulator.drive import CLEAR, COUNTED, GPU_RESET, REBOOT, Drive
from healthsvc.simulator.environment import Environment
from healthsvc.simulator.errors import Errors
from healthsvc.simulator.faults import KINDS
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.scenario import Scenario
from healthsvc.simulator.series import Array, Wander, accumulate, hold
from healthsvc.simulator.thermal import (
    MAX_OPERATING_CELSIUS,
    MEMORY_MAX_OPERATING_CELSIUS,
    SLOWDOWN_CELSIUS,
    Boards,
    Heat,
)
from healthsvc.simulator.workload import IDLE_WATTS, TDP_WATTS, Workload

BOOST_HERTZ, IDLE_HERTZ, CLOCK_STEP_HERTZ = 1980e6, 345e6, 15e6
# Clock event reasons, DCGM field 112.
GPU_IDLE, POWER_CAP, HARDWARE_SLOWDOWN, SOFTWARE_THERMAL, HARDWARE_THERMAL = 0x1, 0x4, 0x8, 0x20, 0x40
LIMITS = {
    Signal.POWER_LIMIT: TDP_WATTS,
    Signal.GPU_MAX_OPERATING_LIMIT: MAX_OPERATING_CELSIUS,
    Signal.GPU_SLOWDOWN_LIMIT: SLOWDOWN_CELSIUS,
    Signal.MEMORY_MAX_OPERATING_LIMIT: MEMORY_MAX_OPERATING_CELSIUS,
}


@dataclass(frozen=True)
class Chunk:
    """One UTC day of samples. values float64[gpu, time], counters cumulative, NaN while a GPU is lost."""

    times_s: Array
    values: Mapping[Signal, Array]
    environment: Mapping[Signal, PlaceSeries]


@dataclass
class _Meters:
    """Where every counter and state of the fleet stands [gpu]."""

    standing: dict[Signal, Array] = field(default_factory=dict)

    def count(self, signal: Signal, increments: NDArray[np.floating], restarts: NDArray[np.bool_]) -> Array:
        before = self.standing.get(signal, np.zeros(len(increments)))
        values = accumulate(before, increments, restarts)
        self.standing[signal] = values[:, -1]
        return values

    def state(self, signal: Signal, marks: NDArray[np.int32]) -> Array:
        before = self.standing.get(signal, np.zeros(len(marks)))
        values = hold(before, marks)
        self.standing[signal] = values[:, -1]
        return values


class FleetSimulator:
    """A run: `gpus` say who they are, `chunks` what they showed. Same scenario, seed and start: same samples."""

    def __init__(self, scenario: Scenario, rng: np.random.Generator, start_s: float) -> None:
        self.scenario, self.layout = scenario, Layout(scenario.fleet)
        step = scenario.step_s
        self.start_s = float(np.floor(start_s / step) * step)
        self.times_s = self.start_s + step * np.arange(round(scenario.days * DAY_S / step), dtype=np.float64)
        identity, bodies, work, weather, mishaps, faults = rng.spawn(6)
        self.gpus: tuple[GpuId, ...] = self.layout.gpus(identity)
        self._resistance, self._memory_resistance, self._daily = _bodies(scenario, bodies)
        self._workload = Workload(scenario.workload, self.layout, scenario.days * DAY_S, step, work)
        self._environment = Environment(scenario.environment, self.layout, step, weather)
        self._errors = Errors(scenario.errors, scenario.fleet.gpus, step, mishaps)
        # One stream a fault: taking one fault away leaves the others, and every healthy GPU, as they were.
        self._fault_seeds = [int(s.integers(2**62)) for s in faults.spawn(len(scenario.fault))]

    def chunks(self, progress: Callable[[float], None] | None = None) -> Iterator[Chunk]:
        """One chunk a UTC day, oldest first; `progress` hears the share that is done (0-1). To be run through once."""
        boards = Boards(self.scenario.thermal, self.scenario.step_s)
        meters = _Meters({Signal.SBE_AGGREGATE: self._errors.correctable_before})
        days = np.floor(self.times_s / DAY_S)
        for start in np.flatnonzero(np.diff(days, prepend=-1.0)):
            times_s = self.times_s[start:][days[start:] == days[start]]
            yield self._chunk(times_s, boards, meters)
            if progress:
                progress((start + len(times_s)) / len(self.times_s))

    def _chunk(self, times_s: Array, boards: Boards, meters: _Meters) -> Chunk:
        scenario, layout = self.scenario, self.layout
        elapsed_s = times_s - self.start_s
        wanted, busy, intensity = self._workload.draw(elapsed_s)
        inlet, supply, flow_noise = self._environment.draw(times_s)
        drive = Drive(layout, elapsed_s / DAY_S, scenario.step_s, wanted, inlet, supply, np.ones_like(supply))
        self._errors.strike(drive)
        for fault, seed in zip(scenario.fault, self._fault_seeds, strict=True):
            KINDS[fault.kind].inject(drive, fault, fault.rows(layout), np.random.default_rng(seed))
        drive.wanted_watts[~drive.alive] = IDLE_WATTS

        # Turbulent convection: its resistance goes with flow to the -0.8 (Dittus-Boelter).
        share = scenario.thermal.convection_share_ratio
        cooling = (1 - share) + share * np.maximum(drive.flow_ratio, 1e-3)[layout.loop_of] ** -0.8
        daily = self._daily[:, np.floor(drive.days).astype(np.intp)]
        resistance = self._resistance[:, None] * daily * cooling * drive.resistance_ratio
        memory = self._memory_resistance[:, None] * intensity * daily * cooling * drive.memory_resistance_ratio
        liquid = scenario.fleet.cooling == "liquid"
        coolant = drive.supply_celsius[layout.loop_of] if liquid else drive.inlet_celsius[layout.node_of]
        heat = boards.run(coolant, drive.wanted_watts, resistance, memory)
        values = {**self._gauges(drive, heat, busy), **self._counters(drive, heat, meters)}
        shown = {signal: np.where(drive.alive, array, np.nan) for signal, array in values.items()}
        return Chunk(times_s, shown, self._places(drive, flow_noise))

    def _gauges(self, drive: Drive, heat: Heat, busy: NDArray[np.bool_]) -> dict[Signal, Array]:
        above_idle = np.maximum(drive.wanted_watts - IDLE_WATTS, 1e-9)
        pace = np.sqrt(np.clip((heat.power - IDLE_WATTS) / above_idle, 0.0, 1.0))  # power goes about as clock squared
        slowed = heat.hardware > 0
        pace = np.where(slowed, np.minimum(pace, 0.5), pace)  # hardware slowdown at least halves the clock
        clock = np.where(busy, np.maximum(BOOST_HERTZ * pace, IDLE_HERTZ), IDLE_HERTZ)
        reasons = np.where(busy, 0, GPU_IDLE) | np.where(drive.wanted_watts >= 0.97 * TDP_WATTS, POWER_CAP, 0)
        reasons |= np.where(heat.software > 0, SOFTWARE_THERMAL, 0)
        reasons |= np.where(slowed, HARDWARE_THERMAL | HARDWARE_SLOWDOWN, 0)
        return {
            # NVML reports whole degrees; the margin keeps a temperature that is held at a limit from flickering.
            Signal.GPU_TEMPERATURE: np.floor(heat.temperature + 1e-6),
            Signal.MEMORY_TEMPERATURE: np.floor(heat.memory_temperature + 1e-6),
            Signal.POWER: np.round(heat.power, 3),
            Signal.SM_CLOCK: np.floor(clock / CLOCK_STEP_HERTZ) * CLOCK_STEP_HERTZ,
            Signal.GPU_UTILIZATION: np.where(busy, np.round(0.96 + 0.04 * np.sqrt(pace), 2), 0.0),
            Signal.CLOCK_EVENT_REASONS: reasons.astype(np.float64),
            **{signal: np.full(heat.power.shape, limit) for signal, limit in LIMITS.items()},
        }

    def _counters(self, drive: Drive, heat: Heat, meters: _Meters) -> dict[Signal, Array]:
        step = self.scenario.step_s
        reboot, reset = drive.restarts == REBOOT, drive.restarts >= GPU_RESET
        never = np.zeros_like(reboot)
        driver = {  # these begin again with the driver
            Signal.ENERGY: heat.power * step,
            Signal.THERMAL_THROTTLE: np.maximum(heat.software, heat.hardware) * step,
            Signal.SOFTWARE_THERMAL_THROTTLE: heat.software * step,
            Signal.HARDWARE_THERMAL_THROTTLE: heat.hardware * step,
            Signal.POWER_BRAKE_THROTTLE: np.zeros(heat.power.shape),
        }
        lifetime = {  # these live in the InfoROM
            Signal.SBE_AGGREGATE: drive.counts[Signal.SBE_VOLATILE],
            Signal.DBE_AGGREGATE: drive.counts[Signal.DBE_VOLATILE],
        }
        values = {s: meters.count(s, np.where(drive.alive, a, 0.0), reboot) for s, a in driver.items()}
        values |= {s: meters.count(s, np.where(drive.alive, a, 0.0), never) for s, a in lifetime.items()}
        for signal in COUNTED:
            volatile = signal in (Signal.SBE_VOLATILE, Signal.DBE_VOLATILE)
            restarts = reset if volatile else reboot if signal is Signal.PCIE_REPLAYS else never
            values[signal] = meters.count(signal, np.where(drive.alive, drive.counts[signal], 0.0), restarts)
        xid = np.where(drive.alive | (drive.xid == CLEAR), drive.xid, 0)
        values[Signal.XID] = meters.state(Signal.XID, xid)
        values[Signal.REMAP_PENDING] = meters.state(Signal.REMAP_PENDING, drive.pending)
        values[Signal.REMAP_FAILURE] = meters.state(Signal.REMAP_FAILURE, drive.failed)
        return values

    def _places(self, drive: Drive, flow_noise: Array) -> dict[Signal, PlaceSeries]:
        inlet = np.round(drive.inlet_celsius, 1).astype(np.float32)
        places = {Signal.INLET: PlaceSeries("node", self.layout.nodes, inlet)}
        if self.scenario.fleet.cooling == "liquid":
            gpus = np.bincount(self.layout.loop_of)[:, None]
            rated = gpus * self.scenario.environment.rated_flow_liters_per_minute_per_gpu
            rated = np.broadcast_to(rated, drive.flow_ratio.shape)
            for signal, values, digits in (
                (Signal.COOLANT_SUPPLY, drive.supply_celsius, 2),
                (Signal.COOLANT_FLOW, rated * np.maximum(drive.flow_ratio + flow_noise, 0.0), 2),
                (Signal.RATED_COOLANT_FLOW, rated, 2),
            ):
                rounded = np.round(values, digits).astype(np.float32)
                places[signal] = PlaceSeries("cooling_loop", self.layout.loops, rounded)
        return places


def _bodies(scenario: Scenario, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Each GPU's resistance to die and to memory [gpu] in kelvin per watt, and its daily wander [gpu, day], a ratio."""
    spec, gpus = scenario.thermal, scenario.fleet.gpus
    spread, noise = rng.spawn(2)
    apart = np.clip(spread.standard_normal((2, gpus)), -2.0, 2.0) * spec.spread_ratio
    wander = Wander(noise, gpus, spec.daily_noise_persistence, spec.daily_noise_ratio)
    daily = np.exp(wander.draw(int(np.ceil(scenario.days)) + 1))
    return (
        spec.resistance_kelvin_per_watt * np.exp(apart[0]),
        spec.memory_resistance_kelvin_per_watt * np.exp(apart.mean(axis=0)),
        daily,
    )
