"""The parts of a domain forecast put together: what is worth a look, what is in excess, the arrays of the answer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.domains import DomainTable
from healthsvc.features.half_hours import half_hour_ends
from healthsvc.features.resistance import findings_of
from healthsvc.fleet import LEAST_MEMBERS, DomainForecast, FleetHistory, NeighbourEffect
from healthsvc.fleet.causes import ThermalCause
from healthsvc.forecasters.throttling.excess import excess_p
from healthsvc.forecasters.throttling.joint import JointPrior
from healthsvc.forecasters.throttling.outlook import Outlook

Numbers = NDArray[np.float64]
THREE, DAY = LEAST_MEMBERS - 1, 2  # positions in probability_at_least_k
WATCH_P, WATCH_TIMES = 0.05, 5.0  # P(at least 3 members, 24 h), and how many times what the prior gives
STEPS = {"node": ThermalCause.NODE_AIRFLOW, "cooling_loop": ThermalCause.LOOP_FLOW}  # what a step of a layer speaks for


def assembled(
    history: FleetHistory,
    horizons_s: tuple[float, ...],
    tables: Sequence[DomainTable],
    chances: Sequence[Numbers],
    lost_h: Sequence[Numbers],
    now: Outlook,
    prior: JointPrior,
    neighbours: tuple[NeighbourEffect, ...],
) -> DomainForecast:
    """tables hold the members that are observed, -1 where there is none; chances [domain, k, horizon] and lost_h
    [domain] of each."""
    empty = np.zeros((0, LEAST_MEMBERS, len(horizons_s)))
    none = np.zeros(0)
    asked = half_hour_ends(history)
    excess = excess_p(history, tables, now.explained) if asked else [np.full(len(c), np.nan) for c in chances]
    return DomainForecast(
        tuple((table.layer, name) for table in tables for name in table.names),
        horizons_s,
        np.concatenate([empty, *chances]).astype(np.float32),
        np.concatenate([none, *lost_h]).astype(np.float32),
        np.concatenate([none, *(_count(now.hot, table) for table in tables)]).astype(np.int32),
        tuple(row[row >= 0].astype(np.int32) for table in tables for row in table.table),
        np.concatenate([none, *(_watch(history, t, c, prior) for t, c in zip(tables, chances, strict=True))]) > 0,
        np.concatenate([none, *excess]),
        np.concatenate([none, *(np.full(len(table.names), table.inferred) for table in tables)]) > 0,
        neighbours,
    )


def _count(flags: NDArray[np.bool_], table: DomainTable) -> NDArray[np.intp]:
    """How many members of each domain are flagged."""
    return np.asarray((flags[table.table] & (table.table >= 0)).sum(axis=1))


def _watch(history: FleetHistory, table: DomainTable, chances: Numbers, prior: JointPrior) -> NDArray[np.bool_]:
    """Likely enough within a day, or with a step in the resistance that its members share."""
    usual = -np.expm1(-prior.of(table.layer) / 365.25)
    likely = chances[:, THREE, DAY] >= max(WATCH_P, WATCH_TIMES * usual)
    cause = STEPS.get(table.layer)
    if cause is None:
        return np.asarray(likely, bool)
    stepped = findings_of(history).cause == cause
    return np.asarray(likely | (_count(stepped, table) >= LEAST_MEMBERS), bool)
