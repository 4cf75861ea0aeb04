"""How often the members of a domain have begun to throttle together: common causes that nothing announces.

A domain event is a span of two hours in which at least three members begin. Each domain's rate is shrunk to its
layer's, and that to the prior's. Blind to the cause, and to what the site has not seen yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.domains import DomainTable
from healthsvc.fleet import LEAST_MEMBERS, Arrays, EventLog

Numbers = NDArray[np.float64]
TOGETHER_S = 7200.0


@dataclass(frozen=True)
class JointPrior:
    """events_per_domain_year: of each layer, and of any other (""); domain_years and own_years: how much of a layer's,
    and of a domain's, own record weighs as much as what it is shrunk to."""

    events_per_domain_year: Mapping[str, float]
    domain_years: float
    own_years: float

    def of(self, layer: str) -> float:
        """Events a domain and year."""
        return self.events_per_domain_year.get(layer, self.events_per_domain_year[""])


def domain_events(table: NDArray[np.intp], onsets: EventLog) -> NDArray[np.int64]:
    """Events of each domain [domain]; table [domain, member] of rows, -1 where there is none."""
    highest = max(int(table.max(initial=-1)), int(onsets.row.max(initial=-1)))
    domain = np.full(highest + 1, -1, np.int64)
    at, column = np.nonzero(table >= 0)
    domain[table[at, column]] = at
    inside = domain[onsets.row] >= 0
    span = np.floor(onsets.start_s[inside] / TOGETHER_S).astype(np.int64)
    each = np.unique(np.stack([domain[onsets.row[inside]], span, onsets.row[inside].astype(np.int64)]), axis=1)
    places, count = np.unique(each[:2], axis=1, return_counts=True)
    return np.bincount(places[0][count >= LEAST_MEMBERS], minlength=len(table)).astype(np.int64)


def joint_rates(tables: Sequence[DomainTable], onsets: EventLog, days: float, prior: JointPrior) -> Arrays:
    """Events a day of the domains of each layer after `days` of history, as arrays of a state: names beside rates."""
    found: dict[str, NDArray[Any]] = {}
    for table in tables:
        count, years = domain_events(table.table, onsets), days / 365.25
        told = prior.of(table.layer)
        layer = (told * prior.domain_years + count.sum()) / (prior.domain_years + years * len(count))
        own = (layer * prior.own_years + count) / (prior.own_years + years)
        found[f"joint_name_{table.layer}"] = np.array(table.names, np.str_)
        found[f"joint_rate_{table.layer}"] = own / 365.25
    return found


def rates_of(state: Arrays, layer: str, names: Sequence[str], prior: JointPrior) -> Numbers:
    """Events a day of these domains [domain]; the prior's of one that was not there at the training."""
    trained = state.get(f"joint_name_{layer}")
    base = prior.of(layer) / 365.25
    if trained is None:
        return np.full(len(names), base)
    known = dict(zip(trained.tolist(), state[f"joint_rate_{layer}"].tolist(), strict=True))
    return np.array([known.get(name, base) for name in names])
