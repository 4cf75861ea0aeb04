"""Days of correctable errors as a mixture of three states: quiet, elevated, bursting.

One negative binomial fits a fleet badly: a few GPUs make most of the errors, and they make them in bursts. A day's
count is therefore one of three negative binomials, fitted by expectation and maximisation over a histogram of the
fleet's GPU-days, so the cost is one pass over the ledger whatever the number of steps. The states keep their order:
an elevated day has at least 5 times the quiet mean, a bursting one 20 times the elevated.

Blind to order in time: a bad week and seven bad days in three months are the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from healthsvc.features.negative_binomial import Toward, fit_negative_binomial
from healthsvc.fleet import Floats

Numbers = NDArray[np.float64]

QUIET, ELEVATED, BURSTING = 0, 1, 2
STATES = 3
APART = (5.0, 20.0)  # least ratio of the mean to that of the state below
SHAPES = ((0.05, 100.0), (0.3, 100.0), (0.3, 5.0))
STEPS, CONVERGED = 60, 1e-4

EXACT, OCTAVE = 32, 8  # counts below 32 have a bin each, larger ones eight an octave
CEILING = 1e6  # errors a day (12/s): what is above speaks no louder of what bursts are like
COUNT_BINS = EXACT + int(np.ceil(OCTAVE * np.log2(CEILING / EXACT))) + 1
QUARTERS = 4  # exposure to the next quarter of a day
CODES = COUNT_BINS * QUARTERS
LEAST_EXPOSURE_DAYS = 0.25
ROWS = 2048


@dataclass(frozen=True)
class DayStates:
    """share, mean (errors a day of exposure) and shape [state], in the order quiet, elevated, bursting."""

    share: Numbers
    mean: Numbers
    shape: Numbers


# An assumption that a fleet's own days outweigh soon: most GPUs have an error a fortnight, some ten a day, and a burst
# of thousands strikes a GPU once in thirty years.
ASSUMED = DayStates(np.array([0.95, 0.0499, 0.0001]), np.array([0.07, 10.0, 3000.0]), np.array([0.5, 1.0, 0.5]))
ASSUMED_DAYS = 20.0  # how many days of one GPU it weighs, for the shares
LOOSE_MEAN, LOOSE_SHAPE = 1.5, 0.7  # in logs: how far a site may well lie from it


def code_days(counts: Floats, exposure_days: Floats) -> NDArray[np.int16]:
    """The histogram cell of each GPU-day [gpu, day]; CODES where it was not observed for a quarter of a day."""
    codes = np.empty(counts.shape, np.int16)
    for first in range(0, len(counts), ROWS):  # what fits the cache
        rows = slice(first, first + ROWS)
        count, days = counts[rows], exposure_days[rows]
        cell = np.where(count < EXACT, count, 0.0).astype(np.int16)
        large = np.nonzero(count >= EXACT)
        octaves = np.log2(np.minimum(count[large], CEILING) / EXACT)
        cell[large] = EXACT + np.floor(OCTAVE * octaves).astype(np.int16)
        quarter = np.clip(np.ceil(QUARTERS * days), 1, QUARTERS).astype(np.int16) - np.int16(1)
        unseen = np.isnan(count) | ~(days >= LEAST_EXPOSURE_DAYS)
        codes[rows] = np.where(unseen, CODES, cell * np.int16(QUARTERS) + quarter)
    return codes


def cell_counts() -> Numbers:
    """What a cell's count stands for [code]: itself, or the middle of its bin."""
    bins = np.arange(COUNT_BINS, dtype=np.float64)
    middle = EXACT * 2.0 ** ((np.maximum(bins - EXACT, 0.0) + 0.5) / OCTAVE)
    return np.repeat(np.where(bins < EXACT, bins, middle), QUARTERS)


def cell_exposures() -> Numbers:
    """What a cell's exposure stands for, in days [code]."""
    return np.tile(np.arange(1.0, QUARTERS + 1.0) / QUARTERS, COUNT_BINS)


def histogram(codes: NDArray[np.int16]) -> Numbers:
    """How many GPU-days are in each cell [code]; what was not observed is left out."""
    return np.bincount(codes.ravel(), minlength=CODES + 1)[:CODES].astype(np.float64)


def fit_states(weights: Numbers, toward: DayStates = ASSUMED, loose: bool = True) -> DayStates:
    """The three states of a histogram [code], drawn to `toward`, from which the steps also begin.

    loose: `toward` is the assumption and may be far off; else it is the site's fit and the histogram a GPU model's.
    """
    used = np.flatnonzero(weights)
    y, t, w = cell_counts()[used], cell_exposures()[used], weights[used]
    loose_mean, loose_shape = (LOOSE_MEAN, LOOSE_SHAPE) if loose else (1.0, 0.5)
    states = toward
    for _ in range(STEPS):
        belongs = _responsibilities(y, t, states) * w
        share = belongs.sum(axis=1) + ASSUMED_DAYS * toward.share
        mean, shape = np.zeros(STATES), np.zeros(STATES)
        for state in range(STATES):
            drawn = Toward(float(toward.mean[state]), float(toward.shape[state]), loose_mean, loose_shape)
            start = (float(states.mean[state]), float(states.shape[state]))
            mean[state], shape[state] = fit_negative_binomial(y, t, belongs[state], drawn, SHAPES[state], start, 1)
        for above, ratio in enumerate(APART, start=1):
            mean[above] = max(mean[above], ratio * mean[above - 1])
        fresh = DayStates(share / share.sum(), mean, shape)
        moved = max(np.abs(np.log(fresh.share / states.share)).max(), np.abs(np.log(fresh.mean / states.mean)).max())
        states = fresh
        if moved < CONVERGED:
            break
    return states


def responsibilities(states: DayStates) -> Numbers:
    """P(state | cell) [state, code + 1]; 0 in the last column, of days that were not observed."""
    found = np.zeros((STATES, CODES + 1))
    found[:, :CODES] = _responsibilities(cell_counts(), cell_exposures(), states)
    return found


def _responsibilities(y: Numbers, t: Numbers, states: DayStates) -> Numbers:
    log_p = np.log(states.share)[:, None] + _log_mass(y, t, states)
    log_p -= log_p.max(axis=0)
    p = np.exp(log_p)
    return np.asarray(p / p.sum(axis=0), np.float64)


def _log_mass(y: Numbers, t: Numbers, states: DayStates) -> Numbers:
    """log P(y) under each state, less log y!, which all have in common [state, cell]."""
    r, m = states.shape[:, None], states.mean[:, None] * t
    return np.asarray(gammaln(r + y) - gammaln(r) + r * np.log(r / (r + m)) + y * np.log(m / (r + m)), np.float64)
