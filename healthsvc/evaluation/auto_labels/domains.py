"""Labels of domains: GPUs of one node, rack, loop or feed that throttle together, and feeds that brake their nodes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.evaluation.auto_labels.dose import Heat
from healthsvc.evaluation.labels import THROTTLING, Label
from healthsvc.features.facts import DOMAIN_LAYERS
from healthsvc.fleet import HOLDS_SHARE, HOUR_S, LEAST_MEMBERS, OPEN, EventKind, FleetHistory, Topology

EPISODE_HOURS = 24

Domain = tuple[str, int]  # layer, group number
Members = Mapping[Domain, NDArray[np.intp]]


@dataclass(frozen=True)
class _Spell:
    """One event: the domains in which enough members were hit at once, the GPUs hit, when it began, its last hour."""

    domains: frozenset[Domain]
    rows: frozenset[int]
    start_s: float
    last_hour: int

    def joined(self, other: "_Spell") -> "_Spell":
        return _Spell(
            self.domains | other.domains,
            self.rows | other.rows,
            min(self.start_s, other.start_s),
            max(self.last_hour, other.last_hour),
        )

    def touches(self, later: "_Spell") -> bool:
        """Whether `later` goes on with it: a common domain, and no calm day in between."""
        return bool(self.domains & later.domains) and later.last_hour - self.last_hour <= EPISODE_HOURS


def throttling_labels(heat: Heat, topology: Topology, until_s: float) -> list[Label]:
    """At least 3 members of one domain with the thermal dose in the same hour, on the smallest domain that holds 80 %
    of them. It starts when the third began to throttle and ends with its last such hour, once that is over.

    Blind to domains whose layer is unknown, and to two causes in one domain at once.
    """
    members = members_of(topology)
    spells: list[_Spell] = []
    for column, hour in enumerate(heat.hours.tolist()):
        for fresh in _hour_spells(heat, column, hour, members):
            same = [spell for spell in spells if spell.touches(fresh)]
            for spell in same:
                fresh = spell.joined(fresh)
            spells = [spell for spell in spells if spell not in same] + [fresh]
    return [_label(spell, members, topology, until_s) for spell in spells]


def members_of(topology: Topology) -> Members:
    """Rows of every domain, smaller layers first."""
    return {(layer, i): rows for layer in DOMAIN_LAYERS for i, rows in enumerate(topology.members(layer))}


def _hour_spells(heat: Heat, column: int, hour: int, members: Members) -> list[_Spell]:
    """The domains with enough hot members in this hour; those that share a hot GPU are one."""
    hot = heat.hot[:, column]
    found: list[_Spell] = []
    for domain, rows in members.items():
        hit = rows[hot[rows]]
        if len(hit) < LEAST_MEMBERS:
            continue
        third_s = float(np.sort(heat.onset_s[hit, column])[LEAST_MEMBERS - 1])
        fresh = _Spell(frozenset({domain}), frozenset(hit.tolist()), third_s, hour)
        same = [spell for spell in found if spell.rows & fresh.rows]
        for spell in same:
            fresh = spell.joined(fresh)
        found = [spell for spell in found if spell not in same] + [fresh]
    return found


def _label(spell: _Spell, members: Members, topology: Topology, until_s: float) -> Label:
    hit = np.fromiter(spell.rows, np.intp)

    def share(domain: Domain) -> float:
        return float(np.isin(hit, members[domain]).mean())

    ordered = [domain for domain in members if domain in spell.domains]  # smaller layers first
    holds = [domain for domain in ordered if share(domain) >= HOLDS_SHARE]
    best = min(holds, key=lambda d: len(members[d])) if holds else max(ordered, key=share)
    layer, number = best
    end_s = (spell.last_hour + 1) * HOUR_S
    note = f"{np.isin(members[best], hit).sum()} of {len(members[best])} GPUs throttled by heat"
    scope = f"{layer}:{topology.names[layer][number]}"
    return Label(scope, spell.start_s, end_s if end_s < until_s else OPEN, THROTTLING, "T2", "auto", note=note)


def power_brake_labels(history: FleetHistory, until_s: float) -> list[Label]:
    """Hardware power brakes that begin on at least 3 nodes of one feed in the same hour: a throttling of the feed.

    The log has onsets only: a label ends with the hour of the last one, episodes merged within a day.
    """
    count = len(history.gpus)
    node, feed = history.topology.group("node", count), history.topology.group("power_feed", count)
    brakes = history.events.known_at(until_s).of(EventKind.POWER_BRAKE)
    brakes = brakes.where((node[brakes.row] >= 0) & (feed[brakes.row] >= 0))
    hour = np.floor(brakes.start_s / HOUR_S).astype(np.int64)
    labels: list[Label] = []
    for number in np.unique(feed[brakes.row]).tolist():
        mine = feed[brakes.row] == number
        hours = np.array(
            [h for h in np.unique(hour[mine]) if len(np.unique(node[brakes.row[mine & (hour == h)]])) >= LEAST_MEMBERS]
        )
        for run in np.split(hours, np.flatnonzero(np.diff(hours) > EPISODE_HOURS) + 1) if len(hours) else ():
            inside = mine & np.isin(hour, run)
            end_s = float(run[-1] + 1) * HOUR_S
            note = f"power brake on {len(np.unique(node[brakes.row[inside]]))} nodes"
            labels.append(
                Label(
                    f"power_feed:{history.topology.names['power_feed'][number]}",
                    float(brakes.start_s[inside].min()),
                    end_s if end_s < until_s else OPEN,
                    THROTTLING,
                    "T2",
                    "auto",
                    note=note,
                )
            )
    return labels
