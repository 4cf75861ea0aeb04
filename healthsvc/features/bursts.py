"""What a GPU's own days say of its next one: how it makes errors when quiet, when elevated, and when it bursts.

The fleet's states (features/mixture) give every GPU-day its chances of each state; a GPU's own days then move its
shares of the states and its means within them away from its model's. A GPU that always bursts is explained by its own
bursts, and one that never did keeps a small chance of a burst of any size.

Blind to the hour: an hour's errors are held against whole days, which can only make them look less unusual.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from healthsvc.features.counts import GammaPrior, fit_groups
from healthsvc.features.mixture import (
    ASSUMED,
    BURSTING,
    CODES,
    ELEVATED,
    EXACT,
    QUARTERS,
    QUIET,
    ROWS,
    STATES,
    DayStates,
    cell_counts,
    cell_exposures,
    fit_states,
    histogram,
    responsibilities,
)
from healthsvc.features.negative_binomial import Toward
from healthsvc.fleet import Floats

Numbers = NDArray[np.float64]

# Columns of a profile [gpu, column]: shares of the states, mean and shape of a day's count in the two lower ones, and
# of the sizes of bursts, which are gamma with `burst_shape` and a rate that is Gamma(burst_a, burst_b) itself.
PROFILE = (
    "elevated_share",
    "bursting_share",
    "quiet_mean",
    "quiet_shape",
    "elevated_mean",
    "elevated_shape",
    "burst_a",
    "burst_b",
    "burst_shape",
)
SIZE_TAIL = 2.0  # power with which the sizes of bursts fall off from GPU to GPU; fixed, since few GPUs ever burst
ASSUMED_BURSTERS = 3  # GPUs with bursts of the assumed size, beside the fleet's own
LOOSE = (1.0, 3.0)  # in logs: how far a fleet's share of days, and its evenness over GPUs, may lie from the assumed
HALF_DAY = 0.5  # fewer days in a state than this are none
ASSUMED_SPREAD_WEIGHT = 5.0  # GPU-days


@dataclass(frozen=True)
class DaySums:
    """Sums over a GPU's days, weighted by the chance of each state, [state, gpu]: days, exposure in days, errors and
    their squares. A count above 31 enters at the middle of its bin (4 %), but a burst's as it was."""

    days: Numbers
    exposure_days: Numbers
    errors: Numbers
    squares: Numbers


@dataclass(frozen=True)
class Profiles:
    """own [gpu, column of PROFILE]; of_group [group + 1, column] for GPUs without a day of their own, the site's last;
    sums [state, gpu]; states: the site's."""

    own: Numbers
    of_group: Numbers
    sums: DaySums
    states: DayStates


def fit_profiles(codes: NDArray[np.int16], counts: Floats, groups: NDArray[np.int32]) -> Profiles:
    """Profiles of all GPUs: codes, counts [gpu, day] as `code_days` takes and gives them, groups [gpu] (the model)."""
    number = int(groups.max(initial=-1)) + 1
    members = [np.flatnonzero(groups == group) for group in range(number)]
    cells = np.array([histogram(codes[rows]) for rows in members]).reshape(number, CODES)
    site = fit_states(cells.sum(axis=0))
    of_group = [site if number == 1 else fit_states(each, site, loose=False) for each in cells]
    sums = DaySums(*(np.zeros((STATES, len(codes))) for _ in range(4)))
    for rows, states in zip(members, of_group, strict=True):
        _add(sums, rows, codes, counts, states)
    days = sums.days.sum(axis=0)
    elevated, bursting = (
        fit_groups(_whole(sums.days[k]), days, groups, Toward(float(ASSUMED.share[k]), 0.5, *LOOSE), winsorise=False)
        for k in (ELEVATED, BURSTING)
    )
    scale = _burst_scale(sums)
    own = np.zeros((len(codes), len(PROFILE)))
    table = np.zeros((number + 1, len(PROFILE)))
    nothing = DaySums(*(np.zeros((STATES, 1)) for _ in range(4)))
    for group in range(number + 1):
        last = group == number
        rows = np.arange(len(codes)) if last else members[group]
        states = site if last else of_group[group]
        part = DaySums(*(each[:, rows] for each in (sums.days, sums.exposure_days, sums.errors, sums.squares)))
        spread = [_spread_within(part, k, float(states.shape[k])) for k in (QUIET, ELEVATED)]
        shares = [each[0] if last else each[1][group] for each in (elevated, bursting)]
        table[group] = _profile(nothing, states, spread, shares, scale, float(site.shape[BURSTING]))[0]
        if not last:
            own[rows] = _profile(part, states, spread, shares, scale, float(site.shape[BURSTING]))
    return Profiles(own, table, sums, site)


def day_tail(count: Numbers, profile: Numbers) -> Numbers:
    """P(a day has `count` errors or more) by each GPU's own mixture [gpu]; 1 at 0, NaN where NaN.

    profile [gpu, column]. Falls with every further error, and for bursts as a power of their size only.
    """
    column = dict(zip(PROFILE, profile.T, strict=True))
    y = np.maximum(np.where(np.isnan(count), 1.0, count), 1.0)

    def calm(state: str) -> Numbers:
        mean, shape = column[f"{state}_mean"], column[f"{state}_shape"]
        return np.asarray(betainc(y, shape, mean / (shape + mean)), np.float64)

    size, scale = column["burst_a"], column["burst_b"]
    burst = betainc(size, column["burst_shape"], scale / (scale + y))
    high, burst_share = column["elevated_share"], column["bursting_share"]
    tail = (1.0 - high - burst_share) * calm("quiet") + high * calm("elevated") + burst_share * burst
    return np.where(np.isnan(count), np.nan, np.where(count <= 0, 1.0, np.minimum(tail, 1.0)))


def expected_day(profile: Numbers) -> Numbers:
    """Mean errors of a day by each GPU's own mixture [gpu]."""
    column = dict(zip(PROFILE, profile.T, strict=True))
    burst = column["burst_shape"] * column["burst_b"] / (column["burst_a"] - 1.0)
    high, share = column["elevated_share"], column["bursting_share"]
    return np.asarray(
        (1.0 - high - share) * column["quiet_mean"] + high * column["elevated_mean"] + share * burst, np.float64
    )


def _add(sums: DaySums, rows: NDArray[np.intp], codes: NDArray[np.int16], counts: Floats, states: DayStates) -> None:
    """Writes the sums of the GPUs `rows`."""
    belongs = responsibilities(states)
    count, exposure = np.append(cell_counts(), 0.0), np.append(cell_exposures(), 0.0)
    table = np.concatenate([belongs, belongs * exposure, belongs * count, belongs * count**2]).T.copy()
    for first in range(0, len(rows), ROWS):
        part = rows[first : first + ROWS]
        code = codes[part].astype(np.intp)
        total = np.zeros((len(part), table.shape[1]))
        for day in range(code.shape[1]):  # a day's rows of the table at a time stay in the cache
            total += np.take(table, code[:, day], axis=0)
        parts = total.T.reshape(-1, STATES, len(part))
        for out, found in zip((sums.days, sums.exposure_days, sums.errors, sums.squares), parts, strict=True):
            out[:, part] = found
        at = np.nonzero((code >= EXACT * QUARTERS) & (code < CODES))
        above = belongs[BURSTING][code[at]] * (counts[part[at[0]], at[1]] - count[code[at]])
        sums.errors[BURSTING, part] += np.bincount(at[0], above, len(part))


def _whole(days: Numbers) -> Numbers:
    return np.where(days < HALF_DAY, 0.0, days)


def _spread_within(sums: DaySums, state: int, shape: float) -> float:
    """Squared relative spread of one GPU's days of a state beyond Poisson's, pooled over the GPUs with several.

    Drawn to 1 / shape, all that the state has: what is not within GPUs is between them.
    """
    n = sums.days[state]
    rows = np.flatnonzero(n >= 5.0)
    n, mean = n[rows], sums.errors[state, rows] / n[rows]
    spread = (sums.squares[state, rows] / n - mean**2) * n / (n - 1.0)
    weight = (n - 1.0) / (1.0 + mean) ** 2  # of few errors the spread is little known
    top = np.sum(weight * (spread - mean)) + ASSUMED_SPREAD_WEIGHT / shape
    return float(np.clip(top / (np.sum(weight * mean**2) + ASSUMED_SPREAD_WEIGHT), 0.01, 1.0 / shape))


def _burst_scale(sums: DaySums) -> float:
    """Mean size of a burst on the middle GPU of those that have had one: a single storm moves it little."""
    struck = sums.days[BURSTING] >= HALF_DAY
    sizes = sums.errors[BURSTING, struck] / sums.days[BURSTING, struck]
    return float(np.median(np.append(sizes, np.full(ASSUMED_BURSTERS, ASSUMED.mean[BURSTING]))))


def _profile(
    sums: DaySums,
    states: DayStates,
    spread: list[float],
    shares: list[GammaPrior],
    burst_scale: float,
    burst_shape: float,
) -> Numbers:
    """[gpu, column of PROFILE]: the priors and the GPUs' own sums."""
    days = sums.days.sum(axis=0)
    share = [(prior.a + _whole(sums.days[k])) / (prior.b + days) for k, prior in enumerate(shares, start=1)]
    over = np.maximum(share[0] + share[1], 1.0)
    columns = [share[0] / over, share[1] / over]
    for state in (QUIET, ELEVATED):
        # The states' shape is that of a product: of the GPU's own level and of its days around it.
        within, mean = spread[state], float(states.mean[state])
        a = 1.0 / max((1.0 + 1.0 / float(states.shape[state])) / (1.0 + within) - 1.0, 0.01)
        level = (a + sums.errors[state]) / (a / mean + sums.exposure_days[state])
        doubt = 1.0 + level * within  # variance by mean of a day: so much less each error says
        own_a, own_b = a + sums.errors[state] / doubt, a / mean + sums.exposure_days[state] / doubt
        columns += [own_a / own_b, 1.0 / ((1.0 + 1.0 / own_a) * (1.0 + within) - 1.0)]
    bursts = _whole(sums.days[BURSTING])
    size = np.where(bursts > 0, sums.errors[BURSTING], 0.0)
    columns += [
        SIZE_TAIL + burst_shape * bursts,
        burst_scale * (SIZE_TAIL - 1.0) / burst_shape + size,
        np.full(days.shape, burst_shape),
    ]
    return np.stack(columns, axis=1)
