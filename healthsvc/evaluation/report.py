"""The result of an evaluation: what was judged and how it came out, as rows, as a document and as a DataFrame."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from healthsvc.evaluation.alert_episodes import ALERT_GRADES, AlertEpisode, of_grade
from healthsvc.evaluation.bootstrap import clustered
from healthsvc.evaluation.episodes import Episodes
from healthsvc.evaluation.labels import THROTTLING
from healthsvc.evaluation.matching import Fate, Matching, MatchRule, match_alerts
from healthsvc.evaluation.metrics import AlertMetrics, alert_metrics, natural_rate
from healthsvc.evaluation.probability import Estimate, ProbabilityMetrics
from healthsvc.evaluation.rows import alert_rows, dropped_rows, event_rows, flat_row, json_able
from healthsvc.fleet import CLASSES, rfc3339

SEED = 0  # of the draws behind `clustered`: the same alerts and labels give the same document
# Rows of the table: each class by itself, then the three GPU classes together (throttling is a domain's, not a GPU's).
SELECTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {**{name: (name,) for name in (*CLASSES, THROTTLING)}, "gpu": CLASSES}
)


@dataclass(frozen=True)
class Result:
    """The metrics of the alerts of one grade on one selection of classes."""

    grade: str
    selection: str
    metrics: AlertMetrics

    @property
    def key(self) -> str:
        """`grade/selection`."""
        return f"{self.grade}/{self.selection}"


@dataclass(frozen=True)
class Evaluation:
    """name: who raised the alerts (healthsvc, or a baseline). matchings: by alert grade, all classes together.

    window: (start_s, end_s] of the alerts and events judged; the matchings also hold those around it. known_until_s:
    labels are complete up to here. probability: by a name such as "memory 7d". notes: what the reader must know, such
    as that nothing was cross-validated.
    """

    name: str
    window: tuple[float, float]
    known_until_s: float
    exposure_gpu_months: float
    episodes: Episodes
    matchings: Mapping[str, Matching]
    results: tuple[Result, ...]
    probability: Mapping[str, ProbabilityMetrics] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()

    def result(self, grade: str = "failure", selection: str = "gpu") -> AlertMetrics:
        """One cell of the table. Raises KeyError naming what there is."""
        key = f"{grade}/{selection}"
        for result in self.results:
            if result.key == key:
                return result.metrics
        raise KeyError(f"{key}: there is {', '.join(r.key for r in self.results)}")

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat row a grade and selection; NaN where nothing can be said."""
        return [
            {"name": self.name, "grade": r.grade, "class": r.selection, **flat_row(r.metrics)} for r in self.results
        ]

    def to_document(self) -> dict[str, Any]:
        """Everything, JSON-able: null where nothing can be said, times in RFC 3339.

        Here alone `clustered` stands beside the exact intervals of the metrics, which take every case for independent.
        """
        intervals = self.clustered(np.random.default_rng(SEED))
        incidents = [row for grade, m in self.matchings.items() for row in event_rows(grade, m, self.window)]
        return {
            "name": self.name,
            "window": [rfc3339(at_s) for at_s in self.window],
            "known_until": rfc3339(self.known_until_s),
            "exposure_gpu_months": self.exposure_gpu_months,
            "notes": list(self.notes),
            "metrics": [
                {
                    "grade": r.grade,
                    "class": r.selection,
                    **json_able(r.metrics),
                    "clustered": {layer: json_able(found.get(r.key)) for layer, found in intervals.items()},
                }
                for r in self.results
            ],
            "probability": {name: json_able(metrics) for name, metrics in self.probability.items()},
            "alerts": [row for grade, m in self.matchings.items() for row in alert_rows(grade, m, self.window)],
            "incidents": incidents,
            "missed": [row for row in incidents if row["fate"] == Fate.MISSED.value],
            "dropped_labels": dropped_rows(self.episodes),
        }

    def clustered(self, rng: np.random.Generator) -> dict[str, dict[str, dict[str, Estimate]]]:
        """{gpu, rack: {grade/selection: {precision, recall}}} of the GPU classes, whole GPUs or racks drawn again.

        A GPU whose rack is unknown is drawn alone.
        """
        places = self.episodes.places
        racks = places.group_of("rack")
        gpus = sorted(places.gpus)  # a set has another order in every process, and the draws follow the order
        judged = {
            f"{grade}/{selection}": matching.within(*self.window).of_classes(*classes)
            for grade, matching in self.matchings.items()
            for selection, classes in SELECTIONS.items()
            if selection != THROTTLING  # a domain spreads over clusters
        }
        of = {"gpu": {gpu: gpu for gpu in gpus}, "rack": {gpu: racks.get(gpu, gpu) for gpu in gpus}}
        return {
            layer: dict(zip(judged, clustered(list(judged.values()), cluster_of, rng), strict=True))
            for layer, cluster_of in of.items()
        }

    def to_frame(self) -> Any:
        """`to_rows` as a pandas.DataFrame. Needs pandas (extra `studies`)."""
        import pandas as pd

        return pd.DataFrame(self.to_rows())


def evaluate(
    name: str,
    alerts: Iterable[AlertEpisode],
    episodes: Episodes,
    window: tuple[float, float],
    known_until_s: float,
    exposure_gpu_months: float,
    rule: MatchRule | None = None,
    probability: Mapping[str, ProbabilityMetrics] | None = None,
    notes: Iterable[str] = (),
) -> Evaluation:
    """Match and count both grades, on every class and on the GPU classes together.

    Alerts raised in the window and events begun in it are judged; give also those around it, of which they may speak.
    A class with neither alerts nor events keeps its row: that nothing happened is said, not hidden.
    """
    kept = tuple(alerts)
    decoys = [d for d in episodes.decoys if d.start_s <= window[1] and d.end_s > window[0]]
    matchings: dict[str, Matching] = {}
    results: list[Result] = []
    for grade in ALERT_GRADES:
        matchings[grade] = match_alerts(of_grade(kept, grade), episodes, known_until_s, rule)
        judged = matchings[grade].within(*window)
        for selection, classes in SELECTIONS.items():
            metrics = alert_metrics(judged.of_classes(*classes), exposure_gpu_months, natural_rate(*classes), decoys)
            results.append(Result(grade, selection, metrics))
    return Evaluation(
        name,
        window,
        known_until_s,
        exposure_gpu_months,
        episodes,
        MappingProxyType(matchings),
        tuple(results),
        MappingProxyType(dict(probability or {})),
        tuple(notes),
    )
