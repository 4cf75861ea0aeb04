"""The stages in their order, and the decision they end in."""

from dataclasses import dataclass, replace

from healthsvc.alerts.alert import Alert, Held, Resolution
from healthsvc.alerts.draft import Draft, Moment, Stage
from healthsvc.alerts.flood import guard_flood
from healthsvc.alerts.fold import fold_thermal, fold_unknown
from healthsvc.alerts.hold import hold
from healthsvc.alerts.policy import AlertPolicy
from healthsvc.alerts.propose import propose
from healthsvc.alerts.settle import settle
from healthsvc.alerts.state import AlertState
from healthsvc.fleet import RiskReport


@dataclass(frozen=True)
class Decision:
    """firing: everything that stands after this cycle; resolved: what ended in it; held: what is wanted but does not
    fire, with the reason."""

    state: AlertState
    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()
    held: tuple[tuple[Alert, Held], ...] = ()


def fire(draft: Draft, moment: Moment) -> Draft:
    """Raise the candidates that every stage let through; a graver alert replaces the one it grew from."""
    cases, resolved = dict(draft.cases), list(draft.resolved)
    for candidate in draft.candidates:
        case = cases[candidate.subject]
        if case.firing is not None and case.alert:
            resolved.append(case.alert.ended(Resolution.ESCALATED, f"see {candidate.alert.alertname}"))
        cases[candidate.subject] = replace(
            case, firing=candidate.rank, alert=candidate.alert, calm_since_s=None, folded_s=None
        )
    return replace(draft, cases=cases, resolved=tuple(resolved), candidates=())


STAGES: tuple[Stage, ...] = (propose, settle, hold, fold_thermal, fold_unknown, guard_flood, fire)


def decide(state: AlertState, report: RiskReport, now_s: float, policy: AlertPolicy) -> Decision:
    """What should fire now. Pure: the same state, report and time give the same decision, live and in a back-test.

    Blind to anything that is not in the report: a class without data changes nothing for `silence_s`, then its alert
    ends and GpuTelemetryUnknown names it.
    """
    quiet = state.last_s is None or state.started_s is None or now_s - state.last_s > policy.warm_up_s
    started_s = now_s if quiet or state.started_s is None else state.started_s
    moment = Moment(report, now_s, policy, state)
    draft = Draft(state.cases, started_s, news_s=state.news_s, released_s=state.released_s)
    for stage in STAGES:
        draft = stage(draft, moment)
    kept = {subject: case for subject, case in draft.cases.items() if not case.idle()}
    after = AlertState(kept, started_s, now_s, draft.news_s, draft.released_s)
    return Decision(after, after.firing(), draft.resolved, draft.held)
