"""Does a healthy fleet stay quiet, in heat waves and when jobs begin to work harder?"""

from collections import Counter
from typing import Any

import numpy as np

from healthsvc.alerts import AlertState, decide
from healthsvc.engine.build import alert_policy
from healthsvc.engine.scoring import Scorer, State
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.evaluation.exact import garwood_upper
from healthsvc.fleet import DAY_S, LEAST_MEMBERS, MINUTE_S, Snapshot
from scripts.studies.cascade_fleet import GPUS_A_LOOP, domains_only
from scripts.studies.cascade_weeks import CADENCE, NODES_A_LOOP, RACKS_A_LOOP, Life, decoys

Figures = dict[str, Any]
RETRAIN_DAYS = 7
MONTH_DAYS = 30.0


def healthy(loops: int, days: int, seed: int, scorer: Scorer | None = None) -> Figures:
    """A fleet without a fault: the incidents that alerted, and how far chance goes in what is tested every half hour.

    throttled: of the incidents those with three members that did throttle in the two hours around their beginning.
    excess: tests by layer and by whole powers of ten of their tail probability.
    """
    life, scorer = Life(loops, days, decoys(loops, days), seed), scorer or domains_only()
    policy, alerts = alert_policy(class_priors(load_priors()), CADENCE * MINUTE_S), AlertState()
    row_of = {gpu.device_id: row for row, gpu in enumerate(life.simulator.gpus)}
    previous: Snapshot | None = None
    state: State | None = None
    trained_s, bins = -np.inf, 0
    alerted: dict[str, tuple[str, int, list[int]]] = {}
    excess: dict[str, Counter[str]] = {}
    smallest: dict[str, float] = {}
    for history in life.histories():
        if state is None or history.now_s - trained_s >= RETRAIN_DAYS * DAY_S:
            state, trained_s = scorer.train(history), history.now_s
        previous = scorer.score(state, history, previous, trained_s)
        bins += 1
        report = previous.report
        decision = decide(alerts, report, history.now_s, policy)
        alerts = decision.state
        told = {each.id: each for each in report.incidents}
        for name in {alert.annotations.get("incident", "") for alert in decision.firing} & told.keys() - alerted.keys():
            rows = [row_of[member] for member in told[name].members]
            alerted[name] = (told[name].layer, life.bin_at(history.now_s), rows)
        for (layer, _), p in zip(report.domains[0].domains, report.domains[0].excess_p.tolist(), strict=True):
            if not np.isnan(p):
                decade = "1" if p > 0.1 else f"1e-{int(-np.log10(max(p, 1e-300)))}"
                excess.setdefault(layer, Counter())[decade] += 1
                smallest[layer] = min(smallest.get(layer, 1.0), p)
    throttles = life.throttles
    struck = [throttles[rows, max(at - 12, 0) : at + 13].any(axis=1).sum() for _, at, rows in alerted.values()]
    return {
        "loop_months": loops * bins * CADENCE * MINUTE_S / DAY_S / MONTH_DAYS,
        "gpu_throttled_bins": int(throttles.sum()),
        "incidents": dict(Counter(layer for layer, _, _ in alerted.values())),
        "throttled": int(np.sum(np.array(struck) >= LEAST_MEMBERS)),
        "excess": {layer: dict(counts) for layer, counts in excess.items()},
        "smallest_excess_p": smallest,
    }


def false_incidents(parts: list[Figures]) -> Figures:
    """All parts together, per 1,000 rack- and loop-months and per 10,000 node-months, with exact upper 95 % bounds."""
    months = sum(part["loop_months"] for part in parts)
    count: Counter[str] = Counter()
    excess: dict[str, Counter[str]] = {}
    for part in parts:
        count.update(part["incidents"])
        for layer, tests in part["excess"].items():
            excess.setdefault(layer, Counter()).update(tests)
    wide, nodes = sum(count.values()) - count["node"], count["node"]
    wide_months, node_months = months * (1 + RACKS_A_LOOP), months * NODES_A_LOOP
    smallest: dict[str, float] = {}
    for part in parts:
        for layer, p in part["smallest_excess_p"].items():
            smallest[layer] = min(p, smallest.get(layer, 1.0))
    return {
        "incidents": dict(count),
        "throttled": sum(part["throttled"] for part in parts),
        "rack_and_loop_months": wide_months,
        "node_months": node_months,
        "per_1000_rack_or_loop_months": [1000 * wide / wide_months, 1000 * float(garwood_upper(wide)) / wide_months],
        "per_10000_node_months": [10_000 * nodes / node_months, 10_000 * float(garwood_upper(nodes)) / node_months],
        "gpu_throttled_bins": sum(part["gpu_throttled_bins"] for part in parts),
        "gpu_months": months * GPUS_A_LOOP,
        "excess": {layer: dict(counts) for layer, counts in excess.items()},
        "smallest_excess_p": smallest,
    }
