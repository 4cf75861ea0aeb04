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
    """

    gpus: int
    start_s: float
    end_s: float
    step_s: float
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
        hours = int(self.hour(np.array([self.end_s]))[0]) + 1
        self.dose, self.hardware_dose = np.zeros((self.gpus, hours)), np.zeros((self.gpus, hours))
        self.onset_s = np.full((self.gpus, hours), np.inf)

    def hour(self, times_s: Array) -> NDArray[np.intp]:
        """The run's hour that each sample's interval (t - step, t] lies in: a full hour belongs to the one before."""
        first = np.floor(self.start_s / HOUR_S)
        hours: NDArray[np.intp] = np.maximum(np.ceil(times_s / HOUR_S) - 1 - first, 0.0).astype(np.intp)
        return hours

    def watch(self, chunk: Chunk) -> None:
        """Takes in the next chunk; chunks come in order."""
        rise = {signal: self._rise(signal, chunk) for signal in CARRIED}
        self._throttling(chunk, rise)
        code = np.where(np.isnan(chunk.values[Signal.XID]), 0, chunk.values[Signal.XID]).astype(np.int64)
        for row, column in zip(*np.nonzero(rise[Signal.XID]), strict=True):
            at_s, xid = float(chunk.times_s[column]), int(code[row, column])
            if MEMORY_XIDS.get(xid, "P") != "P":
                self.memory.append(Happening(int(row), at_s, MEMORY_XIDS[xid], f"XID {xid}"))
            elif xid in DEVICE_LOSS_XIDS:
                self.warnings.append(Happening(int(row), at_s, "T2", f"XID {xid}"))
        for signal, happened, found in (
            (Signal.DBE_AGGREGATE, self.memory, ("T2", "uncorrectable error")),
            (Signal.REMAP_FAILURE, self.memory, ("T1", "row remap failed")),
        ):
            for row, column in zip(*np.nonzero(rise[signal] > 0), strict=True):
                happened.append(Happening(int(row), float(chunk.times_s[column]), *found))
        for row, column in zip(*np.nonzero(rise[Signal.REMAP_PENDING] < 0), strict=True):
            self.resets.append(Happening(int(row), float(chunk.times_s[column])))
        self._presence(chunk)

    def _rise(self, signal: Signal, chunk: Chunk) -> Array:
        """Change against the sample before [gpu, time]; 0 where either is missing. A counter that falls began anew."""
        values = chunk.values[signal]
        before = self._last.get(signal, values[:, 0])
        self._last[signal] = values[:, -1]
        rise = np.diff(values, axis=1, prepend=before[:, None])
        if signal.kind == "counter":
            rise = np.where(rise < 0, values, rise)
        return np.where(np.isnan(rise), 0.0, rise)

    def _throttling(self, chunk: Chunk, rise: dict[Signal, Array]) -> None:
        hour = self.hour(chunk.times_s)
        first = np.flatnonzero(np.diff(hour, prepend=-1))
        hours = hour[first]
        thermal = np.maximum(rise[Signal.THERMAL_THROTTLE], rise[Signal.SOFTWARE_THERMAL_THROTTLE])
        self.dose[:, hours] += np.add.reduceat(thermal, first, axis=1) / HOUR_S
        hardware = rise[Signal.HARDWARE_THERMAL_THROTTLE]
        self.hardware_dose[:, hours] += np.add.reduceat(hardware, first, axis=1) / HOUR_S
        moments = np.where(thermal > 0, chunk.times_s, np.inf)
        onsets = np.minimum.reduceat(moments, first, axis=1)
        self.onset_s[:, hours] = np.minimum(self.onset_s[:, hours], onsets)

    def _presence(self, chunk: Chunk) -> None:
        alive = ~np.isnan(chunk.values[Signal.GPU_TEMPERATURE])
        before = alive[:, 0] if self._alive is None else self._alive
        change = np.diff(alive.astype(np.int8), axis=1, prepend=before[:, None].astype(np.int8))
        for row, column in zip(*np.nonzero(change), strict=True):
            happened = self.losses if change[row, column] < 0 else self.returns
            happened.append(Happening(int(row), float(chunk.times_s[column])))
        self._alive = alive[:, -1]
