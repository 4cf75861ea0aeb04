"""The only opener of node, rack, loop and feed incidents: one incident in place of a thousand alerts.

An incident opens on a fact (half of a domain's members start to throttle within ten minutes, or measured coolant flow
below half of rated) or on a domain forecast above its threshold; it sits on the smallest domain that holds at least
80 % of the affected GPUs, and later overlapping candidates join it. It clears after 30 calm minutes, data time.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DomainForecast, EventKind, EventLog, FleetHistory, Floats, Incident, Signal

ONSETS_WITHIN_S = 600.0
LEAST_ONSETS = 3
FLOW_SHARE = 0.5
HOLDS_SHARE = 0.8
CLEAR_AFTER_S = 1800.0


@dataclass(frozen=True)
class _Candidate:
    domain: int  # position in the DomainForecast
    observed: bool
    cause: str
    first_mover: str


def _flow_share(history: FleetHistory) -> dict[str, float]:
    """Measured coolant flow over rated, by loop; only loops where both are measured."""
    flow = history.environment.get(Signal.COOLANT_FLOW)
    rated = history.environment.get(Signal.RATED_COOLANT_FLOW)
    if flow is None or rated is None:
        return {}

    def newest(values: Floats) -> NDArray[np.float64]:
        seen = ~np.isnan(values)
        column = values.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1)
        return np.asarray(values[np.arange(len(values)), column], np.float64)

    ratings = dict(zip(rated.names, newest(rated.values).tolist(), strict=True))
    shares = {
        name: value / ratings[name]
        for name, value in zip(flow.names, newest(flow.values).tolist(), strict=True)
        if ratings.get(name, 0.0) > 0
    }
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


def _candidates(history: FleetHistory, domains: DomainForecast, places: _Places, threshold: float) -> list[_Candidate]:
    events, now_s = history.events.of(EventKind.THERMAL_THROTTLE), history.now_s
    fresh = events.where((events.start_s > now_s - ONSETS_WITHIN_S - 300.0) & (events.start_s <= now_s))
    started = np.zeros(len(history.gpus), bool)
    started[fresh.row] = True
    low_flow = {("cooling_loop", name): share for name, share in _flow_share(history).items() if share < FLOW_SHARE}
    starved = np.array([place in low_flow for place in domains.domains], bool)
    onsets = places.count(started)
    struck = onsets >= np.maximum(LEAST_ONSETS, (places.size + 1) // 2)
    predicted = domains.probability_at_least_k[:, 2, 1] >= threshold
    found: list[_Candidate] = []
    for position in np.flatnonzero(starved | struck | predicted).tolist():
        place, members = domains.domains[position], domains.members[position]
        if starved[position]:
            cause = f"coolant flow at {100 * low_flow[place]:.0f} % of rated"
            found.append(_Candidate(position, True, cause, f"coolant flow of {place[1]}"))
        elif struck[position]:
            cause = f"{onsets[position]} of {len(members)} GPUs began to throttle by heat within 10 minutes"
            found.append(_Candidate(position, True, cause, _first_mover(history, fresh, members)))
        else:
            cause = "several members are likely to throttle together"
            found.append(_Candidate(position, False, cause, _first_mover(history, fresh, members)))
    return found


def _first_mover(history: FleetHistory, onsets: EventLog, members: NDArray[np.int32]) -> str:
    """device_id of the member that began to throttle first; "" if none has. `onsets` are in order of start."""
    rows = onsets.row[np.isin(onsets.row, members)]
    return history.gpus[int(rows[0])].device_id if len(rows) else ""


def _merge(
    candidates: list[_Candidate], domains: DomainForecast, places: _Places, affected: NDArray[np.bool_]
) -> list[tuple[_Candidate, NDArray[np.int32]]]:
    """Overlapping candidates as one: on the smallest domain that holds 80 % of the GPUs affected among them."""
    groups: list[tuple[list[_Candidate], set[int]]] = []
    for candidate in candidates:
        rows = set(domains.members[candidate.domain].tolist())
        touching = [group for group in groups if group[1] & rows]
        merged = (
            [c for group in touching for c in group[0]] + [candidate],
            set().union(rows, *(g[1] for g in touching)),
        )
        groups = [group for group in groups if group not in touching] + [merged]
    chosen = []
    for members, rows in groups:
        touched = np.zeros(len(affected), bool)
        touched[list(rows)] = True
        hit = touched & affected if (touched & affected).any() else touched
        holds = np.flatnonzero(places.count(hit) >= HOLDS_SHARE * np.count_nonzero(hit))
        best = int(holds[np.argmin(places.size[holds])]) if len(holds) else members[0].domain
        # A measured cause says more than a count of victims, and a fact more than a forecast.
        lead = min(members, key=lambda c: (not c.observed, "flow" not in c.cause, len(domains.members[c.domain])))
        if lead.observed and "flow" in lead.cause:
            best = lead.domain
        chosen.append((replace(lead, domain=best), domains.members[best]))
    return chosen


def _opened(candidate: _Candidate, layer: str, domain: str, members: tuple[str, ...], now_s: float) -> Incident:
    return Incident(
        id=f"{layer}:{domain}:{now_s:.0f}",
        layer=layer,
        domain=domain,
        state="active" if candidate.observed else "predicted",
        alertname="CoolingIncident" if candidate.observed else "ThrottlingCascadePredicted",
        cause=candidate.cause,
        onset_s=now_s,
        members=members,
        first_mover=candidate.first_mover,
        last_true_s=now_s,
    )


def _carried(incident: Incident, candidate: _Candidate, now_s: float) -> Incident:
    """The incident as its condition holds on: a fact outranks a forecast, and what opened it stays its name."""
    return replace(
        incident,
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

    hot bool[gpu]: throttled by heat now. threshold: on P(at least 3 members, 2 h). Cleared incidents are returned
    once, with `cleared_s`, and are gone from the next cycle on.
    """
    now_s = history.now_s
    ids = np.array([gpu.device_id for gpu in history.gpus], object)
    standing = [incident for incident in known if incident.state != "cleared"]
    fresh: list[Incident] = []
    places = _Places.of(domains)
    for candidate, rows in _merge(_candidates(history, domains, places, threshold), domains, places, hot):
        layer, domain = domains.domains[candidate.domain]
        members = tuple(ids[rows].tolist())
        same = next((i for i in standing if set(i.members) & set(members)), None)
        if same is None:
            fresh.append(_opened(candidate, layer, domain, members, now_s))
            continue
        standing.remove(same)
        fresh.append(_carried(same, candidate, now_s))
    for incident in standing:
        calm = now_s - incident.last_true_s >= CLEAR_AFTER_S
        fresh.append(replace(incident, state="cleared", cleared_s=now_s) if calm else incident)
    return tuple(sorted(fresh, key=lambda incident: incident.id))
