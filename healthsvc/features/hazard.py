"""Proportional hazards of events that recur, learned from person-time against a prior that never quite goes away.

mean events of a cell = exp(a + x b) (expected + s excited): `expected` is what the prior's base rate would give in the
cell, `excited` what it would add after the events before (features.recurrence). a, b and s are maximum a posteriori:
the prior is a pseudo-record of so many events that went as the base rate says (a = 0), as many that recurred as the
kernel says (s = 1), and a ridge on b. Poisson likelihood of piecewise exposure: Laird & Olivier 1981, JASA 76:231.

Blind to what happens inside a cell: an event counts as recurrence only of events in earlier cells.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.recurrence import Kernel
from healthsvc.fleet import EventLog

Numbers = NDArray[np.float64]

MOST_ROUNDS = 30
CLOSE_ENOUGH = 1e-6  # of every coefficient, between two rounds
LONGEST_STEP = 2.0
LARGEST_LOG = 12.0  # exp of it is more than any fleet's rate differs from the prior's


@dataclass(frozen=True)
class PersonTime:
    """Cells in which a GPU was observed: row int[cell]; start_s, end_s and the exposure_s between them [cell]."""

    row: NDArray[np.intp]
    start_s: Numbers
    end_s: Numbers
    exposure_s: Numbers

    def tally(self, episodes: EventLog, kernel: Kernel) -> tuple[Numbers, Numbers]:
        """(excited seconds, events) of each cell, from merged `episodes` in order of row and start.

        Excited: base-hazard seconds that the episodes before the cell's start add to its exposure. Events: episodes in
        [start, end).
        """
        excited, events = np.zeros(len(self.row)), np.zeros(len(self.row))
        order = np.lexsort((self.start_s, self.row))
        row, start, end = self.row[order], self.start_s[order], self.end_s[order]
        # One axis for all rows: a row's cells stand together on it, in order of time.
        first = min(start.min(initial=np.inf), episodes.start_s.min(initial=np.inf))
        stretch = max(end.max(initial=-np.inf), episodes.start_s.max(initial=-np.inf)) - first + 1.0
        on_axis = row * stretch + (start - first)
        at = episodes.row * stretch + (episodes.start_s - first)
        inside = np.searchsorted(on_axis, at, side="right") - 1
        held = inside >= 0
        held[held] &= (row[inside[held]] == episodes.row[held]) & (episodes.start_s[held] < end[inside[held]])
        np.add.at(events, order[inside[held]], 1.0)

        begins = np.searchsorted(on_axis, at, side="right")  # cells after the episode's, of the same row
        ends = np.searchsorted(row, episodes.row, side="right")
        counts = np.maximum(ends - begins, 0)
        episode = np.repeat(np.arange(len(at)), counts)
        first_pair = np.repeat(np.cumsum(counts) - counts, counts)
        cell = order[np.arange(counts.sum()) - first_pair + np.repeat(begins, counts)]
        length = self.end_s[cell] - self.start_s[cell]
        mass = kernel.mass(self.start_s[cell] - episodes.start_s[episode], length)
        np.add.at(excited, cell, mass * self.exposure_s[cell] / np.maximum(length, 1e-9))
        struck = np.unique(cell)
        excited[struck] += kernel.frailty * self.exposure_s[struck]
        return excited, events


@dataclass(frozen=True)
class Doubt:
    """How much the prior weighs: in events, of the base rate and of the recurrences, and the ridge on b, one for all
    covariates or one for each: 1 / variance of what is believed of them."""

    base_events: float
    recurrent_events: float
    ridge: float | Numbers


@dataclass(frozen=True)
class Hazard:
    """What was learned: log ratio to the prior's base rate, effects of the covariates, ratio of recurrences, and on how
    many events."""

    log_ratio: float
    effects: Numbers
    recurrence: float
    events: float

    def ratio(self, x: Numbers) -> Numbers:
        """exp(a + x b): how many times the prior's base hazard each row of `x` [row, covariate] has."""
        return np.exp(np.clip(self.log_ratio + x @ self.effects, -LARGEST_LOG, LARGEST_LOG))


def fit_hazard(x: Numbers, expected: Numbers, excited: Numbers, events: Numbers, doubt: Doubt) -> Hazard:
    """x [cell, covariate], 0 where unknown; expected, excited, events [cell], in events. See the module.

    Newton's method for (a, b) and the EM step for s in turn: each event belongs to the recurrences by their share of
    its cell's mean. Without events the base rate sinks below the prior's as the exposure grows, as it should.
    """
    use = expected > 0
    x, expected, excited, events = x[use], expected[use], excited[use], events[use]
    theta, recurrence = np.zeros(1 + x.shape[1]), 1.0
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    for _ in range(MOST_ROUNDS):
        before = np.append(theta, recurrence)
        theta = _newton(design, expected + recurrence * excited, events, theta, doubt)
        mean = np.exp(np.clip(design @ theta, -LARGEST_LOG, LARGEST_LOG))
        share = recurrence * excited / (expected + recurrence * excited)
        recurrent = doubt.recurrent_events
        recurrence = float((recurrent + events @ share) / (recurrent + mean @ excited))
        if np.abs(np.append(theta, recurrence) - before).max() < CLOSE_ENOUGH:
            break
    return Hazard(float(theta[0]), theta[1:], recurrence, float(events.sum()))


def _newton(design: Numbers, offset: Numbers, events: Numbers, theta: Numbers, doubt: Doubt) -> Numbers:
    """Penalised Poisson regression from `theta`; the intercept's penalty is the pseudo-record of `base_events`."""
    ridge = np.append(0.0, np.broadcast_to(doubt.ridge, design.shape[1] - 1))
    for _ in range(MOST_ROUNDS):
        mean = np.exp(np.clip(design @ theta, -LARGEST_LOG, LARGEST_LOG)) * offset
        told = doubt.base_events * np.exp(np.clip(theta[0], -LARGEST_LOG, LARGEST_LOG))
        gradient = design.T @ (events - mean) - ridge * theta
        gradient[0] = (events - mean).sum() + doubt.base_events - told
        curvature = (design * mean[:, None]).T @ design + np.diag(ridge)
        curvature[0, 0] = mean.sum() + told
        step = np.clip(np.linalg.solve(curvature, gradient), -LONGEST_STEP, LONGEST_STEP)
        theta = theta + step
        if np.abs(step).max() < CLOSE_ENOUGH / 10:
            break
    return theta
