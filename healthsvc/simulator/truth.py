"""What really happened to each GPU, gathered from the samples: throttle doses by the hour, memory events, losses."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import Signal
from healthsvc.fleet.xids import DEVICE_LOSS_XIDS, MEMORY_XIDS
from healthsvc.simulator.fleet import Chunk
from healthsvc.simulator.series import Array

HOUR_S = 3600.0
CARRIED = (
    Signal.SOFTWARE_THERMAL_THROTTLE,
    Signal.HARDWARE_THERMAL_THROTTLE,
    Signal.THERMAL_THROTTLE,
    Signal.DBE_AGGREGATE,
    Signal.XID,
    Signal.REMAP_FAILURE,
    Signal.REMAP_PENDING,
)


@dataclass(frozen=True)
class Happening:
    """Something that happened to one GPU at one moment; grade is T1 or T2, or empty for what only ends another."""

    row: int
    at_s: float
    grade: str = ""
    note: str = ""


@dataclass
class Truth:
    """Filled chunk by chunk with `watch`. dose and hardware_dose [gpu, hour]: share of each clock hour that was spent
    throttling; onset_s [gpu, hour]: the hour's first throttled sample, inf if none. Blind to hours without samples.

    node_of [gpu]: a GPU is lost only while its node answers. The hours reach to `last_s`, beyond the telemetry's end.
    """

    node_of: NDArray[np.intp]
    start_s: float
    end_s: float
    step_s: float
    last_s: float
    dose: Array = field(init=False)
    hardware_dose: Array = field(init=False)
    onset_s: Array = field(init=False)
    memory: list[Happening] = field(default_factory=list)
    resets: list[Happening] = field(default_factory=list)
    warnings: list[Happening] = field(default_factory=list)  # XIDs of the device_loss class
    losses: list[Happening] = field(default_factory=list)
    returns: list[Happening] = field(default_factory=list)
    _last: dict[Signal, Array] = field(default_factory=dict)
    _alive: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        shape = len(self.node_of), int(self.hour(np.array([self.last_s]))[0]) + 1
        self.dose, self.hardware_dose = np.zeros(shape), np.zeros(shape)
        self.onset_s = np.full(shape, np.inf)

    def hour(self, times_s: Array) -> NDArray[np.intp]:
        """The run's hour that each sample's interval (t - step, t] lies in: a full hour belongs to the one before."""
        first = np.floor(self.start_s / HOUR_S)
        hours: NDArray[np.intp] = np.maximum(np.ceil(times_s / HOUR_S) - 1 - first, 0.0).astype(np.intp)
        return hours

    def watch(self, chunk: Chunk) -> None:
        """Takes in the next chunk; chunks come in order."""
        rise = {signal: self._rise(signal, chunk) for signal in CARRIED}
        software, hardware = rise[Signal.SOFTWARE_THERMAL_THROTTLE], rise[Signal.HARDWARE_THERMAL_THROTTLE]
        self.add_throttling(chunk.times_s, np.maximum(rise[Signal.THERMAL_THROTTLE], software), hardware)
        code = np.where(np.isnan(chunk.values[Signal.XID]), 0, chunk.values[Signal.XID]).astype(np.int64)
        for row, column in zip(*np.nonzero(rise[Signal.XID]), strict=True):
            self.add_xid(int(row), float(chunk.times_s[column]), int(code[row, column]))
        for signal, happened, found in (
            (Signal.DBE_AGGREGATE, self.memory, ("T2", "uncorrectable error")),
            (Signal.REMAP_FAILURE, self.memory, ("T1", "row remap failed")),
        ):
            for row, column in zip(*np.nonzero(rise[signal] > 0), strict=True):
                happened.append(Happening(int(row), float(chunk.times_s[column]), *found))
        for row, column in zip(*np.nonzero(rise[Signal.REMAP_PENDING] < 0), strict=True):
            self.resets.append(Happening(int(row), float(chunk.times_s[column])))
        self.add_presence(chunk.times_s, ~np.isnan(chunk.values[Signal.GPU_TEMPERATURE]))

    def _rise(self, signal: Signal, chunk: Chunk) -> Array:
        """Change against the sample before [gpu, time]; 0 where either is missing. A counter that falls began anew."""
        values = chunk.values[signal]
        before = self._last.get(signal, values[:, 0])
        self._last[signal] = values[:, -1]
        rise = np.diff(values, axis=1, prepend=before[:, None])
        if signal.kind == "counter":
            rise = np.where(rise < 0, values, rise)
        return np.where(np.isnan(rise), 0.0, rise)

    def add_xid(self, row: int, at_s: float, xid: int) -> None:
        """An XID; those of applications and precursors are nothing that happened."""
        if MEMORY_XIDS.get(xid, "P") != "P":
            self.memory.append(Happening(row, at_s, MEMORY_XIDS[xid], f"XID {xid}"))
        elif xid in DEVICE_LOSS_XIDS:
            self.warnings.append(Happening(row, at_s, "T2", f"XID {xid}"))

    def add_throttling(self, times_s: Array, thermal_s: Array, hardware_s: Array) -> None:
        """Seconds of each step that were throttled by heat, and by hardware [gpu, time]."""
        hour = self.hour(times_s)
        first = np.flatnonzero(np.diff(hour, prepend=-1))
        hours = hour[first]
        self.dose[:, hours] += np.add.reduceat(thermal_s, first, axis=1) / HOUR_S
        self.hardware_dose[:, hours] += np.add.reduceat(hardware_s, first, axis=1) / HOUR_S
        moments = np.where(thermal_s > 0, times_s, np.inf)
        onsets = np.minimum.reduceat(moments, first, axis=1)
        self.onset_s[:, hours] = np.minimum(self.onset_s[:, hours], onsets)

    def add_presence(self, times_s: Array, alive: NDArray[np.bool_]) -> None:
        """Which GPUs answered, bool[gpu, time]. A GPU that goes with its whole node is not lost."""
        before = alive[:, 0] if self._alive is None else self._alive
        change = np.diff(alive.astype(np.int8), axis=1, prepend=before[:, None].astype(np.int8))
        for row, column in zip(*np.nonzero(change), strict=True):
            siblings = self.node_of == self.node_of[row]
            if change[row, column] > 0:
                self.returns.append(Happening(int(row), float(times_s[column])))
            elif alive[siblings, column].any():
                self.losses.append(Happening(int(row), float(times_s[column])))
        self._alive = alive[:, -1]
