"""How incidents live: opened, carried on, joined, cleared."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DomainForecast, FleetHistory, Incident
from healthsvc.incidents.candidate import FLEET, Candidate, Level
from healthsvc.incidents.causes import SURER
from healthsvc.incidents.cooling import cooling_candidates
from healthsvc.incidents.policy import IncidentPolicy
from healthsvc.incidents.power import braked_now, power_candidates
from healthsvc.incidents.sensors import tracks, what_led
from healthsvc.incidents.steps import open_steps

WATCH_CALM = 2.0  # times clear_after_s: steps are asked for once a half hour, and one question may be missed


def update_incidents(
    known: tuple[Incident, ...],
    history: FleetHistory,
    domains: DomainForecast,
    hot: NDArray[np.bool_],
    policy: IncidentPolicy,
) -> tuple[Incident, ...]:
    """The incidents as of now: open ones carried on, joined, or cleared; new ones opened.

    hot bool[gpu]: throttled by heat now. A candidate joins the open incident with which it shares a member; if there
    are several, the one that alerts, the oldest first, and the others end in it. Power and cooling never join. Cleared
    incidents are returned once, with `cleared_s`, and are gone from the next cycle on.
    """
    now_s = history.now_s
    standing = [incident for incident in known if incident.state != "cleared"]
    power = _still_braked([i for i in standing if i.kind == "power"], history)
    cooling = [i for i in standing if i.kind != "power"]
    steps = open_steps(history)
    found = [
        *_live(power, power_candidates(history), history),
        *_live(cooling, cooling_candidates(history, domains, hot, policy, steps), history),
    ]

    def calm(incident: Incident) -> bool:
        patience_s = policy.clear_after_s * (WATCH_CALM if incident.state == "watch" else 1.0)
        return incident.state != "cleared" and now_s - incident.last_true_s >= patience_s

    over = (replace(i, state="cleared", cleared_s=now_s) if calm(i) else i for i in found)
    return tuple(sorted(over, key=lambda incident: incident.id))


def _live(standing: list[Incident], candidates: Iterable[Candidate], history: FleetHistory) -> list[Incident]:
    """The incidents after these candidates, those that ended in another one as cleared."""
    found = sorted(standing, key=lambda i: (i.state == "watch", i.onset_s, i.id))
    holders: dict[str, set[int]] = {}

    def hold(number: int) -> None:
        for member in found[number].members:
            holders.setdefault(member, set()).add(number)

    for number in range(len(found)):
        hold(number)
    for candidate in sorted(candidates, key=lambda each: -each.level):
        touched = set[int]().union(*(holders[member] for member in candidate.members if member in holders))
        same = sorted(number for number in touched if found[number].state != "cleared")
        if not same:
            found.append(_opened(candidate, history))
            hold(len(found) - 1)
            continue
        keeper = same[0]
        found[keeper] = _carried(found[keeper], candidate, history)
        hold(keeper)
        for other in same[1:]:
            # What is only watched ends nobody's alert.
            if candidate.level > Level.WATCH or found[other].state == "watch":
                found[other] = _ended_in(found[other], found[keeper], history.now_s)
    return found


def _opened(candidate: Candidate, history: FleetHistory) -> Incident:
    mover, began_s, evidence = _origin(candidate, history)
    now_s = history.now_s
    return Incident(
        id=f"{candidate.layer}:{candidate.domain}:{now_s:.0f}",
        layer=candidate.layer,
        domain=candidate.domain,
        state=candidate.level.state,
        alertname=candidate.alertname,
        cause=candidate.cause,
        onset_s=now_s,
        members=candidate.members,
        first_mover=mover,
        last_true_s=now_s,
        kind=candidate.kind,
        began_s=began_s,
        evidence=evidence,
    )


def _origin(candidate: Candidate, history: FleetHistory) -> tuple[str, float, str]:
    """What moved first, when, and what led what. Looked at when an incident opens or first alerts, as it costs."""
    moved = [] if candidate.began_s is None else [(candidate.began_s, candidate.first_mover)]
    evidence = ""
    if candidate.kind != "power":
        rows = np.array(candidate.rows, np.int32)
        found = tracks(history, rows)
        moved += [(track.moved_s, track.name) for track in found if track.moved_s is not None]
        evidence = what_led(history, rows, found)
    began_s, mover = min(moved, default=(history.now_s, candidate.first_mover))
    return mover, began_s, evidence


def _carried(incident: Incident, candidate: Candidate, history: FleetHistory) -> Incident:
    """The incident as its condition holds on: a fact outranks a forecast, and what it first alerted as stays its name.

    It moves to a place that holds more, never to one that holds less; who comes to its place joins it. A measured cause
    is never replaced by a guessed one, nor what a loop has in common by one of its nodes. That resistance is high keeps
    a watch open, not an alert.
    """
    before = Level(("watch", "predicted", "active").index(incident.state))
    if candidate.level is Level.WATCH and before > Level.WATCH:
        return incident
    layer, domain, members = incident.layer, incident.domain, incident.members
    if candidate.layer == FLEET or (layer, domain) == (candidate.layer, candidate.domain):
        layer, domain = candidate.layer, candidate.domain
        members = tuple(dict.fromkeys((*members, *candidate.members)))
    elif len(candidate.members) > len(members):
        layer, domain, members = candidate.layer, candidate.domain, candidate.members
    told = candidate.level >= before and SURER.index(candidate.kind) >= SURER.index(incident.kind)
    carried = replace(
        incident,
        layer=layer,
        domain=domain,
        members=members,
        state=max(before, candidate.level).state,
        alertname=incident.alertname or candidate.alertname,
        kind=candidate.kind if told else incident.kind,
        cause=candidate.cause if told else incident.cause,
        first_mover=incident.first_mover or candidate.first_mover,
        last_true_s=history.now_s,
    )
    if incident.alertname or not candidate.alertname:
        return carried
    mover, began_s, evidence = _origin(candidate, history)
    if incident.first_mover and incident.began_s is not None and incident.began_s <= began_s:
        mover, began_s = incident.first_mover, incident.began_s
    return replace(carried, first_mover=mover, began_s=began_s, evidence=evidence)


def _ended_in(incident: Incident, other: Incident, now_s: float) -> Incident:
    return replace(incident, state="cleared", cleared_s=now_s, evidence=f"one with {other.id}")


def _still_braked(incidents: list[Incident], history: FleetHistory) -> list[Incident]:
    """Power incidents last while any of their members is braked."""
    if not incidents:
        return []
    ids = {history.gpus[row].device_id for row in np.flatnonzero(braked_now(history)).tolist()}
    return [i if ids.isdisjoint(i.members) else replace(i, last_true_s=history.now_s) for i in incidents]
