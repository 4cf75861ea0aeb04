"""Fleets in trouble: what their sensors, events and forecasts say, and one cycle of incidents after it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    LAYERS,
    DomainForecast,
    EventKind,
    EventLog,
    FleetHistory,
    Floats,
    Incident,
    Placement,
    PlaceSeries,
    Signal,
    build_topology,
)
from healthsvc.incidents import IncidentPolicy, update_incidents
from tests.histories import NOW_S, flat_window, make_daily, make_events

MINUTE_S = 60.0
COLUMNS = 120
POLICY = IncidentPolicy(domain_p_2h=0.5)
Chances = Mapping[tuple[str, str], float]


def placed(nodes: int, layers: Mapping[str, int]) -> Placement:
    """layers: how many nodes each place of a layer has; they are named r0, loop-0, row-0, feed-0, tray-0 ..."""
    short = {"rack": "r", "cooling_loop": "loop-", "power_feed": "feed-", "row": "row-", "tray": "tray-"}
    return Placement(
        {
            f"node-{i:02d}": {layer: f"{short[layer]}{i // width}" for layer, width in layers.items()}
            for i in range(nodes)
        }
    )


def fleet_at(
    now_s: float,
    nodes: int = 8,
    layers: Mapping[str, int] | None = None,
    events: EventLog | None = None,
    environment: Mapping[Signal, PlaceSeries] | None = None,
    extra: Mapping[Signal, Floats] | None = None,
    daily: Mapping[str, float] | None = None,
) -> FleetHistory:
    """Nodes of eight GPUs, two a rack and four a loop unless told, at 60 C and 500 W of 700 over two hours.

    extra: signals [gpu, time]; daily: constant features of two weeks.
    """
    gpus = 8 * nodes
    window = flat_window(gpus, columns=COLUMNS, extra={Signal.POWER_LIMIT: 700.0})
    window = replace(window, times_s=window.times_s - NOW_S + now_s, values={**window.values, **(extra or {})})
    topology = build_topology(window.gpus, placed(nodes, layers or {"rack": 2, "cooling_loop": 4}))
    days = 14 if daily else 0
    ledger = make_daily(
        window.gpus, days, {name: np.full((gpus, days), value, np.float32) for name, value in (daily or {}).items()}
    )
    return FleetHistory(window, ledger, events or EventLog(), topology, environment or {})


def forecast_of(
    history: FleetHistory,
    chances: Chances | None = None,
    excess_p: Chances | None = None,
    watch: Sequence[tuple[str, str]] = (),
) -> DomainForecast:
    """Every place of the fleet; chances: P(at least 3 members, 2 h) of those that are not calm."""
    places: list[tuple[str, str]] = []
    members: list[NDArray[np.int32]] = []
    for layer in LAYERS:
        for name, rows in zip(history.topology.names.get(layer, ()), history.topology.members(layer), strict=True):
            places.append((layer, name))
            members.append(rows.astype(np.int32))
    probability = np.full((len(places), 3, 3), 0.001, np.float32)
    for place, chance in (chances or {}).items():
        probability[places.index(place)] = chance
    tails = np.full(len(places), np.nan)
    for place, p in (excess_p or {}).items():
        tails[places.index(place)] = p
    none = np.zeros(len(places))
    return DomainForecast(
        tuple(places),
        (1800.0, 7200.0, 86_400.0),
        probability,
        none.astype(np.float32),
        none.astype(np.int32),
        tuple(members),
        np.array([place in watch for place in places], bool),
        tails,
    )


def onsets(*rows: int, at_s: float = NOW_S - 5 * MINUTE_S, kind: EventKind = EventKind.THERMAL_THROTTLE) -> EventLog:
    return make_events(*((row, at_s, kind, 0.5) for row in rows))


def step(
    known: tuple[Incident, ...],
    history: FleetHistory,
    hot: Sequence[int] = (),
    chances: Chances | None = None,
    excess_p: Chances | None = None,
    watch: Sequence[tuple[str, str]] = (),
    policy: IncidentPolicy = POLICY,
) -> tuple[Incident, ...]:
    """One cycle. hot: the GPUs that throttle by heat now."""
    throttled = np.zeros(len(history.gpus), bool)
    throttled[list(hot)] = True
    return update_incidents(known, history, forecast_of(history, chances, excess_p, watch), throttled, policy)


def series(layer: str, **places: float | Sequence[float] | NDArray[np.float64]) -> PlaceSeries:
    """An environment signal; names with _ for -: a level, or a value a column."""
    rows = [np.broadcast_to(np.asarray(value, np.float32), (COLUMNS,)) for value in places.values()]
    return PlaceSeries(layer, tuple(name.replace("_", "-") for name in places), np.array(rows))


def ramp(start: float, end: float, begins: int, ends: int = COLUMNS) -> NDArray[np.float64]:
    """A level that goes from `start` to `end` between two columns."""
    return np.interp(np.arange(COLUMNS), [begins, ends], [start, end])


def ids(rows: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"GPU-{row:03d}" for row in rows)


def places_of(incidents: Sequence[Incident]) -> list[tuple[str, str]]:
    return [(incident.layer, incident.domain) for incident in incidents]
