"""Fifth stage: too many new alerts at once are folded into one with the list."""

from dataclasses import replace
from functools import partial

from healthsvc.alerts.alert import Alert, Held, Rank
from healthsvc.alerts.draft import Draft, Moment, Want
from healthsvc.alerts.fold import hold_back
from healthsvc.alerts.hold import follow, merge
from healthsvc.alerts.policy import FLOOD
from healthsvc.alerts.propose import NO, YES
from healthsvc.alerts.state import Case
from healthsvc.alerts.words import flood_alert

SUBJECT = "flood"


def guard_flood(draft: Draft, moment: Moment) -> Draft:
    """Hold back this cycle's new alerts when, with those of the last minutes, they exceed the limit.

    T1 facts, domain incidents and escalations neither count nor wait. The guard delays and never forgets: what is
    still wanted when the window has passed, and is few enough, fires by itself.
    """
    policy, now_s = moment.policy, moment.now_s
    recent = tuple(at for at in draft.raises_s if now_s - at < policy.flood_window_s)
    fresh = [candidate for candidate in draft.candidates if not candidate.exempt]
    flooded = len(recent) + len(fresh) > policy.flood_limit(len(moment.report.gpus)) and bool(fresh)
    if flooded:
        draft = hold_back(draft, lambda c: not c.exempt, Held.FLOOD)
    else:
        recent += (now_s,) * len(fresh)
    draft = replace(draft, raises_s=recent)
    case = draft.cases.get(SUBJECT)
    if not flooded and case is None:
        return draft
    wanted = YES if flooded else NO
    kept = case.alert if case and not flooded else None  # the list stands until the alert ends
    build = partial(_as_it_was, kept) if kept else partial(flood_alert, [candidate.alert for candidate in fresh])
    want = Want(SUBJECT, FLOOD, wanted, wanted, not flooded, build)
    return merge(draft, {SUBJECT: follow(case or Case(SUBJECT, FLOOD, informed_s=now_s), want, now_s, policy)})


def _as_it_was(alert: Alert, _rank: Rank, _raised_s: float) -> Alert:
    return alert
