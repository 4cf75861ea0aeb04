"""Cooling loops that lose their flow: what was raised when, against what really happened.

Every case is one loop. Its onset is that of the median member, of those that ever throttle; its alert is what the alert
stages let fire for a domain that shares a member with it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.scoring import Scorer
from healthsvc.fleet import LEAST_MEMBERS, MINUTE_S, Incident
from scripts.studies.cascade_fleet import Cycle, Run, Site, cycles, domains_only, fleet_table, make_run

LEAD_IN_HOURS, AFTER_HOURS = 2.0, 0.75
FACT_WITHIN_S, FACT_FLOW = 600.0, 0.5
EARLIER = 0.5  # minutes: what happens in the same cycle is not before it


@dataclass(frozen=True)
class Loss:
    """How a loop loses its flow. start_minutes: after the lead-in."""

    loop: int
    start_minutes: float
    ramp_minutes: float
    remaining_ratio: float

    @property
    def start_day(self) -> float:
        """Since the run began."""
        return (LEAD_IN_HOURS * 60 + self.start_minutes) / 1440.0

    def fault(self) -> dict[str, Any]:
        """As a scenario says it."""
        return {
            "kind": "loop_flow_loss",
            "target": f"loop-{self.loop + 1}",
            "start_day": self.start_day,
            "ramp_minutes": self.ramp_minutes,
            "remaining_ratio": self.remaining_ratio,
        }


@dataclass(frozen=True)
class Kind:
    """Losses to draw from: minutes of the ramp, and the share of the flow that is lost in the end, evenly."""

    minutes: tuple[float, float]
    lost: tuple[float, float]

    def draw(self, loops: Sequence[int], rng: np.random.Generator) -> list[Loss]:
        """One a loop, beginning within the hour after the lead-in."""
        return [
            Loss(loop, rng.uniform(0, 60), rng.uniform(*self.minutes), 1.0 - rng.uniform(*self.lost)) for loop in loops
        ]

    @property
    def hours(self) -> float:
        """How long a run has to be to see them all through."""
        return LEAD_IN_HOURS + 1.0 + self.minutes[1] / 60.0 + AFTER_HOURS


@dataclass
class Case:
    """One loop; times in minutes after its flow began to fall, NaN = never.

    throttled: members that ever did; onset and third: of the median and the third of them; fact: the first sample that
    shows what needs no test; alerted: the first alert, before: one stood already when the flow began to fall; watched:
    the loop at watch; kinds: causes given, one after the other; opened: ids of all incidents on it that alerted,
    most_open: of these at the same time; highest_p: of P(>= 3 members, 2 h) before the third onset.
    """

    loss: Loss
    throttled: int
    onset: float
    third: float
    fact: float
    alerted: float = np.nan
    before: bool = False
    watched: float = np.nan
    alertname: str = ""
    layer: str = ""
    kinds: list[str] = field(default_factory=list)
    opened: set[str] = field(default_factory=set)
    most_open: int = 0
    highest_p: float = 0.0


@dataclass
class Watched:
    """The cases of a run as its cycles go by; strangers: incidents that alerted where nothing was wrong."""

    run: Run
    cases: list[Case]
    strangers: set[str] = field(default_factory=set)
    _loop_of: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        pairs = zip(self.run.window.gpus, self.run.layout.loop_of.tolist(), strict=True)
        self._loop_of = {gpu.device_id: loop for gpu, loop in pairs}

    def note(self, cycle: Cycle) -> None:
        """Take down what stands now."""
        report = cycle.snapshot.report
        loops = {each.id: {self._loop_of[member] for member in each.members} for each in report.incidents}
        told = {each.id: each for each in report.incidents}
        fired = {alert.annotations["incident"] for alert in cycle.firing if "incident" in alert.annotations}
        alerting = [told[name] for name in sorted(fired & told.keys()) if told[name].state != "cleared"]
        struck = {case.loss.loop for case in self.cases}
        self.strangers |= {each.id for each in alerting if not loops[each.id] & struck}
        domains = {place: row for row, place in enumerate(report.domains[0].domains)} if report.domains else {}
        for case in self.cases:
            minutes = (cycle.now_s - self.run.start_s) / MINUTE_S - case.loss.start_day * 1440.0
            here = [each for each in alerting if case.loss.loop in loops[each.id]]
            self._note_alerts(case, minutes, here)
            row = domains.get(("cooling_loop", f"loop-{case.loss.loop + 1}"))
            if row is None or minutes < 0:
                continue
            at_watch = [e for e in told.values() if e.state == "watch" and case.loss.loop in loops[e.id]]
            if np.isnan(case.watched) and (at_watch or here or report.domains[0].watch[row]):
                case.watched = minutes
            if not minutes >= case.third:
                p = float(report.domains[0].probability_at_least_k[row, LEAST_MEMBERS - 1, 1])
                case.highest_p = max(case.highest_p, p)

    @staticmethod
    def _note_alerts(case: Case, minutes: float, here: Sequence[Incident]) -> None:
        case.opened |= {each.id for each in here}
        case.most_open = max(case.most_open, len(here))
        if minutes < 0:
            case.before = bool(here)
        elif here:
            if np.isnan(case.alerted):
                case.alerted, case.alertname, case.layer = minutes, here[0].alertname, here[0].layer
            if case.kinds[-1:] != [here[0].kind]:
                case.kinds.append(here[0].kind)


def walk(
    kind: Kind, cases: int, seed: int, site: Site, scorer: Scorer | None = None
) -> tuple[list[Case], frozenset[str]]:
    """One fleet in which every second loop fails; its twin in the same row stays well. The cases, and the strangers."""
    losses = kind.draw(range(0, 2 * cases, 2), np.random.default_rng((seed, 1)))
    begins = float(np.random.default_rng((seed, 2)).uniform(0.0, 24.0 - kind.hours))
    run = make_run(fleet_table(2 * cases), [loss.fault() for loss in losses], kind.hours, seed, site, begins)
    seen = Watched(run, [_case(run, loss, site) for loss in losses])
    for cycle in cycles(run, scorer or domains_only()):
        seen.note(cycle)
    return seen.cases, frozenset(seen.strangers)


def _case(run: Run, loss: Loss, site: Site) -> Case:
    """What really happens to the loop."""
    since_s = run.start_s + 86_400.0 * loss.start_day
    rows = np.flatnonzero(run.layout.loop_of == loss.loop)
    begun_s = run.begun_s(since_s)
    late = (np.sort(begun_s[rows]) - since_s) / MINUTE_S
    late = late[np.isfinite(late)]
    fact_s = first_fact_s(run, begun_s, rows)
    lost = 1.0 - loss.remaining_ratio
    if site.measures_flow and lost > FACT_FLOW:
        half_s = since_s + MINUTE_S * loss.ramp_minutes * FACT_FLOW / lost
        fact_s = min(fact_s, run.start_s + np.ceil((half_s - run.start_s) / MINUTE_S) * MINUTE_S)  # the next sample
    return Case(
        loss,
        len(late),
        float(np.median(late)) if len(late) else np.nan,
        float(late[LEAST_MEMBERS - 1]) if len(late) >= LEAST_MEMBERS else np.nan,
        float((fact_s - since_s) / MINUTE_S) if np.isfinite(fact_s) else np.nan,
    )


def first_fact_s(run: Run, begun_s: NDArray[np.float64], rows: NDArray[np.intp]) -> float:
    """When half of a node, rack or loop of `rows`, and three at least, have begun within ten minutes; inf: never."""
    earliest = np.inf
    for layer in ("node", "rack", "cooling_loop"):
        for members in run.topology.members(layer):
            if not np.isin(members, rows).all():
                continue
            needed = max(LEAST_MEMBERS, (len(members) + 1) // 2)
            began = np.sort(begun_s[members])
            last = began[needed - 1 :]
            with np.errstate(invalid="ignore"):  # inf - inf: who never begins
                together = last[last - began[: len(last)] <= FACT_WITHIN_S]
            earliest = min(earliest, float(together.min(initial=np.inf)))
    return earliest


def figures(cases: Sequence[Case], strangers: int) -> dict[str, Any]:
    """What came out, as counts and quantiles; minutes."""
    throttling = [case for case in cases if case.throttled >= LEAST_MEMBERS]
    ahead = [case for case in throttling if case.onset - case.alerted > EARLIER and not case.before]
    sooner = [case for case in throttling if case.third - case.alerted > EARLIER and not case.before]
    lead = np.array([case.onset - case.alerted for case in throttling if not np.isnan(case.alerted)])
    late = np.array([case.alerted - case.fact for case in throttling if not np.isnan(case.alerted - case.fact)])
    calm = [case for case in cases if case.throttled < LEAST_MEMBERS]
    return {
        "cases": len(cases),
        "throttling": len(throttling),
        "alerted": sum(not np.isnan(case.alerted) for case in throttling),
        "before_median_onset": len(ahead),
        "stood_before": sum(case.before for case in cases),
        "before_third_onset": len(sooner),
        "lead_minutes": _quantiles(lead),
        "after_fact_minutes": _quantiles(late),
        "within_2_cycles": int(np.sum(late < 2.0 + EARLIER)),
        "facts": sum(not np.isnan(case.fact) for case in throttling),
        "incidents": _counts(len(case.opened) for case in throttling),
        "open_at_once": _counts(case.most_open for case in throttling),
        "first_cause": _counts(case.kinds[0] for case in throttling if case.kinds),
        "last_cause": _counts(case.kinds[-1] for case in throttling if case.kinds),
        "first": _counts(f"{case.alertname} on {case.layer}" for case in throttling if case.alertname),
        "watched": sum(not np.isnan(case.watched) for case in cases),
        "calm": len(calm),
        "calm_watched": sum(not np.isnan(case.watched) for case in calm),
        "calm_alerted": sum(not np.isnan(case.alerted) for case in calm),
        "never_throttled_alerted": sum(not np.isnan(case.alerted) for case in calm if not case.throttled),
        "highest_p": _quantiles(np.array([case.highest_p for case in cases])),
        "strangers": strangers,
    }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    if not len(values):
        return {}
    return {f"{q:g}": round(float(np.quantile(values, q)), 2) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}


def _counts(values: Any) -> dict[str, int]:
    return {str(value): count for value, count in Counter(values).most_common()}
