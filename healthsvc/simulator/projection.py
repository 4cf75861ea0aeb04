"""What the faults would do in the 30 days after the telemetry, so that no forecast made near its end is left open.

Nothing is simulated step by step: each GPU is held at the 0.95 quantile of its power over the last 7 days, air and
coolant follow their daily swing, all faults go on as they were drawn, and each moment's heat is in equilibrium. Memory
errors, losses and hangs come as drawn. Blind to what a fault does to the workload, to daily noise and to hardware
slowdown (software throttling comes first, and holds until resistance has grown about 3.6-fold): jobs and daily noise
decide when a drift that is near its limit throttles first, so its day here may be days off.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, Signal
from healthsvc.simulator.drive import CLEAR, Drive
from healthsvc.simulator.fleet import Chunk, FleetSimulator, held_watts
from healthsvc.simulator.scenario import PROJECTED_DAYS
from healthsvc.simulator.series import Array
from healthsvc.simulator.thermal import MAX_OPERATING_CELSIUS, MEMORY_MAX_OPERATING_CELSIUS, STEADY_CUT
from healthsvc.simulator.truth import Happening, Truth
from healthsvc.simulator.workload import IDLE_WATTS

LOAD_DAYS, LOAD_QUANTILE = 7, 0.95


@dataclass
class Projection:
    """Listens to the last days of a run, then adds what is still to come to its truth."""

    simulator: FleetSimulator
    truth: Truth
    _power: deque[NDArray[np.float32]] = field(default_factory=lambda: deque(maxlen=LOAD_DAYS))

    def watch(self, chunk: Chunk) -> None:
        """Takes in the next chunk; chunks come in order."""
        self._power.append(chunk.values[Signal.POWER].astype(np.float32))

    def add(self) -> None:
        """Adds the days after the end; nothing if no fault is left to act in them."""
        # Of the last sample, not of the run: what ends between the two is still to be seen.
        last_day = (self.simulator.times_s[-1] - self.simulator.start_s) / DAY_S
        if all(fault.over_day <= last_day for fault in self.simulator.scenario.fault):
            return
        load = self._load_watts()
        for times_s in self._days():
            drive = self.simulator.quiet_drive(times_s, np.repeat(load[:, None], len(times_s), axis=1))
            np.minimum(drive.wanted_watts, load[:, None], out=drive.wanted_watts)  # harder work is in it already
            throttled_s = self._throttled_ratio(drive) * drive.step_s
            self.truth.add_throttling(times_s, throttled_s, np.zeros_like(throttled_s))
            self.truth.add_presence(times_s, drive.alive)
            self._add_events(times_s, drive)

    def _load_watts(self) -> Array:
        """Each GPU's power under load [gpu]; idle for one that showed none."""
        power = np.concatenate(self._power, axis=1)
        power[np.isnan(power).all(axis=1)] = IDLE_WATTS
        return np.asarray(np.nanquantile(power, LOAD_QUANTILE, axis=1), np.float64)

    def _days(self) -> Iterator[Array]:
        step = self.simulator.scenario.step_s
        a_day = round(DAY_S / step)
        first_s = self.simulator.times_s[-1] + step
        for day in range(round(PROJECTED_DAYS)):
            yield first_s + step * (day * a_day + np.arange(a_day, dtype=np.float64))

    def _throttled_ratio(self, drive: Drive) -> Array:
        """Share of each step that software throttling takes in equilibrium [gpu, time]; 0 for what is not there."""
        resistance, memory_resistance = self.simulator.resistances(drive, 1.0, 1.0)
        coolant, wanted = self.simulator.coolant(drive), held_watts(drive)
        ceiling = np.minimum(
            (MAX_OPERATING_CELSIUS - coolant) / resistance,
            (MEMORY_MAX_OPERATING_CELSIUS - coolant) / memory_resistance,
        )
        return np.where(drive.alive, np.clip((1.0 - ceiling / wanted) / STEADY_CUT, 0.0, 1.0), 0.0)

    def _add_events(self, times_s: Array, drive: Drive) -> None:
        truth = self.truth
        xid = np.where(drive.alive, drive.xid, 0)
        for row, column in zip(*np.nonzero(xid > 0), strict=True):
            truth.add_xid(int(row), float(times_s[column]), int(xid[row, column]))
        for marks, grade, found in (
            (drive.counts[Signal.DBE_VOLATILE] > 0, "T2", truth.memory),
            (drive.failed > 0, "T1", truth.memory),
            (drive.pending == CLEAR, "", truth.resets),
        ):
            for row, column in zip(*np.nonzero(marks), strict=True):
                found.append(Happening(int(row), float(times_s[column]), grade))
