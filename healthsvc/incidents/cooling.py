"""Where cooling fails now: from facts, from an excess of onsets, from forecasts, from steps in thermal resistance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.events import ONSET_BIN_S
from healthsvc.fleet import LEAST_MEMBERS, DomainForecast, EventKind, EventLog, FleetHistory
from healthsvc.incidents.candidate import Candidate, Level
from healthsvc.incidents.causes import cause_of
from healthsvc.incidents.places import Place, Places, chosen_places
from healthsvc.incidents.policy import IncidentPolicy
from healthsvc.incidents.sensors import flow_shares, tracks

Flags = NDArray[np.bool_]
ONSETS_WITHIN_S = 600.0
FLOW_SHARE = 0.5  # of rated: below it the flow is a fact that needs no victims
NEARLY = 0.8  # of the threshold: near enough for a place within one that is beyond it, and that it explains
SCATTERED = 0.05  # of a place: so few that throttle already, each for a reason of its own, make it no cascade
LIVELY = 0.1  # of the threshold: a place that is so likely to throttle has a part in what its wider place does
TWO_HOURS = 1  # of the forecast's horizons


class Sign(IntEnum):
    """What speaks for a place, the strongest last."""

    NONE = 0
    STEP = 1  # its thermal resistance has risen
    LIKELY = 2  # its members are likely to throttle together
    EXCESS = 3  # more of them began than heat and load explain
    STRUCK = 4  # half of them began within ten minutes
    STARVED = 5  # measured flow below half of rated


LEVELS = {Sign.STEP: Level.WATCH, Sign.LIKELY: Level.PREDICTED}


@dataclass(frozen=True)
class _Fresh:
    """Who began to throttle by heat just now: the log, and the rank of each GPU in it [gpu], len(log) for none."""

    log: EventLog
    order: NDArray[np.intp]

    @property
    def began(self) -> Flags:
        return np.asarray(self.order < len(self.log))


def _fresh(history: FleetHistory) -> _Fresh:
    events, now_s = history.events.of(EventKind.THERMAL_THROTTLE), history.now_s
    # An onset stands at the beginning of its bin, which may be that much before it.
    log = events.where((events.start_s > now_s - ONSETS_WITHIN_S - ONSET_BIN_S) & (events.start_s <= now_s))
    order = np.full(len(history.gpus), len(log), np.intp)
    np.minimum.at(order, log.row, np.arange(len(log)))
    return _Fresh(log, order)


def cooling_candidates(
    history: FleetHistory,
    domains: DomainForecast,
    hot: Flags,
    policy: IncidentPolicy,
    steps: Mapping[Place, float],
) -> Iterator[Candidate]:
    """One for each group of overlapping places for which something speaks; hot bool[gpu]: throttled by heat now.

    A measured cause says more than a count of victims, and a fact more than a forecast: the place for which the
    strongest sign speaks leads. A flow below half of rated gives the place too; else it is the smallest that holds
    four fifths of those who throttle, or are about to.
    """
    starved = {place: share for place, share in flow_shares(history).items() if share < FLOW_SHARE}
    places, at = chosen_places(domains, history.topology, (*starved, *steps))
    fresh = _fresh(history)
    sign, onsets = _signs(
        places, _Forecast.of(domains, at, places.size, policy), fresh, starved, steps, len(history.gpus)
    )
    chosen = np.flatnonzero(sign)
    if not len(chosen):
        return
    group, of_gpu = places.overlapping(chosen, len(history.gpus))
    ranked = np.lexsort((chosen, places.size[chosen], -sign[chosen], group))
    leads = chosen[ranked[np.unique(group[ranked], return_index=True)[1]]]
    best = _held_by(places, of_gpu, hot | fresh.began, sign[leads] >= Sign.EXCESS)
    first = places.lowest(fresh.order)
    for number, lead in enumerate(leads.tolist()):
        strongest = Sign(sign[lead])
        place = lead if strongest in (Sign.STARVED, Sign.STEP) or best[number] < 0 else int(best[number])
        rows = places.members[place]
        seen = _words(strongest, int(onsets[lead]), int(places.size[lead]), steps.get(places.names[lead], 0.0))
        kind, cause = cause_of(
            history, places.names[place], rows, tracks(history, rows), seen, strongest is Sign.STARVED
        )
        mover, began_s = _first_gpu(history, fresh, int(first[lead]))
        if strongest is Sign.STARVED:  # it was low before anybody was hot
            mover, began_s = f"coolant flow of {places.names[lead][1]}", None
        members = tuple(history.gpus[row].device_id for row in rows.tolist())
        level = LEVELS.get(strongest, Level.ACTIVE)
        yield Candidate(*places.names[place], members, tuple(rows.tolist()), level, kind, cause, mover, began_s)


def _first_gpu(history: FleetHistory, fresh: _Fresh, rank: int) -> tuple[str, float | None]:
    """(device_id, when it began) of the one that began as this one of all; ("", None) for none."""
    if rank >= len(fresh.log):
        return "", None
    return history.gpus[int(fresh.log.row[rank])].device_id, float(fresh.log.start_s[rank])


@dataclass(frozen=True)
class _Forecast:
    """What the forecast says of each place, each [domain]; of those that it does not speak of, nothing."""

    likely: Flags
    nearly: Flags
    excess: Flags
    lively: Flags

    @staticmethod
    def of(
        domains: DomainForecast, at: NDArray[np.intp], size: NDArray[np.intp], policy: IncidentPolicy
    ) -> "_Forecast":
        """at: the number of each place in the forecast, -1 for none; size: its members, each [domain]."""
        # At the end of each stands what is said of a place that the forecast does not know, at -1.
        chance = np.append(domains.probability_at_least_k[:, LEAST_MEMBERS - 1, TWO_HOURS], np.nan)[at]
        excess_p = np.append(domains.excess_p, np.nan)[at]
        watch = np.append(domains.watch, False)[at]
        hot = np.append(domains.throttling, 0)[at]
        scattered = (hot >= LEAST_MEMBERS) & (hot < SCATTERED * size)
        excess = np.zeros(len(at), bool)
        tested = np.flatnonzero(~np.isnan(excess_p))  # but once a half hour, none
        if len(tested):
            bars = np.array([policy.excess_of(domains.domains[number][0]) for number in at[tested].tolist()])
            excess[tested] = excess_p[tested] < bars
        return _Forecast(
            np.asarray((chance >= policy.domain_p_2h) & ~scattered),
            np.asarray((chance >= NEARLY * policy.domain_p_2h) & ~scattered),
            excess,
            np.asarray(watch | (chance >= LIVELY * policy.domain_p_2h)),
        )


def _signs(
    places: Places,
    forecast: _Forecast,
    fresh: _Fresh,
    starved: Mapping[Place, float],
    steps: Mapping[Place, float],
    gpus: int,
) -> tuple[NDArray[np.int8], NDArray[np.intp]]:
    """The strongest sign that speaks for each place, and how many of its members began just now, each [domain]."""
    sign = np.zeros(len(places.names), np.int8)
    onsets = places.count(fresh.began)
    named = {place: number for number, place in enumerate(places.names)} if starved or steps else {}
    sign[[named[place] for place in steps if place in named]] = Sign.STEP
    sign[forecast.likely] = Sign.LIKELY
    if forecast.likely.any():
        # A row is a little likelier than the loop in it that is the cause: both are.
        within = np.zeros(gpus, bool)
        within[places.row[forecast.likely[places.domain]]] = True
        sign[forecast.nearly & (places.count(within) == places.size)] = Sign.LIKELY
    sign[forecast.excess] = Sign.EXCESS
    sign[onsets >= np.maximum(LEAST_MEMBERS, (places.size + 1) // 2)] = Sign.STRUCK
    sign[[named[place] for place in starved if place in named]] = Sign.STARVED
    sign[places.size == 0] = Sign.NONE
    # A row is likely to have three that throttle as soon as one of its nodes is: what explains it is the node, unless
    # two thirds of the row have a part in it.
    for weak in (Sign.EXCESS, Sign.LIKELY):
        wide = sign == weak
        if wide.any():
            marked = sign >= weak
            inner = places.within_smaller(marked, gpus)
            alive = places.within_smaller(marked | forecast.lively, gpus)
            sign[wide & (inner > 0) & (3 * alive <= 2 * places.size)] = Sign.NONE
    return sign, onsets


def _held_by(places: Places, of_gpu: NDArray[np.intp], hit: Flags, observed: Flags) -> NDArray[np.intp]:
    """The smallest place that holds four fifths of each group's affected GPUs [group], -1 if none does.

    of_gpu: the group of each GPU; hit [gpu]: throttles, or began just now. Affected are those that are hit, where the
    group has been struck (`observed` [group]) and at least three are; else all of its places, as one GPU that throttles
    does not say where it will end.
    """
    groups = len(observed)
    enough = np.bincount(of_gpu[hit & (of_gpu >= 0)], minlength=groups) >= LEAST_MEMBERS
    told = np.append(enough & observed, False)[of_gpu]  # the last: of GPUs without a group
    return places.smallest_holding(np.where(hit | ~told, of_gpu, -1), groups)


def _words(sign: Sign, onsets: int, size: int, shift: float) -> str:
    if sign is Sign.STRUCK:
        return f"{onsets} of {size} GPUs began to throttle by heat within 10 minutes"
    if sign is Sign.EXCESS:
        return "more GPUs began to throttle in half an hour than their heat and load explain"
    if sign is Sign.STEP:
        return f"thermal resistance {100 * np.expm1(shift):.0f} % above that of two weeks"
    return "several members are likely to throttle together"
