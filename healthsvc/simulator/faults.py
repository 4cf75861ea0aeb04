"""Everything that can go wrong. One kind = one function that writes into the drive, and one row in KINDS.

A function is called for every chunk with the same random stream, so whatever it draws it draws alike each time; it
draws the whole schedule and writes the part that lies in this chunk.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictInt, StrictStr, model_validator

from healthsvc.fleet import DAY_S, Signal
from healthsvc.simulator.drive import GPU_RESET, REBOOT, Drive
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.series import Array
from healthsvc.simulator.spec import Spec
from healthsvc.simulator.workload import IDLE_WATTS, TDP_WATTS

Rows = NDArray[np.intp]
Inject = Callable[["Drive", "Fault", Rows, np.random.Generator], None]


class Fault(Spec):
    """One fault of a scenario. Keys beyond the named ones are the kind's own parameters, kept in `severity`."""

    kind: str
    target: StrictInt | StrictStr = Field(description="GPU row, node name or loop name, as the kind wants it")
    start_day: float = Field(ge=0, description="days after the start of the run")
    end_day: float | None = Field(None, description="repair; none: it lasts")
    severity: Mapping[str, float] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather_severity(cls, table: Any) -> Any:
        if not isinstance(table, dict):
            raise ValueError(f"{table!r}: write a table, [[fault]] and its keys below")
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"kind = {kind!r}: no such fault; choose one of {', '.join(KINDS)}")
        defaults = KINDS[kind].severity
        own = {name: table[name] for name in table if name not in cls.model_fields}
        for name, value in own.items():
            if name not in defaults:
                raise ValueError(
                    f"{name} = {value!r}: {kind} has no such key; it takes {', '.join(defaults) or 'none'}"
                )
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} = {value!r}: give a number")
        named = {name: value for name, value in table.items() if name in cls.model_fields}
        return {**named, "severity": {**defaults, **own}}

    @model_validator(mode="after")
    def _ends_after_start(self) -> "Fault":
        if self.end_day is not None and self.end_day <= self.start_day:
            raise ValueError(f"end_day = {self.end_day:g}: must be after start_day = {self.start_day:g}")
        return self

    def rows(self, layout: Layout) -> Rows:
        """The GPUs that the target names. Raises ValueError when it names none."""
        where = KINDS[self.kind].target
        if where == "gpu":
            if not isinstance(self.target, int) or not 0 <= self.target < layout.spec.gpus:
                cure = f"{self.kind} hits one GPU; give its row, 0 to {layout.spec.gpus - 1}"
                raise ValueError(f"target = {self.target!r}: {cure}")
            return np.array([self.target])
        names, group = (layout.nodes, layout.node_of) if where == "node" else (layout.loops, layout.loop_of)
        if self.target not in names:
            raise ValueError(f"target = {self.target!r}: {self.kind} hits a {where}; give one of {', '.join(names)}")
        return np.flatnonzero(group == names.index(str(self.target)))

    def active(self, days: Array) -> NDArray[np.bool_]:
        """Whether the fault is there, bool[time]."""
        return (days >= self.start_day) & (days < (np.inf if self.end_day is None else self.end_day))

    def age_days(self, days: Array) -> Array:
        """Days since the fault began [time]; 0 before it and after its repair."""
        return np.where(self.active(days), days - self.start_day, 0.0)


def tim_drift(drive: Drive, fault: Fault, rows: Rows, rng: np.random.Generator) -> None:
    """Thermal interface pumps out: the die's resistance grows by a share a day, compounding; memory is spared."""
    growth = 1.0 + fault.severity["growth_percent_per_day"] / 100.0
    drive.resistance_ratio[rows] *= growth ** fault.age_days(drive.days)


def constant_hot(drive: Drive, fault: Fault, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: hot since it was mounted and no worse since."""
    ratio = np.where(fault.active(drive.days), 1.0 + fault.severity["excess_percent"] / 100.0, 1.0)
    drive.resistance_ratio[rows] *= ratio
    drive.memory_resistance_ratio[rows] *= ratio


def workload_step(drive: Drive, fault: Fault, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: the users of a node begin to work harder, so it is warmer for a good reason."""
    ratio = np.where(fault.active(drive.days), 1.0 + fault.severity["step_percent"] / 100.0, 1.0)
    above_idle = np.maximum(drive.wanted_watts[rows] - IDLE_WATTS, 0.0)
    drive.wanted_watts[rows] = np.minimum(drive.wanted_watts[rows] + above_idle * (ratio - 1.0), TDP_WATTS)


def loop_flow_loss(drive: Drive, fault: Fault, rows: Rows, rng: np.random.Generator) -> None:
    """A pump fails: flow ramps down to what remains, and every GPU of the loop gets hotter; repair is at once."""
    ramp_days = max(fault.severity["ramp_minutes"] / 1440.0, 1e-9)
    fallen = np.clip(fault.age_days(drive.days) / ramp_days, 0.0, 1.0)
    loop = drive.layout.loop_of[rows[0]]
    drive.flow_ratio[loop] *= 1.0 - fallen * (1.0 - fault.severity["remaining_ratio"])


def hbm_wear(drive: Drive, fault: Fault, rows: Rows, rng: np.random.Generator) -> None:
    """Rows of the memory die faster and faster: each an uncorrectable error (48), a remap (63), a contained loss (94).

    A remap is pending until the operator resets the GPU. The last row finds no spare: remap failure, XID 64.
    Correctable errors rise only weakly (on HBM they hardly foretell the rest). At `end_day` the errors stop.
    """
    life, remaps = fault.severity["days_to_failure"], int(fault.severity["remaps"])
    due = (np.arange(1, remaps + 1) / remaps) ** (1.0 / fault.severity["acceleration"])
    gap = np.diff(due, prepend=0.0)
    due[:-1] += rng.uniform(-0.3, 0.3, remaps - 1) * np.minimum(gap[:-1], gap[1:])
    moments = fault.start_day + life * due
    correctable = rng.poisson(fault.severity["correctable_per_day"] * life)
    soft = fault.start_day + life * np.sqrt(rng.uniform(0.0, 1.0, correctable))
    last = np.inf if fault.end_day is None else fault.end_day
    for moment in soft[soft < last]:
        _count(drive, rows, moment, Signal.SBE_VOLATILE)
    for moment in moments[:-1][moments[:-1] < last]:
        _count(drive, rows, moment, Signal.DBE_VOLATILE)
        _count(drive, rows, moment, Signal.UNCORRECTABLE_REMAPS)
        drive.announce(rows, moment, (48, 63, 94))
        _mark(drive, drive.pending, rows, moment)
        drive.restart(rows, min(moment + fault.severity["reset_after_hours"] / 24.0, last), GPU_RESET)
    if moments[-1] < last:
        _count(drive, rows, moments[-1], Signal.DBE_VOLATILE)
        drive.announce(rows, moments[-1], (48, 64))
        _mark(drive, drive.failed, rows, moments[-1])


def sudden_dbe(drive: Drive, fault: Fault, rows: Rows, rng: np.random.Generator) -> None:
    """One uncorrectable error out of the blue (48), its row remapped (63), pending until a reset at `end_day`."""
    _count(drive, rows, fault.start_day, Signal.DBE_VOLATILE)
    _count(drive, rows, fault.start_day, Signal.UNCORRECTABLE_REMAPS)
    drive.announce(rows, fault.start_day, (48, 63))
    _mark(drive, drive.pending, rows, fault.start_day)
    if fault.end_day is not None:
        drive.restart(rows, fault.end_day, GPU_RESET)


def off_bus(drive: Drive, fault: Fault, rows: Rows, rng: np.random.Generator) -> None:
    """The GPU falls off the bus: XID 79 in one last sample, then silence until a reboot at `end_day`."""
    drive.announce(rows, fault.start_day, (79,))
    last_words = fault.start_day + drive.step_s / DAY_S
    drive.alive[rows] &= ~(fault.active(drive.days) & (drive.days >= last_words - 1e-9))
    if fault.end_day is not None:
        drive.restart(rows, fault.end_day, REBOOT)


def _count(drive: Drive, rows: Rows, day: float, signal: Signal) -> None:
    column = drive.column(day)
    if column is not None:
        drive.counts[signal][rows, column] += 1


def _mark(drive: Drive, state: NDArray[np.int32], rows: Rows, day: float) -> None:
    column = drive.column(day)
    if column is not None:
        state[rows, column] = 1


@dataclass(frozen=True)
class Kind:
    """A kind of fault: what it does, what it hits, its parameters, and the class of failure it leads to.

    failure_class: thermal, memory, device_loss, throttling, or none for a decoy.
    """

    inject: Inject
    target: Literal["gpu", "node", "cooling_loop"]
    failure_class: str
    severity: Mapping[str, float]


KINDS: dict[str, Kind] = {
    "tim_drift": Kind(tim_drift, "gpu", "thermal", {"growth_percent_per_day": 1.0}),
    "loop_flow_loss": Kind(
        loop_flow_loss, "cooling_loop", "throttling", {"ramp_minutes": 20.0, "remaining_ratio": 0.25}
    ),
    "hbm_wear": Kind(
        hbm_wear,
        "gpu",
        "memory",
        {
            "days_to_failure": 14.0,
            "remaps": 10.0,
            "acceleration": 1.5,
            "correctable_per_day": 3.0,
            "reset_after_hours": 6.0,
        },
    ),
    "sudden_dbe": Kind(sudden_dbe, "gpu", "memory", {}),
    "off_bus": Kind(off_bus, "gpu", "device_loss", {}),
    "constant_hot": Kind(constant_hot, "gpu", "none", {"excess_percent": 12.0}),
    "workload_step": Kind(workload_step, "node", "none", {"step_percent": 30.0}),
}
