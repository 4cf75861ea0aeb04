"""What a chunk of time does to the fleet, before physics answers: the one thing that faults may change."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, Signal
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.series import Array

COUNTED = (
    Signal.SBE_VOLATILE,  # the aggregate counts the same errors
    Signal.DBE_VOLATILE,
    Signal.CORRECTABLE_REMAPS,
    Signal.UNCORRECTABLE_REMAPS,
    Signal.PCIE_REPLAYS,
)
CLEAR = -1  # a mark that puts a state back to zero
GPU_RESET, REBOOT = 1, 2


@dataclass
class Drive:
    """Inputs of one chunk. Faults write into the arrays; nothing else about a fault reaches the physics.

    days [time]: days since the run began. resistance_ratio and memory_resistance_ratio [gpu, time] multiply thermal
    resistance; flow_ratio [loop, time] is the share of rated flow; inlet_celsius [node, time]; supply_celsius [loop,
    time]; wanted_watts [gpu, time]; alive bool[gpu, time]: whether the GPU answers. counts: events per step. xid,
    pending and failed are marks: 0 = no change, CLEAR = back to zero, else the new value. restarts: GPU_RESET or
    REBOOT where one ends.
    """

    layout: Layout
    days: Array
    step_s: float
    wanted_watts: Array
    inlet_celsius: Array
    supply_celsius: Array
    flow_ratio: Array
    resistance_ratio: Array = field(init=False)
    memory_resistance_ratio: Array = field(init=False)
    alive: NDArray[np.bool_] = field(init=False)
    counts: dict[Signal, Array] = field(init=False)
    xid: NDArray[np.int32] = field(init=False)
    pending: NDArray[np.int32] = field(init=False)
    failed: NDArray[np.int32] = field(init=False)
    restarts: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        shape = self.wanted_watts.shape
        self.resistance_ratio, self.memory_resistance_ratio = np.ones(shape), np.ones(shape)
        self.alive = np.ones(shape, bool)
        self.counts = {signal: np.zeros(shape) for signal in COUNTED}
        self.xid, self.pending, self.failed, self.restarts = (np.zeros(shape, np.int32) for _ in range(4))

    def column(self, day: float) -> int | None:
        """The sample that first shows what happens at `day`; None if it lies in another chunk."""
        step = self.step_s / DAY_S
        column = int(np.searchsorted(self.days, day - 1e-9))
        inside = column < len(self.days) and day > self.days[0] - step + 1e-9
        return column if inside else None

    def announce(self, rows: NDArray[np.intp], day: float, codes: Iterable[int]) -> None:
        """XIDs, one sample after the other: the exporter's gauge holds only the last, so a burst hides all but one."""
        for i, code in enumerate(codes):
            column = self.column(day + i * self.step_s / DAY_S)
            if column is not None:
                self.xid[rows, column] = code

    def restart(self, rows: NDArray[np.intp], day: float, how: int) -> None:
        """A reset or reboot: volatile counts begin again and a pending remap becomes active."""
        column = self.column(day)
        if column is None:
            return
        self.restarts[rows, column] = how
        self.pending[rows, column] = CLEAR
        if how == REBOOT:
            self.xid[rows, column] = CLEAR
