"""Random faults: so many of a kind, moments and severities from ranges, on GPUs or places that the seed chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import Field, StrictInt, StrictStr, model_validator

from healthsvc.simulator.faults import BRAKED_NODES, FLEET, KINDS, Fault, known_kind, known_parameter
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.spec import ScenarioError, Spec

YEAR_DAYS = 365.25
WIDEST_FIRST = (FLEET, "power_feed", "cooling_loop", "node", "gpu")  # else no node would be left without a sick GPU


class Range(Spec):
    """Where a number is drawn from: a single value, [low, high] evenly, or { log_uniform = [low, high] }."""

    low: float
    high: float
    log_uniform: bool = False

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, written: Any) -> Any:
        match written:
            case bool():
                pass
            case int() | float():
                return {"low": written, "high": written}
            case [low, high]:
                return {"low": low, "high": high}
            case {"log_uniform": [low, high]}:
                return {"low": low, "high": high, "log_uniform": True}
            case {"low": _, "high": _}:
                return written
        raise ValueError(f"{written!r}: give a number, [low, high] or {{ log_uniform = [low, high] }}")

    @model_validator(mode="after")
    def _in_order(self) -> "Range":
        if self.low > self.high or (self.log_uniform and self.low <= 0):
            raise ValueError(f"[{self.low:g}, {self.high:g}]: low first, and above 0 where log_uniform")
        return self

    def draw(self, rng: np.random.Generator) -> float:
        """One number."""
        share = rng.uniform()
        if self.log_uniform:
            return float(self.low * (self.high / self.low) ** share)
        return float(self.low + share * (self.high - self.low))


class Population(Spec):
    """Faults of one kind: `count` of them, or a Poisson number from `rate_per_year` for each GPU (node, loop, feed).

    Keys beyond the named ones are the kind's own parameters, each a range. What hits a GPU or a node takes only those
    that no other fault has, unless `may_overlap`; what hits a loop, a feed or the fleet always comes on top.
    `most_in_a_loop` keeps that many of the population in one cooling loop.
    """

    kind: str
    count: int | None = Field(None, ge=0, description="how many; or give rate_per_year")
    rate_per_year: float | None = Field(None, ge=0, description="faults for each target and year")
    enrichment: float = Field(1.0, gt=0, description="multiplies rate_per_year: more faults than nature would send")
    target: StrictInt | StrictStr | None = Field(None, description="always this one; none: the seed chooses")
    start_day: Range = Field(description="days after the start of the run")
    lasts_days: Range | None = Field(None, description="until repair; none: it lasts")
    may_overlap: bool = Field(False, description="whether it may hit what another fault has hit")
    most_in_a_loop: int | None = Field(None, ge=1, description="at most so many of these in one cooling loop")
    severity: Mapping[str, Range] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather_severity(cls, table: Any) -> Any:
        if not isinstance(table, dict):
            raise ValueError(f"{table!r}: write a table, [[population]] and its keys below")
        kind = known_kind(table.get("kind"))
        own = {name: table[name] for name in table if name not in cls.model_fields}
        for name, value in own.items():
            known_parameter(kind, name, value)
        named = {name: value for name, value in table.items() if name in cls.model_fields}
        return {**named, "severity": {**named.get("severity", {}), **own}}

    @model_validator(mode="after")
    def _says_how_many(self) -> "Population":
        if (self.count is None) == (self.rate_per_year is None):
            raise ValueError("give count or rate_per_year, one of them")
        if self.enrichment != 1 and self.rate_per_year is None:
            raise ValueError(f"enrichment = {self.enrichment:g}: multiplies rate_per_year; give that instead of count")
        if self.most_in_a_loop is not None and KINDS[self.kind].targets[0] not in ("gpu", "node"):
            raise ValueError(f"most_in_a_loop = {self.most_in_a_loop}: only for what hits a GPU or a node")
        return self

    @property
    def alone(self) -> bool:
        """Whether its targets are kept free of other faults."""
        return KINDS[self.kind].targets[0] in ("gpu", "node") and self.target != FLEET and not self.may_overlap

    def targets(self, layout: Layout) -> list[int | str]:
        """All that this population may hit."""
        layer = KINDS[self.kind].targets[0]
        if self.target is not None:
            return [self.target]
        if layer == FLEET:
            return [FLEET]
        if layer == "gpu":
            return list(range(layout.spec.gpus))
        names, _ = layout.places(layer)
        if layer == "power_feed":
            nodes = np.bincount(layout.feed_of_node)
            return [name for name, count in zip(names, nodes, strict=True) if count >= BRAKED_NODES]
        return list(names)

    def fault(self, target: int | str, rng: np.random.Generator) -> Fault:
        """One fault on `target`, its moment and severity drawn."""
        start_day = self.start_day.draw(rng)
        end_day = start_day + self.lasts_days.draw(rng) if self.lasts_days else None
        own = {name: where.draw(rng) for name, where in self.severity.items()}
        return Fault.model_validate(
            {"kind": self.kind, "target": target, "start_day": start_day, "end_day": end_day, **own}
        )


@dataclass
class _Places:
    """Which GPUs are taken by a fault, and how many of a population each loop has."""

    layout: Layout
    taken: set[int] = field(default_factory=set)

    def choose(self, wanted: int, population: Population, rng: np.random.Generator) -> list[int | str]:
        candidates = population.targets(self.layout)
        found: list[int | str] = []
        in_loop: dict[int, int] = {}
        order = rng.permutation(len(candidates))
        if not population.alone:
            # A target may be hit more than once. In whole rounds: `wanted` draws might all lie in loops that are full.
            order = np.tile(order, -(-wanted // max(len(order), 1)))
        for i in order:
            if len(found) == wanted:
                break
            rows = _rows(population.kind, candidates[i], self.layout)
            loop = int(self.layout.loop_of[min(rows)])
            full = in_loop.get(loop, 0) >= (population.most_in_a_loop or np.inf)
            if full or (population.alone and rows & self.taken):
                continue
            found.append(candidates[i])
            in_loop[loop] = in_loop.get(loop, 0) + 1
            if population.alone:
                self.taken |= rows
        return found


def draw_faults(
    faults: Sequence[Fault], populations: Sequence[Population], layout: Layout, rng: np.random.Generator
) -> tuple[Fault, ...]:
    """`faults`, and those that the populations draw beside them, in the order of the populations.

    Raises ScenarioError if the fleet has too few targets that no other fault has taken.
    """
    places = _Places(layout)
    for fault in faults:
        if fault.layer in ("gpu", "node"):
            places.taken |= set(fault.rows(layout).tolist())
    drawn: dict[int, list[Fault]] = {}
    streams = rng.spawn(len(populations))
    layers = [WIDEST_FIRST.index(KINDS[population.kind].targets[0]) for population in populations]
    for i in sorted(range(len(layers)), key=layers.__getitem__):
        population, stream = populations[i], streams[i]
        wanted = _how_many(population, layout, stream)
        targets = places.choose(wanted, population, stream)
        if len(targets) < wanted:
            raise ScenarioError(
                f"population.{i}.{population.kind}: {wanted} wanted, and only {len(targets)} targets are free; "
                "make them fewer, the fleet larger, or set may_overlap = true"
            )
        drawn[i] = [population.fault(target, stream) for target in targets]
    return (*faults, *(fault for i in sorted(drawn) for fault in drawn[i]))


def _how_many(population: Population, layout: Layout, rng: np.random.Generator) -> int:
    if population.count is not None:
        return population.count
    years = (population.start_day.high - population.start_day.low) / YEAR_DAYS
    rate = (population.rate_per_year or 0.0) * population.enrichment
    return int(rng.poisson(rate * years * len(population.targets(layout))))


def _rows(kind: str, target: int | str, layout: Layout) -> set[int]:
    where = Fault.model_validate({"kind": kind, "target": target, "start_day": 0.0})
    return set(where.rows(layout).tolist())
