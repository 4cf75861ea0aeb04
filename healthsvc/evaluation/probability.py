"""How good the probabilities were: skill, calibration and ranking of P against what happened.

Everywhere p and y are [gpu-horizon]: the probability stated, and whether the event came (1, 0). NaN in p is a GPU that
was unknown, NaN in y an outcome that is not known; both are left out and counted.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from healthsvc.evaluation.cost import CostCurve, cost_curve
from healthsvc.evaluation.exact import clopper_pearson, garwood

Array = NDArray[np.float64]
LEAST_P, MOST_P = 1e-9, 1 - 1e-9  # where logarithms end: a sure forecast that fails costs 20.7 nats, not infinity
LEAST_BIN, BINS_A_DECADE = 1e-5, 2
LEAST_EVENTS = 20  # below, a slope says nothing


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval and the count it rests on; NaN where it cannot be said."""

    value: float
    lower: float
    upper: float
    n: int


@dataclass(frozen=True)
class Reliability:
    """Log-spaced bins (edges[i], edges[i + 1]], the first one from 0. All [bin]: n cases, mean_p, the observed share
    and its exact interval (NaN mean and share, and 0 to 1, where n is 0)."""

    edges: Array
    n: NDArray[np.int64]
    mean_p: Array
    observed: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class ProbabilityMetrics:
    """n cases, events among them, and what was left out.

    brier_skill: 1 - Brier / Brier of always saying the base rate, the observed one, which knows the future and so is
    the stricter judge (1 perfect, <= 0 worthless). log_score: mean surprise in nats,
    lower is better. calibration: sum p / sum y with its exact Poisson interval. slope: of y on logit p; below 1 the
    forecasts are too extreme. average_precision: to be read against `base_rate`.
    """

    n: int
    events: int
    unknown: int
    unresolved: int
    base_rate: float
    brier: float
    brier_skill: float
    log_score: float
    calibration: Estimate
    slope: Estimate
    average_precision: float
    reliability: Reliability
    cost: CostCurve


def known_cases(p: ArrayLike, y: ArrayLike) -> tuple[Array, Array, NDArray[np.bool_]]:
    """p and y of the cases that can be judged, and bool[case] of which these are. Raises ValueError on a bad p or y."""
    chance, happened = np.asarray(p, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    if chance.shape != happened.shape:
        raise ValueError(f"p has {len(chance)} cases and y has {len(happened)}; give one outcome for each probability")
    if bool(((chance < 0) | (chance > 1)).any()):
        raise ValueError(f"p = {chance[(chance < 0) | (chance > 1)][0]:g}: a probability lies between 0 and 1")
    if not bool((np.isnan(happened) | (happened == 0) | (happened == 1)).all()):
        raise ValueError("y must be 0, 1 or NaN: whether the event came, or that it is not known")
    known = ~np.isnan(chance) & ~np.isnan(happened)
    return chance[known], happened[known], known


def probability_metrics(p: ArrayLike, y: ArrayLike) -> ProbabilityMetrics:
    """All figures. Needs statsmodels for the slope, else that is NaN."""
    chance, happened, _ = known_cases(p, y)
    unknown = int(np.isnan(np.asarray(p, np.float64)).sum())
    n, events = len(chance), int(happened.sum())
    base_rate = events / n if n else math.nan
    brier = float(np.mean((chance - happened) ** 2)) if n else math.nan
    clipped = np.clip(chance, LEAST_P, MOST_P)
    surprise = -np.where(happened == 1, np.log(clipped), np.log1p(-clipped))
    return ProbabilityMetrics(
        n=n,
        events=events,
        unknown=unknown,
        unresolved=np.asarray(p).size - unknown - n,
        base_rate=base_rate,
        brier=brier,
        brier_skill=_skill(brier, happened, base_rate),
        log_score=float(surprise.mean()) if n else math.nan,
        calibration=calibration_in_the_large(chance, happened),
        slope=calibration_slope(chance, happened),
        average_precision=average_precision(chance, happened),
        reliability=reliability(chance, happened),
        cost=cost_curve(chance, happened),
    )


def _skill(brier: float, happened: Array, base_rate: float) -> float:
    reference = float(np.mean((base_rate - happened) ** 2)) if len(happened) else 0.0
    return 1 - brier / reference if reference > 0 else math.nan


def calibration_in_the_large(p: ArrayLike, y: ArrayLike) -> Estimate:
    """sum p / sum y: 2 means that twice as much was announced as came. n is the number of events."""
    chance, happened, _ = known_cases(p, y)
    said, came = float(chance.sum()), int(happened.sum())
    low, high = (float(bound) for bound in garwood(came))
    upper = said / low if low > 0 else math.inf
    return Estimate(said / came if came else math.nan, said / high, upper, came)


def calibration_slope(p: ArrayLike, y: ArrayLike) -> Estimate:
    """Slope of the logistic regression of y on logit p, with its Wald interval. n is the number of events.

    NaN with fewer than 20 events or non-events, if all p are the same, or if p tells the two apart completely.
    """
    chance, happened, _ = known_cases(p, y)
    events = int(happened.sum())
    nothing = Estimate(math.nan, math.nan, math.nan, events)
    logit = np.log(np.clip(chance, LEAST_P, MOST_P)) - np.log1p(-np.clip(chance, LEAST_P, MOST_P))
    if min(events, len(happened) - events) < LEAST_EVENTS or np.ptp(logit) == 0:
        return nothing
    try:
        import statsmodels.api as sm
    except ImportError:
        return nothing
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no convergence, perfect separation: then there is no slope
        try:
            fit: Any = sm.Logit(happened, sm.add_constant(logit)).fit(disp=0)
            (lower, upper), slope = fit.conf_int()[1], fit.params[1]
        except (Warning, np.linalg.LinAlgError, sm.tools.sm_exceptions.PerfectSeparationError):
            return nothing
    return Estimate(float(slope), float(lower), float(upper), events)


def average_precision(p: ArrayLike, y: ArrayLike) -> float:
    """Mean precision over the recall that each threshold adds; cases of equal p share a threshold. NaN without events.

    Precision here is of single GPU-horizons, not of alerts.
    """
    chance, happened, _ = known_cases(p, y)
    if not happened.sum():
        return math.nan
    order = np.argsort(-chance, kind="stable")
    last = np.flatnonzero(np.diff(chance[order], append=-1.0))  # of each run of equal p
    true = np.cumsum(happened[order])[last]
    return float(np.sum(np.diff(true, prepend=0.0) * true / (last + 1)) / happened.sum())


def reliability(p: ArrayLike, y: ArrayLike) -> Reliability:
    """Stated against observed by bins of p, half a decade wide from 1e-5 to 1."""
    chance, happened, _ = known_cases(p, y)
    decades = -round(math.log10(LEAST_BIN))
    bounds = np.concatenate([[0.0], np.geomspace(LEAST_BIN, 1, BINS_A_DECADE * decades + 1)])
    count = len(bounds) - 1
    place = np.clip(np.searchsorted(bounds, chance, side="left") - 1, 0, count - 1)
    n = np.bincount(place, minlength=count)
    came = np.bincount(place, happened, count)
    with np.errstate(invalid="ignore"):
        mean_p, observed = np.bincount(place, chance, count) / n, came / n
    lower, upper = clopper_pearson(came, n)
    return Reliability(bounds, n, mean_p, observed, lower, upper)
