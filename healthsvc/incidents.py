"""The only opener of node, rack, loop and feed incidents: one incident in place of a thousand alerts.

An incident opens on a fact (half of a domain's members start to throttle within ten minutes, or measured coolant flow
below half of rated) or on a domain forecast above its threshold; it sits on the smallest domain that holds at least
80 % of the affected GPUs, and later overlapping candidates join it. It clears after 30 calm minutes, data time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.events import ONSET_BIN_S
from healthsvc.features.medians import nan_last
from healthsvc.fleet import HOLDS_SHARE, LEAST_MEMBERS, DomainForecast, EventKind, FleetHistory, Incident, Signal

ONSETS_WITHIN_S = 600.0
FLOW_SHARE = 0.5
CLEAR_AFTER_S = 1800.0


@dataclass(frozen=True)
class _Candidate:
    """What one incident would be now. observed: a fact, no forecast."""

    layer: str
    domain: str
    members: tuple[str, ...]
    observed: bool
    cause: str
    first_mover: str


def _flow_share(history: FleetHistory) -> dict[str, float]:
    """Measured coolant flow over rated, by loop; only loops where both are measured."""
    flow = history.environment.get(Signal.COOLANT_FLOW)
    rated = history.environment.get(Signal.RATED_COOLANT_FLOW)
    if flow is None or rated is None:
        return {}
    ratings = dict(zip(rated.names, nan_last(rated.values).tolist(), strict=True))
    newest = zip(flow.names, nan_last(flow.values).tolist(), strict=True)
    shares = {name: value / ratings[name] for name, value in newest if ratings.get(name, 0.0) > 0}
    return {name: share for name, share in shares.items() if not np.isnan(share)}


@dataclass(frozen=True)
class _Places:
    """The members of all domains one behind the other (`row`), whose each is (`domain`), and how many there are."""

    row: NDArray[np.int32]
    domain: NDArray[np.intp]
    size: NDArray[np.intp]

    @staticmethod
    def of(domains: DomainForecast) -> "_Places":
        size = np.array([len(rows) for rows in domains.members], np.intp)
        row = np.concatenate([np.zeros(0, np.int32), *domains.members])
        return _Places(row, np.repeat(np.arange(len(size)), size), size)

    def count(self, flags: NDArray[np.bool_]) -> NDArray[np.intp]:
        """How many members of each domain are flagged [domain]; flags bool[gpu]."""
        return np.bincount(self.domain[flags[self.row]], minlength=len(self.size))

    def lowest(self, rank: NDArray[np.intp]) -> NDArray[np.intp]:
        """The lowest rank among the members of each domain [domain]; rank [gpu]."""
        found = np.full(len(self.size), np.iinfo(np.intp).max)
        np.minimum.at(found, self.domain, rank[self.row])
        return found

    def overlapping(self, chosen: NDArray[np.intp], gpus: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of the `chosen` domains hang together by common members: (group of each of them, group of each GPU).

        A GPU that is in none of them has the group -1. Groups are numbered from 0.
        """
        from scipy.sparse import coo_array  # slow to import, and incidents are rare
        from scipy.sparse.csgraph import connected_components

        number = np.full(len(self.size), -1, np.intp)
        number[chosen] = np.arange(len(chosen))
        inside = number[self.domain] >= 0
        edge = (number[self.domain[inside]], len(chosen) + self.row[inside].astype(np.intp))
        nodes = len(chosen) + gpus
        graph = coo_array((np.ones(len(edge[0]), bool), edge), shape=(nodes, nodes))
        label = connected_components(graph, directed=False)[1]
        _, group = np.unique(label[: len(chosen)], return_inverse=True)
        of_gpu = np.full(gpus, -1, np.intp)
        of_gpu[self.row[inside]] = group[edge[0]]
        return group, of_gpu

    def smallest_holding(self, group: NDArray[np.intp], groups: int) -> NDArray[np.intp]:
        """The smallest domain that holds four fifths of each group's GPUs [group], -1 if none does; group [gpu]."""
        at = group[self.row]
        pair, count = np.unique(at[at >= 0] * len(self.size) + self.domain[at >= 0], return_counts=True)
        at, domain = np.divmod(pair, len(self.size))
        holds = count >= HOLDS_SHARE * np.bincount(group[group >= 0], minlength=groups)[at]
        at, domain = at[holds], domain[holds]
        found = np.full(groups, -1, np.intp)
        order = np.lexsort((domain, self.size[domain], at))[::-1]  # so that the smallest is written last
        found[at[order]] = domain[order]
        return found


def _candidates(
    history: FleetHistory, domains: DomainForecast, hot: NDArray[np.bool_], threshold: float
) -> Iterator[_Candidate]:
    """One for each group of overlapping domains that are struck, starved or likely to be.

    A measured cause says more than a count of victims, and a fact more than a forecast: the domain with the best of
    them gives the cause. A measured cause also gives the place; else it is the smallest domain that holds 80 % of the
    group's GPUs that throttle.
    """
    places = _Places.of(domains)
    events, now_s = history.events.of(EventKind.THERMAL_THROTTLE), history.now_s
    # An onset stands at the beginning of its bin, which may be that much before it.
    fresh = events.where((events.start_s > now_s - ONSETS_WITHIN_S - ONSET_BIN_S) & (events.start_s <= now_s))
    order = np.full(len(history.gpus), len(fresh), np.intp)  # of the beginning; those that did not begin are last
    np.minimum.at(order, fresh.row, np.arange(len(fresh)))
    low_flow = {("cooling_loop", name): share for name, share in _flow_share(history).items() if share < FLOW_SHARE}
    starved = np.array([place in low_flow for place in domains.domains], bool)
    onsets = places.count(order < len(fresh))
    struck = onsets >= np.maximum(LEAST_MEMBERS, (places.size + 1) // 2)
    predicted = domains.probability_at_least_k[:, LEAST_MEMBERS - 1, 1] >= threshold
    chosen = np.flatnonzero(starved | struck | predicted)
    if not len(chosen):
        return
    group, of_gpu = places.overlapping(chosen, len(history.gpus))
    groups = int(group.max()) + 1
    throttling = np.bincount(of_gpu[hot & (of_gpu >= 0)], minlength=groups) > 0
    affected = np.where(hot | ~throttling[of_gpu], of_gpu, -1)
    best = places.smallest_holding(affected, groups)
    first = places.lowest(order)
    observed = starved | struck
    ranked = np.lexsort((chosen, places.size[chosen], ~observed[chosen], ~starved[chosen], group))
    leads = ranked[np.unique(group[ranked], return_index=True)[1]]
    ids = np.array([gpu.device_id for gpu in history.gpus], object)
    for number, lead in enumerate(chosen[leads].tolist()):
        layer, name = domains.domains[lead]
        place = lead if starved[lead] or best[number] < 0 else int(best[number])
        began = int(first[lead])
        mover = history.gpus[int(fresh.row[began])].device_id if began < len(fresh) else ""
        if starved[lead]:
            cause, mover = f"coolant flow at {100 * low_flow[layer, name]:.0f} % of rated", f"coolant flow of {name}"
        elif struck[lead]:
            cause = f"{onsets[lead]} of {places.size[lead]} GPUs began to throttle by heat within 10 minutes"
        else:
            cause = "several members are likely to throttle together"
        members = tuple(ids[domains.members[place]].tolist())
        yield _Candidate(*domains.domains[place], members, bool(observed[lead]), cause, mover)


def _opened(candidate: _Candidate, now_s: float) -> Incident:
    return Incident(
        id=f"{candidate.layer}:{candidate.domain}:{now_s:.0f}",
        layer=candidate.layer,
        domain=candidate.domain,
        state="active" if candidate.observed else "predicted",
        alertname="CoolingIncident" if candidate.observed else "ThrottlingCascadePredicted",
        cause=candidate.cause,
        onset_s=now_s,
        members=candidate.members,
        first_mover=candidate.first_mover,
        last_true_s=now_s,
    )


def _carried(incident: Incident, candidate: _Candidate, now_s: float) -> Incident:
    """The incident as its condition holds on: a fact outranks a forecast, and what opened it stays its name.

    It moves to a place that holds more, never to one that holds less; who comes to its place joins it.
    """
    layer, domain, members = incident.layer, incident.domain, incident.members
    if (layer, domain) == (candidate.layer, candidate.domain):
        members = tuple(dict.fromkeys((*members, *candidate.members)))
    elif len(candidate.members) > len(members):
        layer, domain, members = candidate.layer, candidate.domain, candidate.members
    return replace(
        incident,
        layer=layer,
        domain=domain,
        members=members,
        state="active" if candidate.observed else incident.state,
        cause=candidate.cause if candidate.observed or incident.state == "predicted" else incident.cause,
        first_mover=incident.first_mover or candidate.first_mover,
        last_true_s=now_s,
    )


def update_incidents(
    known: tuple[Incident, ...],
    history: FleetHistory,
    domains: DomainForecast,
    hot: NDArray[np.bool_],
    threshold: float,
) -> tuple[Incident, ...]:
    """The incidents as of now: open ones carried on, joined, or cleared; new ones opened.

    hot bool[gpu]: throttled by heat now. threshold: on P(at least 3 members, 2 h). A candidate joins the oldest open
    incident with which it shares a member. Cleared incidents are returned once, with `cleared_s`, and are gone from
    the next cycle on.
    """
    now_s = history.now_s
    standing = {incident.id: incident for incident in known if incident.state != "cleared"}
    oldest_first = sorted(standing.values(), key=lambda incident: (incident.onset_s, incident.id))
    keeper = {member: number for number, each in reversed(list(enumerate(oldest_first))) for member in each.members}
    fresh: list[Incident] = []
    for candidate in _candidates(history, domains, hot, threshold):
        oldest = min((keeper[member] for member in candidate.members if member in keeper), default=None)
        if oldest is None:
            fresh.append(_opened(candidate, now_s))
        else:
            same = oldest_first[oldest].id
            standing[same] = _carried(standing[same], candidate, now_s)
    for incident in standing.values():
        calm = now_s - incident.last_true_s >= CLEAR_AFTER_S
        fresh.append(replace(incident, state="cleared", cleared_s=now_s) if calm else incident)
    return tuple(sorted(fresh, key=lambda incident: incident.id))
