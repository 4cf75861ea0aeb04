"""What is known of each GPU's next hours, before domains are counted: its chance to begin by itself, its margin, and
the failing that carries it there."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.facts import throttling_now
from healthsvc.features.half_hours import HALF_HOUR_S
from healthsvc.features.onset_bins import THROTTLED_RATIO, BinGrid, covariates, grid_of_recent
from healthsvc.features.windows import WINDOW_S
from healthsvc.fleet import DAY_S, HOUR_S, ONSET_COVARIATES, FleetHistory, Floats
from healthsvc.forecasters.throttling.heat_path import HeatPath, heat_path
from healthsvc.forecasters.throttling.onset_model import NEIGHBOURS, OnsetModel
from healthsvc.forecasters.throttling.reach import needed_s

Numbers = NDArray[np.float64]
BINS, HALF_HOUR_BINS = 12, round(HALF_HOUR_S / WINDOW_S)  # of two hours; what a shorter window lacks is not observed
MARGIN, LOAD = (ONSET_COVARIATES.index(name) for name in ("margin_celsius", "power_ratio"))


@dataclass(frozen=True)
class Outlook:
    """Each [gpu]. hot: throttles now; seen: observed at all; alone: log odds of an onset within ten minutes, without
    neighbours; chance [gpu, horizon] of an onset by itself, with the neighbours of now; margin_celsius; path and
    needed_s: what is failing, and how much longer it has to until the GPU is at its limit; explained: the chance that
    the half hour before now had, without neighbours, NaN where the GPU throttled already at its start."""

    hot: NDArray[np.bool_]
    seen: NDArray[np.bool_]
    alone: Numbers
    chance: Numbers
    margin_celsius: Numbers
    path: HeatPath
    needed_s: Numbers
    explained: Numbers


def outlook(
    history: FleetHistory, model: OnsetModel, rate_per_day: Numbers, horizons_s: tuple[float, ...], likeness: float
) -> Outlook:
    """rate_per_day [gpu]: of onsets, by each GPU's own record; a day ahead only it speaks, and where nothing but the
    throttling itself is observed. likeness: see `own_multiple`."""
    hot, seen = throttling_now(history)
    grid = grid_of_recent(history, BINS)
    x = covariates(grid, history.topology)
    bare = _without_neighbours(x)
    places = model.places(history.topology, len(history.gpus))
    hour = history.now_s % DAY_S / HOUR_S
    past = np.stack([model.log_odds(bare[:, at], places, hour) for at in range(BINS)], axis=1)  # [gpu, bin]
    now = x[:, -1]
    by_record = np.log(np.expm1(rate_per_day * WINDOW_S / DAY_S))  # odds of a Poisson rate: exp(r) - 1
    blind = np.isnan(now[:, MARGIN])
    own = np.log(own_multiple(grid, np.where(np.isnan(x[:, :, MARGIN]), -np.inf, past), likeness))
    logit = np.where(blind, by_record, model.log_odds(now, places, hour) + own)
    alone = np.where(blind, by_record, past[:, -1] + own)
    quiet = np.where(hot, 0.0, 1.0)
    hazard = np.logaddexp(0.0, logit)  # of ten minutes: -log(1 - p)
    soon = [quiet * -np.expm1(-hazard * h / WINDOW_S) for h in horizons_s[:-1]]
    day = np.maximum(quiet * -np.expm1(-rate_per_day * horizons_s[-1] / DAY_S), soon[-1])
    path = heat_path(history)
    margin = grid.limit_celsius - path.temperature_celsius
    # As if the load had been at the start what it is now.
    start = bare[:, -1 - HALF_HOUR_BINS].copy()
    grown = np.maximum(now[:, LOAD] - start[:, LOAD], 0.0) / np.maximum(now[:, LOAD], 1e-3)
    start[:, MARGIN] -= np.nan_to_num(grown * path.rise_celsius)
    explained = -np.expm1(-np.logaddexp(0.0, model.log_odds(start, places, hour)) * HALF_HOUR_BINS)
    clear = grid.throttled_ratio[:, -1 - HALF_HOUR_BINS] <= THROTTLED_RATIO
    explained = np.where(clear & ~np.isnan(start[:, MARGIN]), explained, np.nan)
    return Outlook(hot, seen, alone, np.stack([*soon, day], axis=1), margin, path, needed_s(path, margin), explained)


def own_multiple(grid: BinGrid, log_odds: Numbers, likeness: float) -> Numbers:
    """How many times the model's hazard a GPU has, by what it did in the last two hours [gpu]; log_odds [gpu, bin]: of
    an onset in the bin that follows.

    Gamma frailty with mean 1 and shape `likeness` (Vaupel, Manton & Stallard 1979, Demography 16:439): (likeness +
    onsets) / (likeness + expected). Sensors and limits are off by a degree or two, the same one all day: who has stood
    near its limit for two hours without throttling will not begin by chance. 1 for who was far from it.
    """
    throttles = grid.throttled_ratio > THROTTLED_RATIO
    at_risk = ~throttles[:, :-1] & ~np.isnan(grid.throttled_ratio[:, 1:])
    expected = np.where(at_risk, np.logaddexp(0.0, log_odds[:, :-1]), 0.0).sum(axis=1)
    onsets = (at_risk & throttles[:, 1:]).sum(axis=1)
    return np.asarray((likeness + onsets) / (likeness + expected), np.float64)


def _without_neighbours(x: Floats) -> Floats:
    bare = x.copy()
    bare[..., NEIGHBOURS] = 0.0
    return bare
