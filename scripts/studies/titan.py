"""Event history against real failures: our hazard on Titan's 30,207 GPUs, beside simpler ways, nothing from the future.

Origins every 30 days, horizon 30 days. The kernel's weights are learned on origins before 2017, the window and what the
prior weighs are chosen on 2017, and 2018-01 to 2019-06 is run once. Everything else is re-fitted at every origin, on
what had happened by then: that is the rolling intercept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from healthsvc.engine.shipped import load_priors
from healthsvc.evaluation.probability import average_precision, probability_metrics
from healthsvc.features.hazard import Doubt, Hazard, fit_hazard
from healthsvc.features.recurrence import Kernel, excitation
from healthsvc.fleet import DAY_S, YEAR_S, EventLog
from scripts.studies.titan_fleet import HORIZON_S, Titan, moment_s, origins_s

SCALES_DAYS = (7.0, 30.0, 90.0)
BASE_PER_YEAR = 0.038  # the shipped prior of the class; every fit begins there
PRIOR_GPU_YEARS = 50.0
DEVELOP, CHOOSE, TEST, END = "2015-01-01", "2017-01-01", "2018-01-01", "2019-06-01"
SHIPPED_DAYS = 53.0  # sixty days of ledger, the first week of which is lead-in
NEVER_S = 10 * YEAR_S
DRAWS = 1000
TOPS = (20, 100)

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """What 2017 decides: days of person-time that a fit sees, the ridge, and the events that the kernel weighs."""

    window_days: float = 365.0
    ridge: float = 1.0
    recurrent_events: float = 2.0

    @property
    def doubt(self) -> Doubt:
        return Doubt(BASE_PER_YEAR * PRIOR_GPU_YEARS, self.recurrent_events, self.ridge)


CHOICES = tuple(Choice(*numbers) for numbers in product((120.0, 180.0, 365.0), (1.0, 10.0), (2.0, 20.0)))


@dataclass(frozen=True)
class Cases:
    """GPU-horizons in the order of origin and GPU: p said, y came; gpu and origin [case]."""

    p: Numbers
    y: Numbers
    gpu: NDArray[np.intp]
    origin: NDArray[np.intp]


def fit_at(titan: Titan, kind: str, now_s: float, kernel: Kernel, choice: Choice) -> Hazard:
    """The hazard as it could be known at the moment."""
    cells, stays = titan.person_time(kind, now_s - choice.window_days * DAY_S, now_s)
    excited_s, events = cells.tally(_known(titan, kind, now_s), kernel)
    per_s = BASE_PER_YEAR / YEAR_S
    x = titan.covariates(stays, cells.start_s)
    return fit_hazard(x, cells.exposure_s * per_s, excited_s * per_s, events, choice.doubt)


def predict(titan: Titan, kind: str, origins: Sequence[float], kernel: Kernel, choice: Choice) -> Cases:
    """Our probability for every GPU in place at each origin."""

    def say(now_s: float, stays: NDArray[np.intp]) -> Numbers:
        hazard = fit_at(titan, kind, now_s, kernel, choice)
        rows = titan.stay_row[stays]
        known = _known(titan, kind, now_s)
        excited_s = excitation(known, len(titan.serial), now_s, (HORIZON_S,), kernel)[rows, 0]
        ratio = hazard.ratio(titan.covariates(stays, np.full(len(stays), now_s)))
        hazards = ratio * BASE_PER_YEAR / YEAR_S * (HORIZON_S + hazard.recurrence * excited_s)
        return np.asarray(1.0 - np.exp(-hazards), np.float64)

    return _over(titan, kind, origins, say)


def as_shipped() -> tuple[Kernel, Choice]:
    """The kernel and the weights of models/ecc_growth/prior.json, on the person-time that the service trains on."""
    prior = load_priors()["ecc_growth"]
    told, site = prior["recurrence"], prior["site"]
    kernel = Kernel(tuple(told["scales_days"]), tuple(told["weights"]), told["frailty"])
    return kernel, Choice(SHIPPED_DAYS, site["effect_sd"] ** -2.0, site["recurrent_events"])


def learn_kernel(titan: Titan, kind: str, end: str, rounds: int = 200) -> Kernel:
    """The weights of the three scales and the frailty that were likeliest before `end`, beside age, cage and batch.

    EM on person-time: every event belongs to the base hazard and to each part of the kernel by their shares.
    """
    end_s = moment_s(end)
    cells, stays = titan.person_time(kind, moment_s(DEVELOP), end_s)
    known = _known(titan, kind, end_s)
    parts = [Kernel((scale,), (1.0,), 0.0) for scale in SCALES_DAYS] + [Kernel((), (), 1.0)]
    masses = np.stack([cells.tally(known, part)[0] for part in parts]) * BASE_PER_YEAR / YEAR_S
    events = cells.tally(known, parts[0])[1]
    expected, x = cells.exposure_s * BASE_PER_YEAR / YEAR_S, titan.covariates(stays, cells.start_s)
    weights = np.ones(len(parts))
    doubt = replace(Choice().doubt, recurrent_events=1e9)  # here the weights move, not their common ratio
    for turn in range(rounds):
        if turn % 20 == 0:
            ratio = fit_hazard(x, expected, weights @ masses, events, doubt).ratio(x)
        share = weights[:, None] * masses / (expected + weights @ masses)
        weights = (share @ events) / np.maximum(masses @ ratio, 1e-12)
    return Kernel(SCALES_DAYS, tuple(weights[:3].tolist()), float(weights[3]))


def choose(titan: Titan, kind: str, kernel: Kernel) -> tuple[Choice, list[tuple[Choice, float]]]:
    """The choice with the best log score on 2017, and the scores of all."""
    origins = origins_s(CHOOSE, TEST)
    scores = []
    for choice in CHOICES:
        cases = predict(titan, kind, origins, kernel, choice)
        scores.append((choice, probability_metrics(cases.p, cases.y).log_score))
    return min(scores, key=lambda pair: pair[1])[0], scores


def history_table(titan: Titan, kind: str, now_s: float, rows: NDArray[np.intp]) -> Numbers:
    """What the simpler ways see [gpu, 5]: ever, log days since, events in 30 and in 90 days, log of age."""
    log = titan.events[kind]
    log = log.where(log.start_s <= now_s)
    newest = np.full(len(titan.serial), -np.inf)
    np.maximum.at(newest, log.row, log.start_s)
    ever = np.isfinite(newest)
    since = np.where(ever, now_s - newest, NEVER_S)
    recent = [np.bincount(log.row[log.start_s > now_s - d * DAY_S], minlength=len(ever)) for d in (30, 90)]
    age = np.maximum(now_s - titan.first_s, DAY_S)
    table = np.stack([ever, np.log1p(since / DAY_S), *recent, np.log1p(age / DAY_S)], axis=1)
    return np.asarray(table[rows], np.float64)


def logistic(titan: Titan, kind: str, origins: Sequence[float]) -> Cases:
    """A logistic regression on the history table, trained once on all origins whose outcome was known in 2018."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    return _trained_once(titan, kind, origins, model)


def boosting(titan: Titan, kind: str, origins: Sequence[float]) -> Cases:
    """Gradient boosting on the same table, trained once likewise."""
    return _trained_once(titan, kind, origins, HistGradientBoostingClassifier(random_state=0))


def most_in_90_days(titan: Titan, kind: str, origins: Sequence[float]) -> Cases:
    """Ranked by events in 90 days; the scale is no probability."""
    return _over(titan, kind, origins, lambda now_s, stays: _ninety(titan, kind, now_s, stays) / 1e3)


def random_split_auc(titan: Titan, kind: str) -> tuple[float, float]:
    """AUC of boosting and of the logistic regression on the test's cases, trained on half of the cases of all origins,
    drawn at random: the same GPU, and often the same event, stands on both sides."""
    origins = origins_s(DEVELOP, END)
    x, cases = _table(titan, kind, origins)
    left = np.random.default_rng(0).random(len(x)) < 0.5
    judged = ~left & (cases.origin >= len(origins_s(DEVELOP, TEST)))
    found = []
    for model in (
        HistGradientBoostingClassifier(random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    ):
        model.fit(x[left], cases.y[left])
        found.append(float(roc_auc_score(cases.y[judged], model.predict_proba(x[judged])[:, 1])))
    return found[0], found[1]


def figures(cases: Cases, rng: np.random.Generator) -> dict[str, Any]:
    """What the table says of one way, intervals from draws of whole GPUs."""
    told = probability_metrics(cases.p, cases.y)
    drawn = np.array([_ap(cases, weights) for weights in _draws(cases, rng)])
    found: dict[str, Any] = {
        "cases": told.n,
        "events": told.events,
        "auc": float(roc_auc_score(cases.y, cases.p)),
        "ap": told.average_precision,
        "ap_95": np.quantile(drawn, [0.025, 0.975]).tolist(),
        "calibration": told.calibration.value,
        "brier_skill": told.brier_skill,
    }
    for top in TOPS:
        pooled = np.argsort(-cases.p, kind="stable")[:top]
        each = [cases.y[rows[np.argsort(-cases.p[rows], kind="stable")[:top]]].mean() for rows in _by_origin(cases)]
        found[f"top_{top}"] = float(cases.y[pooled].mean())
        found[f"top_{top}_per_origin"] = float(np.mean(each))
    return found


def ap_difference(ours: Cases, other: Cases, rng: np.random.Generator) -> list[float]:
    """Average precision of ours less the other's: the figure, and its 95 % interval over paired draws of GPUs."""
    drawn = [_ap(ours, weights) - _ap(other, weights) for weights in _draws(ours, rng)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return [average_precision(ours.p, ours.y) - average_precision(other.p, other.y), float(low), float(high)]


def with_a_past(titan: Titan, kind: str, origins: Sequence[float]) -> tuple[int, int, int]:
    """GPU-horizons with an event: those with another in the 90 days before, all of them, those with another ever."""
    x, cases = _table(titan, kind, origins)
    struck = cases.y == 1
    return int((x[struck, 3] > 0).sum()), int(struck.sum()), int(x[struck, 0].sum())


def _known(titan: Titan, kind: str, now_s: float) -> EventLog:
    """Episodes that were over; moments here are midnights, so none is cut in two."""
    log = titan.episodes(kind)
    return log.where(log.start_s <= now_s)


def _over(
    titan: Titan, kind: str, origins: Sequence[float], say: Callable[[float, NDArray[np.intp]], Numbers]
) -> Cases:
    p, y, gpu = [], [], []
    for now_s in origins:
        stays = titan.in_place(now_s)
        rows = titan.stay_row[stays]
        p.append(say(now_s, stays))
        y.append(titan.failed_within(kind, rows, now_s))
        gpu.append(rows)
    origin = np.repeat(np.arange(len(origins)), [len(rows) for rows in gpu])
    return Cases(np.concatenate(p), np.concatenate(y), np.concatenate(gpu), origin)


def _ninety(titan: Titan, kind: str, now_s: float, stays: NDArray[np.intp]) -> Numbers:
    return history_table(titan, kind, now_s, titan.stay_row[stays])[:, 3]


def _table(titan: Titan, kind: str, origins: Sequence[float]) -> tuple[Numbers, Cases]:
    cases = _over(titan, kind, origins, lambda now_s, stays: np.zeros(len(stays)))
    x = np.concatenate([history_table(titan, kind, now_s, titan.stay_row[titan.in_place(now_s)]) for now_s in origins])
    return x, cases


def _trained_once(titan: Titan, kind: str, origins: Sequence[float], model: Any) -> Cases:
    known_by = origins[0] - HORIZON_S
    x, seen = _table(titan, kind, [now_s for now_s in origins_s(DEVELOP, TEST) if now_s <= known_by])
    model.fit(x, seen.y)
    asked, cases = _table(titan, kind, origins)
    return replace(cases, p=model.predict_proba(asked)[:, 1])


def _by_origin(cases: Cases) -> list[NDArray[np.intp]]:
    return [np.flatnonzero(cases.origin == number) for number in range(int(cases.origin.max()) + 1)]


def _draws(cases: Cases, rng: np.random.Generator) -> Any:
    """How often each case counts, in draws of whole GPUs with replacement."""
    gpus, number = np.unique(cases.gpu, return_inverse=True)
    for _ in range(DRAWS):
        yield np.bincount(rng.integers(0, len(gpus), len(gpus)), minlength=len(gpus))[number]


def _ap(cases: Cases, weights: NDArray[np.intp]) -> float:
    """Average precision with weights; cases of equal p share a threshold."""
    order = np.argsort(-cases.p, kind="stable")
    weight = weights[order].astype(np.float64)
    last = np.flatnonzero(np.diff(cases.p[order], append=-1.0))
    true = np.cumsum(weight * cases.y[order])[last]
    said = np.maximum(np.cumsum(weight)[last], 1e-9)
    return float(np.sum(np.diff(true, prepend=0.0) * true / said) / max(true[-1], 1e-9))
