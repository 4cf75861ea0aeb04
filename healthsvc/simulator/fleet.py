"""The fleet, simulated day by day: its work and weather, the faults that strike it, and how its boards answer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from healthsvc.fleet import DAY_S, GpuId, PlaceSeries, Signal
from healthsvc.simulator.drive import Drive
from healthsvc.simulator.environment import Environment
from healthsvc.simulator.errors import Errors
from healthsvc.simulator.exporter import Exporter
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.population import draw_faults
from healthsvc.simulator.scenario import Scenario
from healthsvc.simulator.series import Array, Wander
from healthsvc.simulator.thermal import Boards
from healthsvc.simulator.workload import IDLE_WATTS, Workload

BRAKED_SHARE = 0.5  # of the power above idle, while the hardware brake is pulled


@dataclass(frozen=True)
class Chunk:
    """One UTC day of samples. values float64[gpu, time], counters cumulative, NaN while a GPU is lost."""

    times_s: Array
    values: Mapping[Signal, Array]
    environment: Mapping[Signal, PlaceSeries]


class FleetSimulator:
    """A run: `gpus` say who they are, `chunks` what they showed. Same scenario, seed and start: same samples.

    `scenario` is the given one with its populations drawn: all faults of the run stand in `scenario.fault`. Raises
    ScenarioError if a population finds too few targets.
    """

    def __init__(self, scenario: Scenario, rng: np.random.Generator, start_s: float) -> None:
        identity, bodies, work, weather, mishaps, faults, populations = rng.spawn(7)
        self.layout = Layout(scenario.fleet)
        drawn = draw_faults(scenario.fault, scenario.population, self.layout, populations)
        self.scenario = scenario.model_copy(update={"fault": drawn, "population": ()})
        step = scenario.step_s
        self.start_s = float(np.floor(start_s / step) * step)
        self.times_s = self.start_s + step * np.arange(round(scenario.days * DAY_S / step), dtype=np.float64)
        self.gpus: tuple[GpuId, ...] = self.layout.gpus(identity)
        self._resistance, self._memory_resistance, self._daily = _bodies(scenario, bodies)
        self._workload = Workload(scenario.workload, self.layout, scenario.days * DAY_S, step, work)
        self._environment = Environment(scenario.environment, self.layout, step, weather)
        self._errors = Errors(scenario.errors, scenario.fleet.gpus, step, mishaps)
        # One stream a fault: taking one fault away leaves the others, and every healthy GPU, as they were.
        self._fault_seeds = [int(s.integers(2**62)) for s in faults.spawn(len(self.scenario.fault))]

    def chunks(self, progress: Callable[[float], None] | None = None) -> Iterator[Chunk]:
        """One chunk a UTC day, oldest first; `progress` hears the share that is done (0-1). To be run through once."""
        boards = Boards(self.scenario.thermal, self.scenario.step_s)
        exporter = Exporter(self.scenario, {Signal.SBE_AGGREGATE: self._errors.correctable_before})
        days = np.floor(self.times_s / DAY_S)
        for start in np.flatnonzero(np.diff(days, prepend=-1.0)):
            times_s = self.times_s[start:][days[start:] == days[start]]
            yield self._chunk(times_s, boards, exporter)
            if progress:
                progress((start + len(times_s)) / len(self.times_s))

    def _chunk(self, times_s: Array, boards: Boards, exporter: Exporter) -> Chunk:
        wanted, busy, intensity = self._workload.draw(times_s - self.start_s)
        inlet, supply, flow_noise = self._environment.draw(times_s)
        drive = self._drive(times_s, wanted, inlet, supply)
        self._errors.strike(drive)
        self._inject(drive)
        daily = self._daily[:, np.floor(drive.days).astype(np.intp)]
        resistance, memory = self.resistances(drive, daily, intensity)
        heat = boards.run(self.coolant(drive), held_watts(drive), resistance, memory)
        values = exporter.show(drive, heat, busy & ~drive.idle)
        return Chunk(times_s, values, exporter.places(drive, flow_noise))

    def quiet_drive(self, times_s: Array, wanted_watts: Array) -> Drive:
        """The drive of any moments, also after the run: all faults, the daily swing, and no noise or mishaps."""
        inlet, supply = self._environment.expected(times_s)
        drive = self._drive(times_s, wanted_watts, inlet, supply)
        self._inject(drive)
        return drive

    def resistances(self, drive: Drive, daily: Array | float, intensity: Array | float) -> tuple[Array, Array]:
        """From coolant or air to die and to memory, kelvin per watt of board power [gpu, time]."""
        # Turbulent convection: its resistance goes with flow to the -0.8 (Dittus-Boelter).
        share, layout = self.scenario.thermal.convection_share_ratio, self.layout
        flow = drive.flow_ratio[layout.loop_of] * drive.branch_flow_ratio[layout.node_of]
        cooling = (1 - share) + share * np.maximum(flow, 1e-3) ** -0.8
        resistance = self._resistance[:, None] * daily * cooling * drive.resistance_ratio
        memory = self._memory_resistance[:, None] * intensity * daily * cooling * drive.memory_resistance_ratio
        return resistance, memory

    def coolant(self, drive: Drive) -> Array:
        """What each GPU's heat goes into, celsius [gpu, time]."""
        if self.scenario.fleet.cooling == "liquid":
            return drive.supply_celsius[self.layout.loop_of]
        return drive.inlet_celsius[self.layout.node_of]

    def _drive(self, times_s: Array, wanted: Array, inlet: Array, supply: Array) -> Drive:
        days = (times_s - self.start_s) / DAY_S
        return Drive(self.layout, days, self.scenario.step_s, wanted, inlet, supply, np.ones_like(supply))

    def _inject(self, drive: Drive) -> None:
        for fault, seed in zip(self.scenario.fault, self._fault_seeds, strict=True):
            fault.spec.inject(drive, fault, fault.rows(self.layout), np.random.default_rng(seed))
        drive.wanted_watts[~drive.alive | drive.idle] = IDLE_WATTS


def held_watts(drive: Drive) -> Array:
    """What the GPUs may draw before heat has its say: what is wanted, within the limit and under the brake."""
    within = np.minimum(drive.wanted_watts, drive.limit_watts)
    above_idle = np.maximum(within - IDLE_WATTS, 0.0)
    return np.asarray(within - above_idle * (1.0 - BRAKED_SHARE) * drive.brake_ratio, np.float64)


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
