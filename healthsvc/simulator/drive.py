"""What a chunk of time does to the fleet, before physics answers: the one thing that faults may change."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, Signal
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.series import Array
from healthsvc.simulator.workload import TDP_WATTS

Rows = NDArray[np.intp]

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
    REBOOT where one ends. branch_flow_ratio [node, time] is the share of a node's own flow or airflow; limit_watts and
    brake_ratio [gpu, time] the power limit and the share of each step under the hardware power brake; idle: whether the
    GPU does nothing whatever is asked of it; dark bool[node, time]: whether the node's own sensors are silent.
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
    branch_flow_ratio: Array = field(init=False)
    limit_watts: Array = field(init=False)
    brake_ratio: Array = field(init=False)
    idle: NDArray[np.bool_] = field(init=False)
    dark: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        shape = self.wanted_watts.shape
        self.resistance_ratio, self.memory_resistance_ratio = np.ones(shape), np.ones(shape)
        self.alive = np.ones(shape, bool)
        self.counts = {signal: np.zeros(shape) for signal in COUNTED}
        self.xid, self.pending, self.failed, self.restarts = (np.zeros(shape, np.int32) for _ in range(4))
        self.branch_flow_ratio = np.ones(self.inlet_celsius.shape)
        self.limit_watts, self.brake_ratio = np.full(shape, TDP_WATTS), np.zeros(shape)
        self.idle, self.dark = np.zeros(shape, bool), np.zeros(self.inlet_celsius.shape, bool)

    def columns(self, days: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """For each of `days` the sample that first shows what happens then, and whether it lies in this chunk."""
        columns = np.searchsorted(self.days, days - 1e-9)
        inside = (columns < len(self.days)) & (days > self.days[0] - self.step_s / DAY_S + 1e-9)
        return columns, inside

    def column(self, day: float) -> int | None:
        """The sample that first shows what happens at `day`; None if it lies in another chunk."""
        columns, inside = self.columns(np.array([day]))
        return int(columns[0]) if inside[0] else None

    def count(self, rows: Rows, days: Array, signal: Signal) -> None:
        """One event at each of `days`, on every one of `rows`."""
        columns, inside = self.columns(days)
        struck, times = np.unique(columns[inside], return_counts=True)
        self.counts[signal][np.ix_(rows, struck)] += times

    def mark(self, state: NDArray[np.int32], rows: Rows, day: float) -> None:
        """Raises `state` (pending or failed) at `day`."""
        column = self.column(day)
        if column is not None:
            state[rows, column] = 1

    def announce(self, rows: Rows, day: float, codes: Iterable[int]) -> None:
        """XIDs, one sample after the other: the exporter's gauge holds only the last, so a burst hides all but one."""
        for i, code in enumerate(codes):
            column = self.column(day + i * self.step_s / DAY_S)
            if column is not None:
                self.xid[rows, column] = code

    def restart(self, rows: Rows, day: float, how: int) -> None:
        """A reset or reboot: volatile counts begin again and a pending remap becomes active."""
        column = self.column(day)
        if column is None:
            return
        self.restarts[rows, column] = how
        self.pending[rows, column] = CLEAR
        if how == REBOOT:
            self.xid[rows, column] = CLEAR
