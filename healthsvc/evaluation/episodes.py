"""From labels to the events that alerts are judged by: merged, and rid of what no forecast can or need foresee.

Episode rule: service events of one GPU and class within a day are one (double-bit errors repeat after 105 s in the
median on Titan), and the GPUs that only follow another one's broken link are no events of their own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from healthsvc.evaluation.labels import DECOY, MAINTENANCE, THROTTLING, Label
from healthsvc.evaluation.places import SYNC_LAYERS, Places
from healthsvc.fleet import CLASSES, DAY_S, GRADES, HOUR_S, MINUTE_S

MERGE_WITHIN_S = DAY_S
SYMPATHETIC_WITHIN_S = 10 * MINUTE_S
SAME_HOUR_S = HOUR_S  # the throttle dose is one of an hour, and a domain's row begins with its third member
HALF = 0.5  # share of a domain's members that stands for the domain
# A GPU that follows its peer says so by the link it lost: XID 45 (preempted), 74 (NVLink), 136 (training), 144-150.
LINK = re.compile(r"nv-?link|nvswitch|\blink\b|\bXID\s*(45|74|136|14[4-9]|150)\b", re.IGNORECASE)


class Drop(StrEnum):
    """Why a label is no event to be foreseen."""

    NOT_JUDGED = "not_judged"  # our own output, which nobody has confirmed
    UNKNOWN_SCOPE = "unknown_scope"  # no telemetry of this GPU or place: nothing could have been said about it
    IN_MAINTENANCE = "in_maintenance"  # work on the machine looks like its death
    SYMPATHETIC = "sympathetic"  # follows another GPU of its node or job that lost the link first
    IN_THROTTLING_DOMAIN = "in_throttling_domain"  # the domain's event, not the GPU's
    AFTER_TERMINAL = "after_terminal"  # the GPU was known to be dead; post-detection


@dataclass(frozen=True)
class Episode:
    """One event: the graver grade and the earliest start of the labels that it was merged from.

    members: device_ids; lines: of its labels in their file; end_s is inf while it lasts.
    """

    scope: str
    members: frozenset[str]
    failure_class: str
    grade: str
    start_s: float
    end_s: float
    precursor: bool | None = None
    scenario: str = ""
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Episodes:
    """events to be foreseen; decoys and maintenance, to judge alerts by; dropped: every other label with the reason.

    places: of which GPUs the labels told.
    """

    events: tuple[Episode, ...]
    decoys: tuple[Episode, ...] = ()
    maintenance: tuple[Episode, ...] = ()
    dropped: tuple[tuple[Label, Drop], ...] = ()
    places: Places = field(default_factory=Places)


def label_episodes(labels: Iterable[Label], places: Places) -> Episodes:
    """What the labels amount to for these GPUs and places.

    A row that begins within a day of the end of the one before, same GPU and class, is part of its event. Blind to
    what nobody closed: a row without an end lasts, and what follows on the same GPU and class is part of it (T2) or
    dropped (T1) until it is given an end, the return or the replacement.
    """
    ordered = sorted(labels, key=_order)
    dropped: list[tuple[Label, Drop]] = []

    def kept(rows: Iterable[Label], reasons: Mapping[int, Drop]) -> list[Label]:
        rows = list(rows)
        dropped.extend((rows[i], reason) for i, reason in reasons.items())
        return [row for i, row in enumerate(rows) if i not in reasons]

    ordered = kept(ordered, {i: Drop.NOT_JUDGED for i, row in enumerate(ordered) if not row.judged})
    ordered = kept(ordered, {i: Drop.UNKNOWN_SCOPE for i, row in enumerate(ordered) if not places.of(row.scope)})
    whole = {c: tuple(_episode(r, places) for r in ordered if r.failure_class == c) for c in (DECOY, MAINTENANCE)}
    rows = [row for row in ordered if row.failure_class not in whole]
    rows = kept(rows, dict.fromkeys(_in_maintenance(rows, whole[MAINTENANCE], places), Drop.IN_MAINTENANCE))
    rows = kept(rows, dict.fromkeys(_sympathetic(rows, places), Drop.SYMPATHETIC))
    domains = [_episode(row, places) for row in rows if row.failure_class == THROTTLING]
    rows = kept(rows, dict.fromkeys(_throttled(rows, domains), Drop.IN_THROTTLING_DOMAIN))
    events, after = _merged(rows, places)
    dropped += [(row, Drop.AFTER_TERMINAL) for row in after]
    dropped.sort(key=lambda pair: _order(pair[0]))
    return Episodes(events, whole[DECOY], whole[MAINTENANCE], tuple(dropped), places)


def covers(episode: Episode, members: frozenset[str], at_s: float) -> bool:
    """Whether it was going on then, for at least half of these GPUs."""
    going_on = episode.start_s <= at_s <= episode.end_s
    return going_on and len(episode.members & members) >= HALF * len(members) > 0


def _order(row: Label) -> tuple[float | str | bool, ...]:
    """By time; the rest makes the result independent of the order of rows in the file."""
    what = (row.scope, row.failure_class, row.grade, row.end_s, row.precursor is not True, row.precursor is None)
    return (row.start_s, *what, row.scenario, row.note, row.line)


def _episode(row: Label, places: Places) -> Episode:
    return Episode(
        row.scope,
        places.of(row.scope),
        row.failure_class,
        row.grade,
        row.start_s,
        row.end_s,
        row.precursor,
        row.scenario,
        (row.line,) if row.line else (),
    )


def _in_maintenance(rows: Sequence[Label], work: Sequence[Episode], places: Places) -> set[int]:
    return {i for i, row in enumerate(rows) if any(covers(w, places.of(row.scope), row.start_s) for w in work)}


def _sympathetic(rows: Sequence[Label], places: Places) -> set[int]:
    """Link failures within ten minutes of the first device_loss among the GPU's node or job."""
    found: set[int] = set()
    for layer in SYNC_LAYERS:
        group = places.group_of(layer)
        first: dict[str, Label] = {}
        for i, row in enumerate(rows):
            place = group.get(row.scope)
            if row.failure_class != "device_loss" or place is None or i in found:
                continue
            lead = first.get(place)
            if lead is None or row.start_s - lead.start_s > SYMPATHETIC_WITHIN_S:
                first[place] = row
            elif lead.scope != row.scope and LINK.search(f"{row.scenario} {row.note}"):
                found.add(i)
    return found


def _throttled(rows: Sequence[Label], domains: Sequence[Episode]) -> set[int]:
    return {
        i
        for i, row in enumerate(rows)
        if row.failure_class == "thermal"
        and any(row.scope in d.members and d.start_s - SAME_HOUR_S <= row.start_s <= d.end_s for d in domains)
    }


def _merged(rows: Sequence[Label], places: Places) -> tuple[tuple[Episode, ...], list[Label]]:
    """Events by start, and the rows that came after a terminal one. `rows` are in order of start."""
    events: list[Episode] = []
    newest: dict[tuple[str, str], int] = {}
    after: list[Label] = []
    last_s: dict[tuple[str, str], float] = {}  # the newest start in the event, which a terminal one is counted from
    for row in rows:
        key = (row.scope, row.failure_class)
        place = newest.get(key)
        event = events[place] if place is not None else None
        if place is None or event is None or row.start_s > event.end_s + MERGE_WITHIN_S:
            newest[key] = len(events)
            events.append(_episode(row, places))
        elif row.failure_class in CLASSES and event.grade == "T1" and row.start_s > last_s[key] + MERGE_WITHIN_S:
            after.append(row)
            continue
        else:
            grade = max(event.grade, row.grade, key=GRADES.index)
            lines = event.lines + ((row.line,) if row.line else ())
            events[place] = replace(event, grade=grade, end_s=max(event.end_s, row.end_s), lines=lines)
        last_s[key] = row.start_s
    by_start = np.argsort([event.start_s for event in events], kind="stable")
    return tuple(events[i] for i in by_start.tolist()), after
