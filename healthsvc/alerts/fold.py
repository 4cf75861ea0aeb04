"""Fourth stage: many effects of one cause are one alert."""

from collections.abc import Callable
from dataclasses import replace

from healthsvc.alerts.alert import Held
from healthsvc.alerts.draft import Candidate, Draft, Moment
from healthsvc.alerts.policy import UNKNOWN
from healthsvc.alerts.propose import WIDE


def fold_thermal(draft: Draft, moment: Moment) -> Draft:
    """Members of an open incident get no thermal alert of their own, neither of failure nor of degrading; facts do.

    Alerts that already stand remain. An incident at watch wakes nobody, so nothing folds under it. What is still true
    when the incident clears fires then.
    """
    members = {m for i in moment.report.incidents if i.state in ("predicted", "active") for m in i.members}
    return hold_back(
        draft, lambda c: c.group == "thermal" and not c.fact and c.device_id in members, Held.UNDER_INCIDENT
    )


def fold_unknown(draft: Draft, _moment: Moment) -> Draft:
    """While one alert says that many hosts are unknown, no further host gets its own."""
    wide = draft.cases.get(WIDE)
    standing = wide is not None and wide.firing is not None
    if not standing and all(candidate.subject != WIDE for candidate in draft.candidates):
        return draft
    return hold_back(draft, lambda c: c.group == UNKNOWN, Held.UNDER_WIDER_UNKNOWN)


def hold_back(draft: Draft, which: Callable[[Candidate], bool], reason: Held) -> Draft:
    """The draft without these candidates, each noted with the reason."""
    back = [candidate for candidate in draft.candidates if which(candidate)]
    held = draft.held + tuple((candidate.alert, reason) for candidate in back)
    kept = tuple(candidate for candidate in draft.candidates if not which(candidate))
    return replace(draft, candidates=kept, held=held)
