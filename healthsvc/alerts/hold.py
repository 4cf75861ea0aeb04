"""Third stage: hysteresis. A condition lasts before it fires, is calm before it clears, and then stays away a while."""

from dataclasses import dataclass, replace

from healthsvc.alerts.alert import Alert, Held, Rank, Resolution
from healthsvc.alerts.draft import Candidate, Draft, Moment, Want
from healthsvc.alerts.policy import DOMAIN, FLOOD, UNKNOWN, WIDE_UNKNOWN, AlertPolicy
from healthsvc.alerts.state import NEVER, Case
from healthsvc.fleet import CLASSES


@dataclass(frozen=True)
class Step:
    """What one cycle did to one case."""

    case: Case | None
    candidate: Candidate | None = None
    held: tuple[Alert, Held] | None = None
    resolved: Alert | None = None


def hold(draft: Draft, moment: Moment) -> Draft:
    """Advance every case by one cycle; those whose condition has lasted become candidates."""
    now_s, policy = moment.now_s, moment.policy
    steps: dict[str, Step] = {}
    for want in draft.wants:
        case = draft.cases.get(want.subject) or Case(want.subject, want.group, want.device_id, informed_s=now_s)
        steps[want.subject] = follow(case, want, now_s, policy)
    for subject, case in draft.cases.items():
        if subject not in steps and case.group != FLOOD:
            steps[subject] = _without_want(case, now_s, policy)
    warm = now_s - draft.started_s >= policy.warm_up_s
    return merge(draft, steps, warm)


def merge(draft: Draft, steps: dict[str, Step], warm: bool = True) -> Draft:
    """The draft after these steps."""
    cases, held, resolved = dict(draft.cases), list(draft.held), list(draft.resolved)
    candidates = list(draft.candidates)
    for subject, step in steps.items():
        if step.case is None:
            cases.pop(subject, None)
        else:
            cases[subject] = step.case
        if step.held:
            held.append(step.held)
        if step.resolved:
            resolved.append(step.resolved)
        if step.candidate and step.candidate.group == UNKNOWN and not warm:
            held.append((step.candidate.alert, Held.WARM_UP))
        elif step.candidate:
            candidates.append(step.candidate)
    return replace(draft, cases=cases, candidates=tuple(candidates), held=tuple(held), resolved=tuple(resolved))


def follow(case: Case, want: Want, now_s: float, policy: AlertPolicy) -> Step:
    """One case, with what the report says about it."""
    if not want.informed:
        return _silent(case, now_s, policy)
    returns = case.taken_over
    since = [(now_s if s is None else s) if w else None for w, s in zip(want.wanted, case.since_s, strict=True)]
    case = replace(
        case, since_s=tuple(since), informed_s=now_s, change_p=want.change_p, place=want.place, taken_over=False
    )
    hold_s = policy.hold_s(want.group)
    lasted = [r for r in Rank if (s := since[r]) is not None and (want.fact[r] or now_s - s >= hold_s)]
    due, asked = max(lasted, default=None), max((r for r in Rank if want.wanted[r]), default=None)
    if case.firing is not None and case.alert is not None:
        return _standing(case, case.firing, case.alert, want, (due, asked), now_s, policy)
    if case.cooled_s is not None and now_s - case.cooled_s >= policy.cooldown_s(want.group):
        case = replace(case, cooled_rank=None, cooled_s=None)
    if due is None:
        case = replace(case, folded_s=None)
        return Step(case, held=None if asked is None else (want.build(asked, now_s), Held.HOLD))
    if case.cooled_rank is not None and due <= case.cooled_rank and not want.fact[due]:
        return Step(case, held=(want.build(due, now_s), Held.COOLDOWN))
    return Step(case, candidate=_candidate(want, due, now_s, known=returns))


def _standing(
    case: Case,
    rank: Rank,
    alert: Alert,
    want: Want,
    due_and_asked: tuple[Rank | None, Rank | None],
    now_s: float,
    policy: AlertPolicy,
) -> Step:
    """A case whose alert stands: it escalates, clears, or is told anew with today's numbers."""
    due, asked = due_and_asked
    retold = replace(case, alert=want.build(rank, alert.raised_s))
    if due is not None and due > rank:
        return Step(replace(retold, calm_since_s=None), candidate=_candidate(want, due, now_s, known=True))
    calm_since_s = (now_s if case.calm_since_s is None else case.calm_since_s) if want.calm else None
    calm_for_s = 0.0 if calm_since_s is None else now_s - calm_since_s
    if want.over or (want.calm and calm_for_s >= policy.clear_after_s(want.group)):
        return _cleared(case, now_s, policy)
    rising = asked if asked is not None and asked > rank else None
    held = None if rising is None else (want.build(rising, now_s), Held.HOLD)
    return Step(replace(retold, calm_since_s=calm_since_s), held=held)


def _candidate(want: Want, rank: Rank, now_s: float, *, known: bool) -> Candidate:
    """known: people have had an alert of it, which climbs, or stood before a time without data; no news, no flood."""
    terminal_fact = rank is Rank.TERMINAL and want.fact[rank]
    exempt = known or terminal_fact or want.group in (DOMAIN, WIDE_UNKNOWN, FLOOD)
    alert = want.build(rank, now_s)
    return Candidate(want.subject, want.group, rank, want.fact[rank], exempt, alert, want.device_id)


def _cleared(case: Case, now_s: float, policy: AlertPolicy) -> Step:
    ended = case.alert.ended(Resolution.CLEARED) if case.alert else None
    if not policy.cooldown_s(case.group):
        return Step(None, resolved=ended)
    over = replace(case, firing=None, alert=None, calm_since_s=None, cooled_rank=case.firing, cooled_s=now_s)
    return Step(over, resolved=ended)


def _silent(case: Case, now_s: float, policy: AlertPolicy) -> Step:
    """No data: silence is no recovery, so nothing moves until it has lasted too long."""
    if now_s - case.informed_s < policy.silence_s or case.taken_over:
        return Step(case)
    over = replace(case, since_s=NEVER, firing=None, calm_since_s=None, folded_s=None)
    if case.firing is None or case.alert is None:
        return Step(replace(over, alert=None))
    ended = case.alert.ended(Resolution.TAKEN_OVER, "no data; see GpuTelemetryUnknown")
    return Step(replace(over, taken_over=True), resolved=ended)


def _without_want(case: Case, now_s: float, policy: AlertPolicy) -> Step:
    """The report does not speak of it: a GPU that left may come back; an incident or a silent host is over."""
    if case.group in CLASSES:
        if now_s - case.informed_s < policy.silence_s:
            return Step(case)
        stood = case.alert if case.firing is not None else None
        return Step(None, resolved=stood and stood.ended(Resolution.DEPARTED, "the fleet has no such GPU any more"))
    if case.taken_over:
        return Step(None)
    calm_since_s = now_s if case.calm_since_s is None else case.calm_since_s
    if case.firing is None:
        return Step(None)
    if now_s - calm_since_s >= policy.clear_after_s(case.group):
        return _cleared(case, now_s, policy)
    return Step(replace(case, since_s=NEVER, calm_since_s=calm_since_s))
