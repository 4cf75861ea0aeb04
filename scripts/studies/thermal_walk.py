"""A run seen as the service sees it: learned anew and forecast at the end of every day, with what would alert."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.fleet import DAY_S
from healthsvc.forecasters import shipped_forecasters
from scripts.studies.thermal_fleet import PER_NODE, Plan, Run, history_at, make_run, quiet_plan

Numbers = NDArray[np.float64]
WINDOW_DAYS = 60  # of ledger, as history.train_days
WEEK, MONTH = 1, 2  # columns of the horizons


@dataclass(frozen=True)
class Walk:
    """failure, degrading: whether an alert of that grade is wanted, bool[gpu, day]; limit_days: quantiles of the time
    to the limit [gpu, day, quantile], NaN = none stated. Days before `first` say nothing.
    """

    run: Run
    first: int
    failure: NDArray[np.bool_]
    degrading: NDArray[np.bool_]
    limit_days: Numbers

    @property
    def alert_day(self) -> Numbers:
        """First day with an alert of either grade [gpu], inf = none."""
        return first_day(self.failure | self.degrading)


def first_day(flags: NDArray[np.bool_]) -> Numbers:
    """Column of the first flag of each row, inf = none."""
    return np.where(flags.any(axis=1), np.argmax(flags, axis=1), np.inf)


def walk(run: Run, first: int, last: int | None = None) -> Walk:
    """Through the days `first` to `last`, one training and one forecast each, with what is shipped."""
    documents = load_priors()
    forecaster, prior = shipped_forecasters(documents)[0], class_priors(documents)["thermal"]
    gpus, days = run.peak_celsius.shape
    failure, degrading = np.zeros((gpus, days), bool), np.zeros((gpus, days), bool)
    limit = np.full((gpus, days, 3), np.nan)
    for day in range(first, days if last is None else min(last, days)):
        history = history_at(run, day, WINDOW_DAYS)
        told = forecaster.forecast(forecaster.fit(history), history)
        chance = -np.expm1(-told.cumulative_hazard[:, 0].astype(np.float64))
        failure[:, day] = chance[:, WEEK] >= prior.failure_p_7d
        degrading[:, day] = (chance[:, MONTH] >= prior.watch_p_30d) | (told.change_p < prior.degrading_p)
        limit[:, day] = told.time_to_limit_s / DAY_S
    return Walk(run, first, failure, degrading, limit)


@dataclass(frozen=True)
class Size:
    """nodes of 8 GPUs, days of a run."""

    nodes: int = 64
    days: int = 180

    @property
    def gpus(self) -> int:
        return self.nodes * PER_NODE


def false_alarms(seed: int, size: Size) -> dict[str, int]:
    """Healthy GPUs over disjoint stretches of 80 days, from day 20 on: how many had an alert of each grade in one."""
    done = walk(make_run(size.nodes, size.days, seed, quiet_plan(size.gpus)), 14)
    stretches = [slice(start, start + 80) for start in range(20, size.days - 79, 80)]
    return {
        "runs": size.gpus,
        "stretches": size.gpus * len(stretches),
        "failure": int(sum(done.failure[:, each].any(axis=1).sum() for each in stretches)),
        "degrading": int(sum((done.failure | done.degrading)[:, each].any(axis=1).sum() for each in stretches)),
        "events": int(np.isfinite(done.run.event_day).sum()),
    }


def drifting_plan(size: Size, seed: int, low: float, high: float, start: tuple[float, float]) -> Plan:
    """One GPU of each node drifts, log-uniformly fast, from a day in `start` on; half of the memories follow."""
    rng = np.random.default_rng([seed, 7])
    rows = np.arange(size.nodes) * PER_NODE + rng.integers(0, PER_NODE, size.nodes)
    plan = quiet_plan(size.gpus)
    growth, begins, shared = plan.growth_a_day.copy(), plan.start_day.copy(), plan.memory_share.copy()
    growth[rows] = np.exp(rng.uniform(np.log(low), np.log(high), size.nodes)) if high > low else low
    begins[rows] = rng.uniform(*start, size.nodes)
    shared[rows] = rng.integers(0, 2, size.nodes)
    return replace(plan, growth_a_day=growth, start_day=begins, memory_share=shared)


def detection(seed: int, size: Size, growth: float) -> dict[str, list[float]]:
    """Days from the beginning of a drift to the first alert, and from the first alert to the T2 event; inf = never.

    GPUs that had an alert before they began to drift are left out, and counted.
    """
    done = walk(make_run(size.nodes, size.days, seed, drifting_plan(size, seed, growth, growth, (60.0, 61.0))), 45)
    rows = np.flatnonzero(done.run.plan.growth_a_day > 0)
    begins = done.run.plan.start_day[rows]
    alert, failure = done.alert_day[rows] + 1.0, first_day(done.failure)[rows] + 1.0  # known when the day is over
    fresh = alert > begins
    event = done.run.event_day[rows]
    happens = fresh & np.isfinite(event)
    return {
        "days": (alert - begins)[fresh].tolist(),
        "lead_days": (event[happens] - alert[happens]).tolist(),
        "failure_lead_days": (event[happens] - failure[happens]).tolist(),
        "early": [int((~fresh).sum())],
    }


def coverage(seed: int, size: Size) -> dict[str, list[list[float]]]:
    """{days ahead: [q10, q50, q90, truth]} of crossings by drifts of 0.4 to 2 % a day that have lasted 5 days or more.

    The event comes somewhere in its day, so the truth is taken at noon. No interval stated: NaN.
    """
    done = walk(make_run(size.nodes, size.days, seed, drifting_plan(size, seed, 0.004, 0.02, (40.0, 90.0))), 45)
    found: dict[str, list[list[float]]] = {}
    event = done.run.event_day
    for ahead in (7, 14, 21):
        rows = np.flatnonzero((done.run.plan.growth_a_day > 0) & np.isfinite(event))
        at = event[rows].astype(int) - ahead
        enough = (at >= 45) & (at >= done.run.plan.start_day[rows] + 5)
        told = done.limit_days[rows[enough], at[enough]]
        found[str(ahead)] = [[*each, ahead - 0.5] for each in told.tolist()]
    return found


DECOYS = ("constant +8 % R", "workload step +240 W", "heat wave +8 C for 10 days", "power cap 500 W")


def decoy_plan(size: Size, seed: int, decoy: str) -> Plan:
    """Nothing but the decoy: on one GPU of each node, on the lightly loaded nodes, on the fleet, on the fleet."""
    plan = quiet_plan(size.gpus)
    if decoy == DECOYS[0]:
        hot = plan.hot.copy()
        hot[np.random.default_rng([seed, 8]).integers(0, PER_NODE, size.nodes) + PER_NODE * np.arange(size.nodes)] = (
            0.08
        )
        return replace(plan, hot=hot)
    if decoy == DECOYS[1]:
        return replace(plan, step_watts=240.0)
    if decoy == DECOYS[2]:
        return replace(plan, wave_celsius=8.0)
    return replace(plan, cap_watts=500.0)


def added_alerts(seed: int, size: Size) -> dict[str, dict[str, int]]:
    """{decoy: counts}: GPUs with an alert of either grade with the decoy and without it, the same seed, days 85 to 125.

    The decoys begin on day 90, the heat wave on day 100. events: T2 events with the decoy; there should be none.
    """
    first, last = 85, 125
    days = Size(size.nodes, last)
    quiet = walk(make_run(size.nodes, last, seed, quiet_plan(size.gpus)), first, last)
    without = np.isfinite(quiet.alert_day)
    found = {}
    for decoy in DECOYS:
        done = walk(make_run(size.nodes, last, seed, decoy_plan(days, seed, decoy)), first, last)
        alerted = np.isfinite(done.alert_day)
        found[decoy] = {
            "gpus": size.gpus,
            "added": int((alerted & ~without).sum()),
            "gone": int((without & ~alerted).sum()),
            "failure": int((done.failure.any(axis=1) & ~quiet.failure.any(axis=1)).sum()),
            "events": int(np.isfinite(done.run.event_day).sum()),
        }
    return found
