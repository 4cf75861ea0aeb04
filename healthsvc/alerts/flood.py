"""Fifth stage: too many new alerts at once are folded into one with the list, and follow a few at a time."""

from dataclasses import replace
from functools import partial

from healthsvc.alerts.alert import SEVERITIES, Alert, Held, Rank
from healthsvc.alerts.draft import Candidate, Draft, Moment, Want
from healthsvc.alerts.fold import hold_back
from healthsvc.alerts.hold import follow, merge
from healthsvc.alerts.policy import FLOOD
from healthsvc.alerts.propose import NO, YES
from healthsvc.alerts.state import Case
from healthsvc.alerts.words import flood_alert

SUBJECT = "flood"


def guard_flood(draft: Draft, moment: Moment) -> Draft:
    """Hold back this cycle's new alerts when, with those of the last minutes, they exceed the limit.

    A subject is new once: when it is first due, whether it fires or is folded. A folded one waits for one window, then
    fires as soon as fewer than the limit have been released in the last window, the gravest first; meanwhile it keeps
    no other one waiting. T1 facts, domain incidents, escalations and what stood before a time without data neither
    count nor wait.
    """
    policy, now_s = moment.policy, moment.now_s
    limit = policy.flood_limit(len(moment.report.gpus))
    news_s, released_s = (_within(policy.flood_window_s, now_s, at) for at in (draft.news_s, draft.released_s))
    guarded = [candidate for candidate in draft.candidates if not candidate.exempt]
    folded_s = {c.subject: at for c in guarded if (at := draft.cases[c.subject].folded_s) is not None}
    fresh = [candidate.subject for candidate in guarded if candidate.subject not in folded_s]
    ripe = [c for c in guarded if now_s - folded_s.get(c.subject, now_s) >= policy.flood_window_s]

    def urgency(candidate: Candidate) -> tuple[int, float, str]:
        return (SEVERITIES.index(candidate.alert.severity), folded_s[candidate.subject], candidate.subject)

    released = {c.subject for c in sorted(ripe, key=urgency)[: max(limit - len(released_s), 0)]}
    back = folded_s.keys() - released
    if len(news_s) + len(fresh) > limit:
        back |= set(fresh)
    listed = [candidate.alert for candidate in guarded if candidate.subject in back]
    draft = hold_back(draft, lambda c: c.subject in back, Held.FLOOD)
    folded = {s: replace(draft.cases[s], folded_s=folded_s.get(s, now_s)) for s in back}
    draft = replace(
        draft,
        cases={**draft.cases, **folded} if folded else draft.cases,
        news_s=news_s + (now_s,) * len(fresh),
        released_s=released_s + (now_s,) * len(released),
    )
    return _tell(draft, moment, listed)


def _within(window_s: float, now_s: float, moments_s: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(at_s for at_s in moments_s if now_s - at_s < window_s)


def _tell(draft: Draft, moment: Moment, listed: list[Alert]) -> Draft:
    """The alert that stands for the folded ones, and for a window after the last of them."""
    case = draft.cases.get(SUBJECT)
    if not listed and case is None:
        return draft
    wanted = YES if listed else NO
    kept = case.alert if case and not listed else None  # the list stands until the alert ends
    build = partial(_as_it_was, kept) if kept else partial(flood_alert, listed)
    want = Want(SUBJECT, FLOOD, wanted, wanted, not listed, build)
    case = case or Case(SUBJECT, FLOOD, informed_s=moment.now_s)
    return merge(draft, {SUBJECT: follow(case, want, moment.now_s, moment.policy)})


def _as_it_was(alert: Alert, _rank: Rank, _raised_s: float) -> Alert:
    return alert
