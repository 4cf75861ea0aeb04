"""Fleets of many cooling loops, put through the real cycle in memory: simulator, history, scorer, alerts.

The boards' normal resistance comes from fourteen days of the same fleet at five-minute steps, without faults, through
the ledger's own summaries; the hours around a fault are simulated at a minute. Every loop has a twin in its row, so
that a row is never the place of a fault by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts import Alert, AlertState, decide
from healthsvc.engine.build import alert_policy
from healthsvc.engine.scoring import Scorer, State, make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.features.events import LEAD_IN_S, ONSET_BIN_S, ONSET_DOSE, detect_events
from healthsvc.features.windows import thermal_throttle_seconds
from healthsvc.fleet import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    DailyLedger,
    EventLog,
    FleetHistory,
    FleetWindow,
    Floats,
    GpuId,
    Placement,
    PlaceSeries,
    Signal,
    Snapshot,
    Topology,
    build_topology,
)
from healthsvc.simulator.fleet import Chunk, FleetSimulator
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.scenario import Scenario, parse_scenario
from scripts.studies.thermal_places import Seen, joined, ledger_day

START_S = 20_454 * DAY_S  # 2026-01-01
LEDGER_DAYS, LEDGER_STEP_S = 14, 300
WINDOW_S = 7200.0
GPUS_A_LOOP = 32  # 2 racks of 2 nodes of 8
FLOW = frozenset({Signal.COOLANT_FLOW, Signal.RATED_COOLANT_FLOW})
NEEDED = (  # the signals that domains are judged by; a whole report reads more
    Signal.GPU_TEMPERATURE,
    Signal.POWER,
    Signal.ENERGY,
    Signal.POWER_LIMIT,
    Signal.GPU_MAX_OPERATING_LIMIT,
    Signal.GPU_SLOWDOWN_LIMIT,
    Signal.SOFTWARE_THERMAL_THROTTLE,
    Signal.HARDWARE_THERMAL_THROTTLE,
    Signal.POWER_BRAKE_THROTTLE,
)


@dataclass(frozen=True)
class Site:
    """What a site knows of itself. hidden: environment signals that nobody measures; unknown: layers that neither
    labels nor topology.csv name; whole: all that the exporter shows, for a whole report."""

    hidden: frozenset[Signal] = frozenset()
    unknown: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def measures_flow(self) -> bool:
        """Whether a loss of flow is seen by a sensor."""
        return not self.hidden & FLOW


@dataclass(frozen=True)
class Run:
    """A fleet with its past, and every minute of the hours that matter; `throttled_s` [gpu, time] by heat."""

    scenario: Scenario
    window: FleetWindow
    environment: Mapping[Signal, PlaceSeries]
    daily: DailyLedger
    topology: Topology
    layout: Layout
    throttled_s: Floats

    @property
    def start_s(self) -> float:
        """What the faults' days count from."""
        return float(self.window.times_s[0])

    def begun_s(self, since_s: float) -> NDArray[np.float64]:
        """When each GPU first throttled by heat after `since_s`, for a hundredth of five minutes [gpu]; inf: never."""
        hot = (self.throttled_s > ONSET_DOSE * ONSET_BIN_S) & (self.window.times_s > since_s)
        return np.where(hot.any(axis=1), self.window.times_s[np.argmax(hot, axis=1)], np.inf)


@dataclass(frozen=True)
class Cycle:
    """What stood at the end of one minute."""

    now_s: float
    snapshot: Snapshot
    firing: tuple[Alert, ...]


def fleet_table(loops: int, **more: Any) -> dict[str, Any]:
    """A scenario's fleet of `loops` cooling loops of 32 GPUs, two loops a row."""
    return {"gpus": loops * GPUS_A_LOOP, "nodes_per_rack": 2, "racks_per_loop": 2, "racks_per_row": 4, **more}


def make_run(
    fleet: Mapping[str, Any],
    faults: Sequence[Mapping[str, Any]],
    hours: float,
    seed: int,
    site: Site,
    begins_hour: float = 8.0,
) -> Run:
    """`faults` with their days counted from the beginning of the `hours`, the first two of which are lead-in."""
    past = _scenario(fleet, (), float(LEDGER_DAYS), LEDGER_STEP_S)
    simulator = FleetSimulator(past, np.random.default_rng(seed), START_S)
    topology = build_topology(simulator.gpus, placement(simulator.layout, site))
    daily = joined([ledger_day(day, topology) for day in days_of(simulator, site)])
    # The same seed gives the same boards; only their work and weather are others.
    scenario = _scenario(fleet, faults, hours / 24.0, round(MINUTE_S))
    start_s = START_S + LEDGER_DAYS * DAY_S + begins_hour * HOUR_S
    simulator = FleetSimulator(scenario, np.random.default_rng(seed), start_s)
    window, environment = framed(simulator.gpus, list(simulator.chunks()), site)
    return Run(scenario, window, environment, daily, topology, simulator.layout, thermal_throttle_seconds(window))


def _scenario(fleet: Mapping[str, Any], faults: Sequence[Mapping[str, Any]], days: float, step_s: int) -> Scenario:
    table = {"name": "cascade", "days": days, "step_s": step_s, "fleet": dict(fleet), "fault": list(faults)}
    return parse_scenario(table, "cascade")


def placement(layout: Layout, site: Site) -> Placement:
    """Where the nodes stand, as far as the site knows."""
    rows = layout.placement().by_hostname
    return Placement(
        {host: {k: v for k, v in places.items() if k not in site.unknown} for host, places in rows.items()}
    )


def days_of(simulator: FleetSimulator, site: Site) -> Iterator[Seen]:
    """The run a day at a time, each after the last two hours of the day before."""
    before: list[Chunk] = []
    for chunk in simulator.chunks():
        yield Seen(*framed(simulator.gpus, [*before, chunk], site))
        tail = slice(-round(WINDOW_S / simulator.scenario.step_s) - 1, None)
        before = [
            Chunk(
                chunk.times_s[tail],
                {signal: values[:, tail] for signal, values in chunk.values.items()},
                {s: replace(series, values=series.values[:, tail]) for s, series in chunk.environment.items()},
            )
        ]


def framed(
    gpus: tuple[GpuId, ...], chunks: Sequence[Chunk], site: Site
) -> tuple[FleetWindow, dict[Signal, PlaceSeries]]:
    """The chunks behind one another as the service would have them: counters as increments, the hidden left out."""
    times_s = np.concatenate([chunk.times_s for chunk in chunks])
    values: dict[Signal, Floats] = {}
    for signal in chunks[0].values if site.whole else NEEDED:
        joined_up = np.concatenate([chunk.values[signal] for chunk in chunks], axis=1)
        if signal.kind == "counter":
            joined_up = np.maximum(np.diff(joined_up, axis=1, prepend=np.nan), 0.0)
        values[signal] = joined_up.astype(np.float32)
    environment = {
        signal: replace(series, values=np.concatenate([chunk.environment[signal].values for chunk in chunks], axis=1))
        for signal, series in chunks[0].environment.items()
        if signal not in site.hidden
    }
    return FleetWindow(gpus, times_s, values), environment


def histories(run: Run, every: int = 1) -> Iterator[FleetHistory]:
    """What the service knows at the end of each `every`-th minute, once the first two hours have passed."""
    columns = round(WINDOW_S / MINUTE_S)
    node = run.topology.group("node", len(run.window.gpus))
    lead = round(LEAD_IN_S / MINUTE_S) + every
    events, until_s = EventLog(), -np.inf
    for end in range(columns, len(run.window.times_s) + 1, every):
        recent = run.window.columns(slice(end - columns, end))
        seen = recent if until_s < 0 else recent.columns(slice(-lead, None))
        events = events.merged(detect_events(seen, node, until_s - ONSET_BIN_S))
        until_s = recent.now_s
        around = {s: replace(p, values=p.values[:, end - columns : end]) for s, p in run.environment.items()}
        yield FleetHistory(recent, run.daily, events, run.topology, around)


@cache
def shipped() -> Scorer:
    """The service's scorer as it ships."""
    documents = load_priors()
    return make_scorer(documents, class_priors(documents))


def domains_only() -> Scorer:
    """The same with the cheapest of the GPU forecasters: domains ask none, and with one no GPU is unknown."""
    return replace(shipped(), forecasters=tuple(f for f in shipped().forecasters if f.name == "device_loss"))


def cycles(run: Run, scorer: Scorer, state: State | None = None, every: int = 1) -> Iterator[Cycle]:
    """Every cycle of the run, trained on what was known at its beginning unless a `state` is given."""
    policy, alerts = alert_policy(class_priors(load_priors()), every * MINUTE_S), AlertState()
    previous: Snapshot | None = None
    for history in histories(run, every):
        state = scorer.train(history) if state is None else state
        previous = scorer.score(state, history, previous, None)
        decision = decide(alerts, previous.report, history.now_s, policy)
        alerts = decision.state
        yield Cycle(history.now_s, previous, decision.firing)
