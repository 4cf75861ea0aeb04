"""What the days say of one thermal path (die or memory): its level, its drift, and how sure it is that it drifts."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.drift import best_change, day_scatter, persistence_of, tail_of_best, whiten, without_spikes
from healthsvc.features.medians import nan_median
from healthsvc.features.trend import TrendPath, TrendSpec, likeliest_steps, trend_path
from healthsvc.fleet import Floats
from healthsvc.fleet.meaning import THERMAL_DAYS

Numbers = NDArray[np.float64]
LEVEL_STEPS, SLOPE_STEPS = (0.0005, 0.001, 0.002), (0.00003, 0.0001)  # the grid, standard deviations a day
TREND = TrendSpec(level_step=0.0005, slope_step=0.0001, slope_prior=0.003, slope_opened=0.01)
MLE_GPUS = 200  # so many tell the order of magnitude


@dataclass(frozen=True)
class PathSpec:
    """Numbers of the drift test and of the trend. Deviations are of log R: 0.01 is 1 % of the resistance."""

    least_days: int = THERMAL_DAYS
    noise_floor: float = 0.003
    own_noise_days: float = 60.0  # so many days of its own weigh as much as the fleet's noise
    persistence: float = 0.4
    persistence_pairs: float = 200.0  # what the believed persistence is worth
    drifting: float = 4e-4  # share of GPUs whose cooling path degrades at any time
    tries: float = 4.0  # independent beginnings of a drift that 60 days hold; the study's `constants` simulates both
    slopes: float = 100.0  # by how much a drift of any slope fits noise better than one given beforehand, and more
    reset_z: float = 6.0
    reset_drop: float = 0.03
    trend: TrendSpec = field(default_factory=lambda: TREND)


@dataclass(frozen=True)
class PathFound:
    """Each [gpu]; NaN where fewer than the least days are observed since the last reset.

    level, slope and their variances: of log R against peers after the last day. noise, persistence: of single days.
    drift_p: probability that it drifts; change_p: tail of the drift test. excess: above the days before the drift, or
    above its first. onset, began: columns from which the drift and the days in use count, -1 = none. step_z: of the
    best single step up. days: observed since `began`.
    """

    level: Numbers
    slope: Numbers
    level_var: Numbers
    cross_var: Numbers
    slope_var: Numbers
    noise: Numbers
    persistence: Numbers
    drift_p: Numbers
    change_p: Numbers
    z: Numbers
    step_z: Numbers
    excess: Numbers
    onset: Numbers
    began: Numbers
    days: Numbers


def learn_path(
    ratio: Floats, model: NDArray[np.intp], doubt: Numbers, spec: PathSpec
) -> tuple[PathFound, dict[int, TrendPath]]:
    """ratio: log R against peers [gpu, day]; model: number of those alike [gpu], within which noise is pooled: of one
    product and measured alike, since weather is noise where no inlet tells of it; doubt: deviation that comes on top of
    a GPU's noise when it is tested [gpu].

    Also the filter's path of each model, its GPUs in the order of their rows.
    """
    parts: dict[str, Numbers] = {field.name: np.full(len(ratio), np.nan) for field in fields(PathFound)}
    paths = {}
    for number in np.unique(model).tolist():
        rows = np.flatnonzero(model == number)
        found, paths[number] = _learn(ratio[rows].astype(np.float64), doubt[rows], spec)
        for name, values in found.items():
            parts[name][rows] = values
    return PathFound(**parts), paths


def _learn(ratio: Numbers, doubt: Numbers, spec: PathSpec) -> tuple[dict[str, Any], TrendPath]:
    scatter = day_scatter(ratio)
    persistence = persistence_of(ratio, spec.persistence, spec.persistence_pairs)
    own = _noise(ratio, scatter, persistence, spec)
    noise = np.hypot(own, doubt)
    calm: Numbers = np.asarray(without_spikes(ratio, noise), np.float64)
    began = _resets(calm, noise, persistence, spec)
    columns = np.arange(ratio.shape[1])[None, :]
    calm = np.where(columns >= began[:, None], calm, np.nan)
    days = np.sum(~np.isnan(calm), axis=1)
    ready = days >= spec.least_days

    series = whiten(calm, noise, persistence)
    ramp = best_change(series, "ramp", 1, 0, 3)
    step = best_change(series, "step", 1, 5, 3)
    drift_p = drift_chance(ramp.z, spec)
    onset = np.where(drift_p > spec.drifting, ramp.column, -1)
    # Whoever believes in white noise must be given white noise of the same long-run variance, or trusts its slope.
    white = noise * np.sqrt((1 + persistence) / (1 - persistence))
    some = np.flatnonzero(ready & (onset < 0))
    some = some[:: max(len(some) // MLE_GPUS, 1)]
    trend_spec = likeliest_steps(calm[some], white[some], spec.trend, LEVEL_STEPS, SLOPE_STEPS)
    path = trend_path(calm, white, trend_spec, onset)
    now = path.now
    normal = nan_median(np.where(_before(columns, onset, calm, spec.least_days), calm, np.nan))

    def known(values: NDArray[Any]) -> Numbers:
        return np.where(ready, values, np.nan).astype(np.float64)

    return {
        "level": known(now.level),
        "slope": known(now.slope),
        "level_var": known(now.level_var),
        "cross_var": known(now.cross_var),
        "slope_var": known(now.slope_var),
        "noise": own,
        "persistence": np.full(len(ratio), persistence),
        "drift_p": known(drift_p),
        "change_p": known(tail_of_best(ramp.z, spec.tries)),
        "z": known(ramp.z),
        "step_z": known(step.z),
        "excess": known(now.level - normal),
        "onset": onset.astype(np.float64),
        "began": began.astype(np.float64),
        "days": days.astype(np.float64),
    }, path


def drift_chance(z: Numbers, spec: PathSpec) -> Numbers:
    """Probability that a GPU drifts, given the best z of its drift test [gpu]; NaN where it was not tested.

    Prior odds times exp(z^2 / 2), the likelihood ratio of the best drift, over the beginnings and slopes among which it
    was best. `slopes` is a deliberately cautious divisor, since real tails are heavier than normal ones: on 250,000
    simulated series without any drift the mean odds are 0.02 to 0.04 of the prior ones (the study's `constants`).
    """
    log_odds = np.log(spec.drifting / (1 - spec.drifting)) + np.maximum(z, 0.0) ** 2 / 2
    log_odds -= np.log(spec.tries * spec.slopes)
    return np.asarray(1.0 / (1.0 + np.exp(-log_odds)), np.float64)


def _noise(ratio: Numbers, scatter: Numbers, persistence: float, spec: PathSpec) -> Numbers:
    """Deviation of single days [gpu]: the fleet's median, and more where a GPU's own days say so.

    Never less: two months tell a deviation to 7 %, and who happened to be quiet would alarm at the next ordinary week.
    """
    own = scatter / np.sqrt(1 - persistence)
    fleet = float(nan_median(own)) if len(own) else np.nan
    fleet = max(spec.noise_floor, 0.0 if np.isnan(fleet) else fleet)
    days = np.where(np.isnan(own), 0.0, np.sum(~np.isnan(ratio), axis=1))
    mixed = (days * np.where(np.isnan(own), 0.0, own) ** 2 + spec.own_noise_days * fleet**2) / (
        days + spec.own_noise_days
    )
    return np.asarray(np.maximum(np.sqrt(mixed), fleet), np.float64)


def _resets(calm: Numbers, noise: Numbers, persistence: float, spec: PathSpec) -> NDArray[np.intp]:
    """First column in use [gpu]: after the newest clear step down, as a new thermal interface leaves it; else 0."""
    began = np.zeros(len(calm), np.intp)
    rows = np.arange(len(calm))
    values = calm
    for _ in range(2):  # the clearest step need not be the newest
        drop = best_change(whiten(values, noise[rows], persistence), "step", -1, 5, 3)
        stepped = (drop.z > spec.reset_z) & (drop.size < -spec.reset_drop)
        if not stepped.any():
            break
        rows, columns = rows[stepped], drop.column[stepped]
        began[rows] = columns
        values = np.where(np.arange(calm.shape[1])[None, :] >= columns[:, None], calm[rows], np.nan)
    return began


def _before(columns: NDArray[np.intp], onset: NDArray[np.intp], calm: Numbers, least_days: int) -> NDArray[np.bool_]:
    """Days that say what was normal [gpu, day]: those before the drift, or the first ones where there are too few."""
    number = np.cumsum(~np.isnan(calm), axis=1)
    before = (columns < onset[:, None]) & (number > 0)
    enough = np.sum(before & ~np.isnan(calm), axis=1) >= least_days
    flags: NDArray[np.bool_] = np.where(enough[:, None], before, number <= least_days)
    return flags
