"""Everything that can go wrong. One kind = one function that writes into the drive, and one row in KINDS."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import model_validator

from healthsvc.simulator import heat_faults as heat
from healthsvc.simulator import memory_faults as memory
from healthsvc.simulator import presence_faults as presence
from healthsvc.simulator.course import Course
from healthsvc.simulator.drive import Drive, Rows
from healthsvc.simulator.layout import Layout

Inject = Callable[[Drive, Course, Rows, np.random.Generator], None]
FLEET = "fleet"
BRAKED_NODES = 3  # a power brake on fewer is no incident of the feed


@dataclass(frozen=True)
class Kind:
    """A kind of fault: what it does, what it hits, its parameters, and the class of failure it leads to.

    inject is called for every chunk with the same random stream, so whatever it draws it draws alike each time; it
    draws the whole schedule and writes the part that lies in this chunk. targets: layers, the usual one first.
    failure_class: thermal, memory, device_loss, throttling; none for a decoy, maintenance for an operator's doing.
    may_cause: further classes, when it comes on top of something else.
    """

    inject: Inject
    targets: tuple[str, ...]
    failure_class: str
    severity: Mapping[str, float] = field(default_factory=dict)
    may_cause: tuple[str, ...] = ()

    @property
    def hurts_a_gpu(self) -> bool:
        """Whether it makes one GPU sick, rather than a place or nobody."""
        return self.targets == ("gpu",) and self.failure_class != "none"


GPU, NODE, LOOP, FEED = ("gpu",), ("node",), ("cooling_loop",), ("power_feed",)
HEAT = ("thermal", "throttling")
WEAR = {
    "days_to_failure": 14.0,
    "remaps": 10.0,
    "acceleration": 1.5,
    "correctable_per_day": 3.0,
    "reset_after_hours": 6.0,
}
OFF_BUS = {"precursor_hours": 0.0, "gaps": 8.0, "replays": 200.0, "again_after_days": 0.0}
KINDS: dict[str, Kind] = {
    "tim_drift": Kind(heat.tim_drift, GPU, "thermal", {"growth_percent_per_day": 1.0}, ("throttling",)),
    "loop_flow_loss": Kind(
        heat.loop_flow_loss, LOOP, "throttling", {"ramp_minutes": 20.0, "remaining_ratio": 0.25}, ("thermal",)
    ),
    "node_fan_fault": Kind(
        heat.node_fan_fault, NODE, "throttling", {"ramp_hours": 0.0, "remaining_ratio": 0.4}, ("thermal",)
    ),
    "power_brake": Kind(heat.power_brake, FEED, "throttling", {"braked_share_ratio": 0.8}),
    "hbm_wear": Kind(memory.hbm_wear, GPU, "memory", WEAR),
    "sudden_dbe": Kind(memory.sudden_dbe, GPU, "memory"),
    "recurrent_dbe": Kind(memory.recurrent_dbe, GPU, "memory", {"base_per_year": 0.048, "reset_after_hours": 6.0}),
    "off_bus": Kind(presence.off_bus, GPU, "device_loss", OFF_BUS),
    "gsp_hang": Kind(presence.gsp_hang, GPU, "device_loss"),
    "constant_hot": Kind(heat.constant_hot, GPU, "none", {"excess_percent": 12.0}, HEAT),
    "workload_step": Kind(heat.workload_step, NODE, "none", {"step_percent": 30.0}, HEAT),
    "heat_wave": Kind(heat.heat_wave, (FLEET,), "none", {"rise_celsius": 8.0, "ramp_hours": 12.0}, HEAT),
    "power_cap_change": Kind(heat.power_cap_change, ("node", FLEET), "none", {"limit_watts": 500.0}),
    "sbe_burst": Kind(memory.sbe_burst, GPU, "none", {"errors": 5000.0, "hours": 2.0}),
    "app_xids": Kind(presence.app_xids, NODE, "none", {"xids_per_hour": 6.0, "hours": 3.0}),
    "maintenance": Kind(presence.maintenance, NODE, "maintenance", {"drain_hours": 0.5}),
    "decommission": Kind(presence.decommission, NODE, "none"),
}


class Fault(Course):
    """One fault of a scenario. Keys beyond the named ones are the kind's own parameters, kept in `severity`."""

    @model_validator(mode="before")
    @classmethod
    def _gather_severity(cls, table: Any) -> Any:
        if not isinstance(table, dict):
            raise ValueError(f"{table!r}: write a table, [[fault]] and its keys below")
        kind = known_kind(table.get("kind"))
        own = {name: table[name] for name in table if name not in cls.model_fields}
        for name, value in own.items():
            known_parameter(kind, name, value)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} = {value!r}: give a number")
        named = {name: value for name, value in table.items() if name in cls.model_fields}
        return {**named, "severity": {**KINDS[kind].severity, **own}}

    @model_validator(mode="after")
    def _ends_after_start(self) -> "Fault":
        if self.end_day is not None and self.end_day <= self.start_day:
            raise ValueError(f"end_day = {self.end_day:g}: must be after start_day = {self.start_day:g}")
        return self

    @property
    def spec(self) -> Kind:
        """What this kind of fault is."""
        return KINDS[self.kind]

    @property
    def layer(self) -> str:
        """The layer that the target belongs to."""
        return FLEET if self.target == FLEET else self.spec.targets[0]

    def rows(self, layout: Layout) -> Rows:
        """The GPUs that the target names. Raises ValueError when it names none that this kind can hit."""
        where = self.spec.targets[0]
        if self.target == FLEET and FLEET in self.spec.targets:
            return np.arange(layout.spec.gpus)
        if where == "gpu":
            if not isinstance(self.target, int) or not 0 <= self.target < layout.spec.gpus:
                cure = f"{self.kind} hits one GPU; give its row, 0 to {layout.spec.gpus - 1}"
                raise ValueError(f"target = {self.target!r}: {cure}")
            return np.array([self.target])
        names, group = layout.places(where) if where != FLEET else ((FLEET,), np.zeros(layout.spec.gpus, np.intp))
        if self.target not in names:
            raise ValueError(f"target = {self.target!r}: {self.kind} hits a {where}; give one of {', '.join(names)}")
        found = np.flatnonzero(group == names.index(str(self.target)))
        if where == "power_feed" and len(np.unique(layout.node_of[found])) < BRAKED_NODES:
            raise ValueError(f"target = {self.target!r}: has fewer than {BRAKED_NODES} nodes; raise racks_per_feed")
        return found


def known_kind(kind: Any) -> str:
    """`kind` itself. Raises ValueError if there is no such fault."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind = {kind!r}: no such fault; choose one of {', '.join(KINDS)}")
    return kind


def known_parameter(kind: str, name: str, value: Any) -> None:
    """Raises ValueError if the kind has no such parameter."""
    known = KINDS[kind].severity
    if name not in known:
        raise ValueError(f"{name} = {value!r}: {kind} has no such key; it takes {', '.join(known) or 'none'}")
