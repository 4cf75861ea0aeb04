"""Which alert spoke of which event: the rules by which an alert is true, late, false or not to be judged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from healthsvc.evaluation.alert_episodes import AlertEpisode
from healthsvc.evaluation.episodes import HALF, MERGE_WITHIN_S, Episode, Episodes, covers
from healthsvc.evaluation.labels import THROTTLING
from healthsvc.fleet import CLASSES, DAY_S, LEAD_MIN_S

UNNAMED_DECOY = "unnamed"


class Outcome(StrEnum):
    """What became of an alert."""

    TRUE = "true"  # raised within the horizon before an event of its class, with time to act
    LATE = "late"  # raised too late to act, or during the event: a detection, neither false nor a prediction
    FALSE = "false"
    CENSORED = "censored"  # its horizon reaches beyond what is known
    IN_MAINTENANCE = "in_maintenance"  # raised while its scope was worked on


class Fate(StrEnum):
    """What became of an event."""

    PREDICTED = "predicted"
    LATE = "late"
    MISSED = "missed"


def _horizons() -> Mapping[str, float]:
    return MappingProxyType({**dict.fromkeys(CLASSES, 30 * DAY_S), THROTTLING: DAY_S})


@dataclass(frozen=True)
class MatchRule:
    """horizons_s: how long before the event an alert of the class may come; lead_min_s: how long before it must.

    tail_s: an event goes on for so long after its end, which is the rule by which labels are merged.
    """

    horizons_s: Mapping[str, float] = field(default_factory=_horizons)
    lead_min_s: float = LEAD_MIN_S
    tail_s: float = MERGE_WITHIN_S

    def predicts(self, event: Episode, at_s: float) -> bool:
        """Whether an alert of the event's class, raised then, foresaw it."""
        return event.start_s - self.horizons_s[event.failure_class] <= at_s <= event.start_s - self.lead_min_s

    def detects(self, event: Episode, at_s: float) -> bool:
        """Whether it came too late for that, but no later than the event."""
        return event.start_s - self.lead_min_s < at_s <= event.end_s + self.tail_s


@dataclass(frozen=True)
class Matching:
    """alerts, with `matched` set, in order of raising, and events in order of start; the rest are columns of these.

    decoy: of a false alert, the kind of decoy that it fell for, or "". wrong_class bool[alert]: false, although the
    GPU failed of another class. lead_s float64[event]: from the first alert that foresaw it, NaN if none did.
    """

    alerts: tuple[AlertEpisode, ...]
    outcomes: tuple[Outcome, ...]
    decoy: tuple[str, ...]
    wrong_class: NDArray[np.bool_]
    events: tuple[Episode, ...]
    fates: tuple[Fate, ...]
    lead_s: NDArray[np.float64]

    def of_classes(self, *classes: str) -> "Matching":
        """Only the alerts and the events of these classes."""
        return self._select(
            [i for i, alert in enumerate(self.alerts) if alert.failure_class in classes],
            [i for i, event in enumerate(self.events) if event.failure_class in classes],
        )

    def within(self, start_s: float, end_s: float) -> "Matching":
        """Only alerts raised and events begun in (start_s, end_s]; what became of them stays, whatever made it so."""
        return self._select(
            [i for i, alert in enumerate(self.alerts) if start_s < alert.raised_s <= end_s],
            [i for i, event in enumerate(self.events) if start_s < event.start_s <= end_s],
        )

    def _select(self, alerts: list[int], events: list[int]) -> "Matching":
        """`matched` counts the chosen events; None for an alert whose event is not among them."""
        renumbered: dict[int | None, int] = {old: new for new, old in enumerate(events)}
        return Matching(
            tuple(replace(self.alerts[i], matched=renumbered.get(self.alerts[i].matched)) for i in alerts),
            tuple(self.outcomes[i] for i in alerts),
            tuple(self.decoy[i] for i in alerts),
            self.wrong_class[np.array(alerts, np.intp)],
            tuple(self.events[i] for i in events),
            tuple(self.fates[i] for i in events),
            self.lead_s[np.array(events, np.intp)],
        )


def match_alerts(
    alerts: Iterable[AlertEpisode], episodes: Episodes, known_until_s: float, rule: MatchRule | None = None
) -> Matching:
    """Judge every alert and every event.

    An alert foresees every event of its class and scope that begins within the horizon after it was raised, so one
    alert that stands through a series of failures has told of each; it is counted once, and `matched` to the next one
    to come. Raised longer than the horizon before an event it does not foresee it, even if it still stands.
    known_until_s: labels after this moment are not in yet. Give all alerts and events there are, and narrow the result
    with `within`: an alert at the end of a window may speak of an event after it.
    """
    rule = rule or MatchRule()
    ordered = sorted(alerts, key=lambda a: (a.raised_s, a.scope, a.failure_class, a.cleared_s))
    events = tuple(sorted(episodes.events, key=lambda e: (e.start_s, e.scope, e.failure_class)))
    by_gpu = _by_gpu(events)
    judged = [_judge(alert, events, by_gpu, episodes, known_until_s, rule) for alert in ordered]
    lead_s = np.full(len(events), np.nan)
    detected = np.zeros(len(events), bool)
    matched: list[AlertEpisode] = []
    for alert, verdict in zip(ordered, judged, strict=True):
        matched.append(replace(alert, matched=verdict.event))
        for event in verdict.foreseen:
            lead_s[event] = np.fmax(lead_s[event], events[event].start_s - alert.raised_s)
        detected[list(verdict.detected)] = True
    fates = tuple(
        Fate.PREDICTED if not np.isnan(lead) else Fate.LATE if late else Fate.MISSED
        for lead, late in zip(lead_s, detected, strict=True)
    )
    return Matching(
        tuple(matched),
        tuple(verdict.outcome for verdict in judged),
        tuple(verdict.decoy for verdict in judged),
        np.array([verdict.wrong_class for verdict in judged], bool),
        events,
        fates,
        lead_s,
    )


@dataclass(frozen=True)
class _Verdict:
    outcome: Outcome
    foreseen: tuple[int, ...] = ()
    detected: tuple[int, ...] = ()
    decoy: str = ""
    wrong_class: bool = False

    @property
    def event(self) -> int | None:
        """The event that it speaks of: the next one to come, else the one that goes on."""
        return next(iter((*self.foreseen, *self.detected)), None)


def _by_gpu(events: Sequence[Episode]) -> Mapping[str, list[int]]:
    """device_id -> events that befell it, in order of start; also scope -> events, for places of unknown members."""
    found: dict[str, list[int]] = {}
    for i, event in enumerate(events):
        for name in event.members | {event.scope}:
            found.setdefault(name, []).append(i)
    return found


def _judge(
    alert: AlertEpisode,
    events: Sequence[Episode],
    by_gpu: Mapping[str, list[int]],
    episodes: Episodes,
    known_until_s: float,
    rule: MatchRule,
) -> _Verdict:
    at_s = alert.raised_s
    if any(covers(work, alert.members, at_s) for work in episodes.maintenance):
        return _Verdict(Outcome.IN_MAINTENANCE)
    touching = sorted({i for name in alert.members | {alert.scope} for i in by_gpu.get(name, ())})
    same = [i for i in touching if events[i].failure_class == alert.failure_class and _shares(alert, events[i])]
    foreseen = tuple(i for i in same if rule.predicts(events[i], at_s))
    detected = tuple(i for i in same if rule.detects(events[i], at_s))
    if foreseen or detected:
        return _Verdict(Outcome.TRUE if foreseen else Outcome.LATE, foreseen, detected)
    decoy = next((d for d in episodes.decoys if d.members & alert.members and _during(d, at_s, rule.tail_s)), None)
    others = (events[i] for i in touching if events[i].failure_class != alert.failure_class)
    wrong_class = alert.failure_class in CLASSES and any(
        rule.predicts(other, at_s) or rule.detects(other, at_s) for other in others
    )
    if decoy is not None:
        return _Verdict(Outcome.FALSE, decoy=decoy.scenario or UNNAMED_DECOY, wrong_class=wrong_class)
    open_still = at_s + rule.horizons_s[alert.failure_class] > known_until_s
    return _Verdict(Outcome.CENSORED if open_still and not wrong_class else Outcome.FALSE, wrong_class=wrong_class)


def _shares(alert: AlertEpisode, event: Episode) -> bool:
    """Whether they speak of the same: the scope, or at least half of the event's members."""
    return alert.scope == event.scope or len(alert.members & event.members) >= HALF * len(event.members)


def _during(decoy: Episode, at_s: float, tail_s: float) -> bool:
    return decoy.start_s <= at_s <= decoy.end_s + tail_s
