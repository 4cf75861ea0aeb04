"""How good the alerts were: precision, recall, lead and false alerts, each with its interval and its count."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from healthsvc.evaluation.episodes import Episode
from healthsvc.evaluation.exact import Rate, garwood_upper, rate
from healthsvc.evaluation.matching import Fate, Matching, Outcome
from healthsvc.fleet import CLASSES, DAY_S, MONTH_S, QUANTILES

# Events of the GPU category per GPU and 30 days on 16,384 H100, and how many of them were of which class (Llama 3
# report, table V). Not the priors of the service, which a site may fit anew: a yardstick does not move with what it
# measures.
NATURAL_RATE = 0.0091
NATURAL_EVENTS = {"thermal": 6, "memory": 91, "device_loss": 165}
NATURAL_WINDOW_S = 30 * DAY_S


def natural_rate(*classes: str) -> float:
    """The natural rate of these classes per GPU and 30 days: all three GPU classes 0.91 %, one its share.

    NaN for throttling, of which no public rate is known.
    """
    if not set(classes) <= set(CLASSES):
        return math.nan
    return NATURAL_RATE * sum(NATURAL_EVENTS[name] for name in classes) / sum(NATURAL_EVENTS.values())


@dataclass(frozen=True)
class FalseAlerts:
    """False alerts per 1,000 GPU-months: the count, the exposure, and the one-sided 95 % upper bound."""

    count: int
    exposure_gpu_months: float
    per_1000_gpu_months: float
    upper_per_1000_gpu_months: float


@dataclass(frozen=True)
class Leads:
    """Lead times of the predicted events at 10, 50 and 90 %, from the first alert of each; NaN where n is 0."""

    p10_s: float
    p50_s: float
    p90_s: float
    n: int


@dataclass(frozen=True)
class AlertMetrics:
    """outcomes: alerts by what became of them; wrong_class: false ones on a GPU that failed of another class.

    precision: true of true and false (late, censored and maintenance alerts are in neither). recall: predicted of all
    events; recall_with_precursor: of those that could be foreseen; precursor: share of events that had one, of those
    where it is known; late: events found too late to act; detected: predicted or late. natural_precision: precision
    at the rate at which failures come in the field, since a test fleet holds more of them.
    """

    alerts: int
    outcomes: Mapping[str, int]
    wrong_class: int
    precision: Rate
    recall: Rate
    recall_with_precursor: Rate
    precursor: Rate
    late: Rate
    detected: Rate
    lead: Leads
    false_alerts: FalseAlerts
    false_by_decoy: Mapping[str, int]
    decoys: Mapping[str, int]
    natural_precision: Rate


def alert_metrics(
    matching: Matching,
    exposure_gpu_months: float,
    natural_rate_30d: float = NATURAL_RATE,
    decoys: Iterable[Episode] = (),
) -> AlertMetrics:
    """Metrics of all alerts and events of the matching; narrow it with `of_classes` first.

    exposure_gpu_months: observed GPU-seconds of the judged window / MONTH_S, unknown GPUs left out. Independence
    is assumed by the intervals; for the spread between GPUs and racks see `clustered`.
    """
    outcomes = Counter({outcome.value: 0 for outcome in Outcome})
    outcomes.update(outcome.value for outcome in matching.outcomes)
    true, false = outcomes[Outcome.TRUE], outcomes[Outcome.FALSE]
    predicted = np.array([fate is Fate.PREDICTED for fate in matching.fates], bool)
    late = int(sum(fate is Fate.LATE for fate in matching.fates))
    foreseeable = np.array([event.precursor is True for event in matching.events], bool)
    asked = sum(event.precursor is not None for event in matching.events)
    n, hits = len(matching.events), int(predicted.sum())
    recall = rate(hits, n)
    return AlertMetrics(
        alerts=len(matching.alerts),
        outcomes=dict(outcomes),
        wrong_class=int(matching.wrong_class.sum()),
        precision=rate(true, true + false),
        recall=recall,
        recall_with_precursor=rate(int((predicted & foreseeable).sum()), int(foreseeable.sum())),
        precursor=rate(int(foreseeable.sum()), asked),
        late=rate(late, n),
        detected=rate(hits + late, n),
        lead=_leads(matching),
        false_alerts=false_alerts(false, exposure_gpu_months),
        false_by_decoy=dict(sorted(Counter(filter(None, matching.decoy)).items())),
        decoys=dict(sorted(Counter(decoy.scenario for decoy in decoys).items())),
        natural_precision=natural_precision(recall, false, exposure_gpu_months, natural_rate_30d),
    )


def false_alerts(count: int, exposure_gpu_months: float) -> FalseAlerts:
    """The rate and its exact bound; without exposure the rate is NaN and the bound infinite."""
    if exposure_gpu_months <= 0:
        return FalseAlerts(count, exposure_gpu_months, math.nan, math.inf)
    per = 1000.0 / exposure_gpu_months
    return FalseAlerts(count, exposure_gpu_months, count * per, float(garwood_upper(count)) * per)


def natural_precision(recall: Rate, false: int, exposure_gpu_months: float, natural_rate_30d: float) -> Rate:
    """precision = r pi / (r pi + f (1 - pi)), r the recall, f false alerts and pi failures per GPU and 30 d.

    The interval joins the bad ends (low recall, high f) and the good ones, so it is wider than 95 %. NaN without
    events, exposure or a natural rate, and when nothing was alerted at all.
    """
    if exposure_gpu_months <= 0 or not recall.n or math.isnan(natural_rate_30d):
        return Rate(math.nan, 0.0, 1.0, recall.n)
    pi, per_gpu = natural_rate_30d, NATURAL_WINDOW_S / (MONTH_S * exposure_gpu_months)

    def precision(r: float, f: float) -> float:
        right, wrong = r * pi, f * (1 - pi)
        return right / (right + wrong) if right + wrong > 0 else math.nan

    most = float(garwood_upper(false)) * per_gpu
    least = float(garwood_upper(false - 1, 0.05)) * per_gpu if false else 0.0
    value = precision(recall.value, false * per_gpu)
    return Rate(value, precision(recall.lower, most), precision(recall.upper, least), recall.n)


def _leads(matching: Matching) -> Leads:
    seen = matching.lead_s[~np.isnan(matching.lead_s)]
    if not len(seen):
        return Leads(math.nan, math.nan, math.nan, 0)
    p10, p50, p90 = np.quantile(seen, QUANTILES).tolist()
    return Leads(p10, p50, p90, len(seen))
