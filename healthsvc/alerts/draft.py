"""What the stages hand on: wants, candidates, what is held back and what has ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from healthsvc.alerts.alert import Alert, Held, Rank
from healthsvc.alerts.policy import AlertPolicy
from healthsvc.alerts.state import AlertState, Case
from healthsvc.fleet import RiskReport


@dataclass(frozen=True)
class Want:
    """What this cycle's report says about one subject.

    wanted and fact: by rank, whether the condition holds, and whether it is a fact that needs no hold and no quota.
    calm: clearly below its threshold; over: declared over, by whoever waited until it was. informed: the report has
    data on it; without, nothing changes. build(rank, raised_s) words the alert.
    """

    subject: str
    group: str
    wanted: tuple[bool, ...]
    fact: tuple[bool, ...]
    calm: bool
    build: Callable[[Rank, float], Alert]
    informed: bool = True
    over: bool = False
    device_id: str = ""
    place: str = ""
    change_p: float | None = None


@dataclass(frozen=True)
class Candidate:
    """An alert that has passed its hold and asks to fire. `exempt`: no flood guard may stop it."""

    subject: str
    group: str
    rank: Rank
    fact: bool
    exempt: bool
    alert: Alert
    device_id: str = ""


@dataclass(frozen=True)
class Moment:
    """The inputs that no stage changes."""

    report: RiskReport
    now_s: float
    policy: AlertPolicy
    before: AlertState


@dataclass(frozen=True)
class Draft:
    """A decision in the making; every stage gives a new one."""

    cases: Mapping[str, Case]
    started_s: float
    wants: tuple[Want, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    held: tuple[tuple[Alert, Held], ...] = ()
    resolved: tuple[Alert, ...] = ()
    news_s: tuple[float, ...] = ()
    released_s: tuple[float, ...] = ()


Stage = Callable[[Draft, Moment], Draft]
