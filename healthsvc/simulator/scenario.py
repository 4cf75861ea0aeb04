"""A scenario file: the fleet, its work and weather, and what goes wrong when."""

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from healthsvc.simulator.environment import EnvironmentSpec
from healthsvc.simulator.errors import ErrorSpec
from healthsvc.simulator.faults import Fault
from healthsvc.simulator.layout import FleetSpec, Layout
from healthsvc.simulator.noise import Profile, with_profile
from healthsvc.simulator.population import Population
from healthsvc.simulator.spec import ScenarioError, Spec
from healthsvc.simulator.thermal import ThermalSpec
from healthsvc.simulator.workload import WorkloadSpec

PROJECTED_DAYS = 30.0  # how far the labels reach beyond the telemetry


class Scenario(Spec):
    """All of a run but its seed. Days in `fault` count from the start of the run; up to 30 days after its end a fault
    shows in the labels only.
    """

    name: str = Field(min_length=1, description="kept in recording.json")
    days: float = Field(30.0, gt=0, le=1000, description="length of the run")
    step_s: int = Field(60, ge=10, le=900, description="seconds between samples; a divisor of a day")
    start: datetime | None = Field(None, description="RFC 3339 with its time zone; may also be given at the run")
    noise: Profile = Field("default", description="quiet, default or noisy: defaults for what is not set below")
    fleet: FleetSpec = FleetSpec()
    workload: WorkloadSpec = WorkloadSpec()
    environment: EnvironmentSpec = EnvironmentSpec()
    thermal: ThermalSpec = ThermalSpec()
    errors: ErrorSpec = ErrorSpec()
    fault: tuple[Fault, ...] = ()
    population: tuple[Population, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, table: Any) -> Any:
        return with_profile(table) if isinstance(table, dict) else table

    @field_validator("step_s")
    @classmethod
    def _divides_a_day(cls, step_s: int) -> int:
        if 86_400 % step_s:
            raise ValueError("a day must be a whole number of steps; 60 is usual")
        return step_s

    @field_validator("start")
    @classmethod
    def _knows_its_zone(cls, start: datetime | None) -> datetime | None:
        if start is not None and start.tzinfo is None:
            raise ValueError("say which time zone, e.g. 2026-01-05T00:00:00Z")
        return start

    @model_validator(mode="after")
    def _faults_fit(self) -> "Scenario":
        for i, fault in enumerate(self.fault):
            where = f"fault.{i}.{fault.kind}"
            try:
                fault.rows(self.layout)
            except ValueError as failure:
                raise ValueError(f"{where}.{failure}") from None
            self._in_time(f"{where}.start_day", fault.start_day)
        for i, population in enumerate(self.population):
            self._in_time(f"population.{i}.{population.kind}.start_day", population.start_day.high)
            where, targets = f"population.{i}.{population.kind}", population.targets(self.layout)
            if not targets:
                raise ValueError(f"{where}: no place of this fleet is large enough; raise fleet.racks_per_feed")
            try:
                Fault(kind=population.kind, target=targets[0], start_day=0.0).rows(self.layout)
            except ValueError as failure:
                raise ValueError(f"{where}.{failure}") from None
        kinds = {fault.kind for fault in self.fault} | {population.kind for population in self.population}
        if "loop_flow_loss" in kinds and self.fleet.cooling == "air":
            raise ValueError('loop_flow_loss: air-cooled GPUs have no loop; set fleet.cooling = "liquid"')
        return self

    def _in_time(self, where: str, day: float) -> None:
        last = self.days + PROJECTED_DAYS
        if day > last:
            raise ValueError(f"{where} = {day:g}: the run ends at day {self.days:g}, its labels at {last:g}; earlier")

    @property
    def healthy_ratio(self) -> float:
        """Share of GPUs that no fault of their own makes sick; decoys and what befalls a whole place do not count."""
        sick = {fault.target for fault in self.fault if fault.spec.hurts_a_gpu}
        return 1.0 - len(sick) / self.fleet.gpus

    @property
    def layout(self) -> Layout:
        return Layout(self.fleet)

    def with_fleet(self, gpus: int | None = None, days: float | None = None) -> "Scenario":
        """The same scenario for another number of GPUs or days. Raises ScenarioError if its faults no longer fit."""
        table = self.model_dump()
        table["fault"] = [_flat(fault) for fault in self.fault]
        table["population"] = [_flat(population) for population in self.population]
        if gpus is not None:
            table["fleet"]["gpus"] = gpus
        if days is not None:
            table["days"] = days
        return parse_scenario(table, self.name)


def load_scenario(path: Path) -> Scenario:
    """The scenario in a TOML file. Raises ScenarioError, one line for everything that is wrong."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as failure:
        raise ScenarioError(f"{path}: {failure.strerror}; give the path of a scenario file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise ScenarioError(f"{path}: not a TOML file: {failure}") from None
    return parse_scenario({"name": path.stem, **table}, str(path))


def parse_scenario(table: dict[str, Any], where: str) -> Scenario:
    """The scenario in a table of plain values; `where` begins each line of an error."""
    try:
        return Scenario.model_validate(table)
    except ValidationError as failure:
        lines = []
        for error in failure.errors(include_url=False):
            key = ".".join(map(str, error["loc"]))
            value = f" = {error['input']!r}" if error["loc"] and not isinstance(error["input"], dict) else ""
            cure = "no such key; remove it" if error["type"] == "extra_forbidden" else error["msg"]
            lines.append(f"{where}: {key}{value}: {cure.removeprefix('Value error, ')}".replace(": :", ":"))
        raise ScenarioError("\n".join(lines)) from None


def _flat(one: Fault | Population) -> dict[str, Any]:
    """The fault, or the population, as its file would say it."""
    table = one.model_dump()
    return {**table.pop("severity"), **table}
