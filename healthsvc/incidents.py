"""The only opener of node, rack, loop and feed incidents: one incident in place of a thousand alerts.

An incident opens on a fact (half of a domain's members start to throttle within ten minutes, or measured coolant flow
below half of rated) or on a domain forecast above its threshold; it sits on the smallest domain that holds at least
80 % of the affected GPUs, and later overlapping candidates join it. It clears after 30 calm minutes, data time.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DomainForecast, EventKind, FleetHistory, Floats, Incident, Signal

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


def _candidates(history: FleetHistory, domains: DomainForecast, threshold: float) -> list[_Candidate]:
    events, now_s = history.events.of(EventKind.THERMAL_THROTTLE), history.now_s
    fresh = events.where((events.start_s > now_s - ONSETS_WITHIN_S - 300.0) & (events.start_s <= now_s))
    started = np.zeros(len(history.gpus), bool)
    started[fresh.row] = True
    flow = _flow_share(history)
    predicted = domains.probability_at_least_k[:, 2, 1] >= threshold
    found: list[_Candidate] = []
    for position, ((layer, name), members) in enumerate(zip(domains.domains, domains.members, strict=True)):
        onsets = int(started[members].sum())
        share = flow.get(name, 1.0) if layer == "cooling_loop" else 1.0
        if share < FLOW_SHARE:
            found.append(_Candidate(position, True, f"coolant flow at {100 * share:.0f} % of rated"))
        elif onsets >= max(LEAST_ONSETS, (len(members) + 1) // 2):
            cause = f"{onsets} of {len(members)} GPUs began to throttle by heat within 10 minutes"
            found.append(_Candidate(position, True, cause))
        elif predicted[position]:
            found.append(_Candidate(position, False, "several members are likely to throttle together"))
    return found


def _merge(
    candidates: list[_Candidate], domains: DomainForecast, affected: NDArray[np.bool_]
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
        touched = np.array(sorted(rows), np.int32)
        hit = touched[affected[touched]]
        hit = hit if len(hit) else touched
        holds = [p for p, m in enumerate(domains.members) if np.isin(hit, m).mean() >= HOLDS_SHARE]
        best = min(holds, key=lambda p: len(domains.members[p]), default=members[0].domain)
        # A measured cause says more than a count of victims, and a fact more than a forecast.
        lead = min(members, key=lambda c: (not c.observed, "flow" not in c.cause, len(domains.members[c.domain])))
        if lead.observed and "flow" in lead.cause:
            best = lead.domain
        chosen.append((replace(lead, domain=best), domains.members[best]))
    return chosen


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
    for candidate, rows in _merge(_candidates(history, domains, threshold), domains, hot):
        layer, domain = domains.domains[candidate.domain]
        members = tuple(ids[rows].tolist())
        same = next((i for i in standing if set(i.members) & set(members)), None)
        if same is None:
            name = "CoolingIncident" if candidate.observed else "ThrottlingCascadePredicted"
            state = "active" if candidate.observed else "predicted"
            identity = f"{layer}:{domain}:{now_s:.0f}"
            fresh.append(
                Incident(identity, layer, domain, state, name, candidate.cause, now_s, members, "", None, now_s)  # type: ignore[arg-type]
            )
            continue
        standing.remove(same)
        state = "active" if candidate.observed or same.state == "active" else "predicted"
        cause = candidate.cause if candidate.observed or same.state == "predicted" else same.cause
        fresh.append(replace(same, state=state, cause=cause, last_true_s=now_s))  # type: ignore[arg-type]
    for incident in standing:
        calm = now_s - incident.last_true_s >= CLEAR_AFTER_S
        fresh.append(replace(incident, state="cleared", cleared_s=now_s) if calm else incident)
    return tuple(sorted(fresh, key=lambda incident: incident.id))
