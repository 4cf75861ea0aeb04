"""A back-test: rolling origins rehearsed by the live engine, judged by the evaluation's stick, baselines beside."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts import AlertPolicy
from healthsvc.engine.rehearsal import Rehearsal, baseline_episodes
from healthsvc.evaluation.alert_episodes import AlertEpisode
from healthsvc.evaluation.baselines import draw_spans
from healthsvc.evaluation.episodes import Episodes, label_episodes
from healthsvc.evaluation.labels import Label
from healthsvc.evaluation.origins import Fold
from healthsvc.evaluation.outcomes import disjoint, outcomes
from healthsvc.evaluation.places import places_of
from healthsvc.evaluation.probability import ProbabilityMetrics, probability_metrics
from healthsvc.evaluation.report import Evaluation, evaluate
from healthsvc.evaluation.thresholds import Budget, Threshold, choose_threshold
from healthsvc.fleet import CLASSES, DAY_S, HORIZON_NAMES, HORIZONS_S, MONTH_S, GpuId, Placement, build_topology

WEEK = HORIZON_NAMES.index("7d")
CHANCE = "b5 random, as many alerts"

Rehearse = Callable[[AlertPolicy, tuple[float, float], bool], Rehearsal]  # policy, window, with baselines


@dataclass(frozen=True)
class Backtest:
    """Ours first, then the baselines, all on the same data and labels; and the thresholds that were in force."""

    evaluations: tuple[Evaluation, ...]
    thresholds: Mapping[str, Threshold]
    folds: tuple[Fold, ...]


def run_fold(
    fold: Fold, rehearse: Rehearse, policy: AlertPolicy, labels: Sequence[Label] | None, placement: Placement | None
) -> tuple[Rehearsal, dict[str, Threshold]]:
    """Thresholds from the calibration block, where there is one and enough of it; then the test block with them.

    Nothing that begins in the test block is known to the choice: an alert whose event comes only then counts as false,
    so a threshold is rather too high than made for the test.
    """
    chosen: dict[str, Threshold] = {}
    if fold.calibrate is not None:
        block = rehearse(policy, fold.calibrate, False)
        told = block.labels if labels is None else labels
        known = [label for label in told if label.start_s < fold.test[0]]
        chosen = thresholds_of(block, known, policy, placement)
        policy = replace(policy, failure={name: chosen[name].p_7d for name in CLASSES})
    return rehearse(policy, fold.test, True), chosen


def thresholds_of(
    block: Rehearsal,
    labels: Sequence[Label],
    policy: AlertPolicy,
    placement: Placement | None,
) -> dict[str, Threshold]:
    """The failure threshold of each class from a calibration block."""
    episodes = label_episodes(labels, places_of(block.gpus, build_topology(block.gpus, placement)))
    step_s = float(np.diff(block.samples_s).min()) if len(block.samples_s) > 1 else DAY_S
    ids = [gpu.device_id for gpu in block.gpus]
    chosen = {}
    for column, name in enumerate(CLASSES):
        ahead = outcomes(ids, block.samples_s, HORIZONS_S[2], name, episodes, np.inf)
        p = block.probability[:, :, column, WEEK]
        chosen[name] = choose_threshold(name, p, ~(ahead == 0), step_s, Budget(), policy.failure[name])
    return chosen


def judge(
    rehearsals: Sequence[Rehearsal],
    labels: Sequence[Label] | None,
    known_until_s: float,
    placement: Placement | None,
    notes: Iterable[str] = (),
    seed: int = 0,
) -> tuple[Evaluation, ...]:
    """Ours and every baseline on the test blocks together. labels None: what the telemetry itself shows."""
    gpus = _all_gpus(rehearsals)
    places = places_of(gpus, build_topology(gpus, placement))
    given = [label for r in rehearsals for label in r.labels] if labels is None else told_by_any(rehearsals, labels)
    episodes = label_episodes(given, places)
    window = (min(r.window[0] for r in rehearsals), max(r.window[1] for r in rehearsals))
    exposure = sum(r.observed_s for r in rehearsals) / MONTH_S
    ours = [alert for r in rehearsals for alert in r.alerts]

    def judged(
        name: str, alerts: Iterable[AlertEpisode], p: Mapping[str, ProbabilityMetrics] | None = None
    ) -> Evaluation:
        return evaluate(name, alerts, episodes, window, known_until_s, exposure, probability=p, notes=notes)

    raised = sum(a.failure_class in CLASSES and a.grade == "failure" for a in ours)
    chance = draw_spans(raised, len(gpus), *window, np.random.default_rng(seed)) if gpus else None
    names = list(dict.fromkeys(name for r in rehearsals for name in r.baselines))
    return (
        judged("healthsvc", ours, probabilities(rehearsals, episodes, known_until_s)),
        *(judged(name, [a for r in rehearsals for a in r.baselines.get(name, ())]) for name in names),
        *([judged(CHANCE, baseline_episodes(CHANCE, chance, gpus))] if chance is not None else []),
    )


def told_by_any(rehearsals: Sequence[Rehearsal], labels: Sequence[Label]) -> list[Label]:
    """The given labels, each with the precursor that any rehearsal could tell: it knows its own shard and past only."""

    def which(rows: Sequence[Label]) -> list[tuple[str, float, str]]:
        return [(row.scope, row.start_s, row.failure_class) for row in rows]

    versions = [r.labels for r in rehearsals if which(r.labels) == which(labels)]
    return [
        next((told[i] for told in versions if told[i].precursor is not None), label) for i, label in enumerate(labels)
    ]


def probabilities(
    rehearsals: Sequence[Rehearsal], episodes: Episodes, known_until_s: float
) -> dict[str, ProbabilityMetrics]:
    """How far the published probabilities can be believed: by "class horizon", on disjoint GPU-horizons."""
    found = {}
    for column, name in enumerate(CLASSES):
        for position, (label, horizon_s) in enumerate(zip(HORIZON_NAMES, HORIZONS_S, strict=True)):
            p: list[NDArray[np.float64]] = []
            y: list[NDArray[np.float64]] = []
            for r in rehearsals:
                at = disjoint(r.samples_s, horizon_s)
                ids = [gpu.device_id for gpu in r.gpus]
                p.append(r.probability[at][:, :, column, position].astype(np.float64).ravel())
                y.append(outcomes(ids, r.samples_s[at], horizon_s, name, episodes, known_until_s).ravel())
            found[f"{name} {label}"] = probability_metrics(np.concatenate(p), np.concatenate(y))
    return found


def _all_gpus(rehearsals: Sequence[Rehearsal]) -> tuple[GpuId, ...]:
    """Every GPU of the rehearsals once, its newest labels winning."""
    return tuple({gpu.device_id: gpu for r in rehearsals for gpu in r.gpus}.values())
