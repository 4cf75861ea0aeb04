"""What a site's own record makes of a prior hazard: its rate, its boards, its recurrences, over the days of the ledger.

The prior's base hazard is that of a GPU of the model anywhere. Here it meets the fleet: when boards were put in, which
delivery they came with, where they stand in the path of the cooling air (topology.csv says that, if anything does), and
what befell them. Everything is re-fitted at each training on the ledger that training sees, so the rate follows the
site: on Titan it moved fivefold within two years.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.hazard import LARGEST_LOG, Doubt, Numbers, PersonTime, fit_hazard
from healthsvc.features.recurrence import Kernel
from healthsvc.fleet import DAY_S, YEAR_S, Arrays, EventLog, FleetHistory, Topology

# Of the arrays that `learn` gives: how many times the prior's rate the site's own events speak for, over the fleet.
# Unobserved GPUs count with it, and the watch threshold moves with it.
SITE_RATIO = "site_ratio"
BLOCK_DAYS = 7  # of the ledger, in which a covariate stands still
MOST_BATCHES = 20  # the largest; a smaller one does not speak for itself
DATES = ("%Y-%m-%d", "%Y-%m", "%Y")


@dataclass(frozen=True)
class SitePrior:
    """gpu_years: how much exposure the prior's rate weighs; recurrent_events:
    how many recurrences its kernel weighs; effect_sd: what is believed of the effect of one unit of a covariate, as the
    standard deviation of log hazard.
    """

    gpu_years: float
    recurrent_events: float
    effect_sd: float
    weak_effect_sd: float  # of covariates that are known to tell little


@dataclass(frozen=True)
class Weak:
    """A covariate of the ledger that tells little: value [gpu, block], as it stood when the block began; `now` [gpu] as
    it stands. More of it is never safer: where the record says otherwise, it has no effect."""

    name: str
    value: Numbers
    now: Numbers


@dataclass(frozen=True)
class Past:
    """What befell the GPUs: merged episodes of the class, known by now; precursors, each worth `strength` episodes.

    seen [gpu, day]: whether an event would have been seen, so that a day without one counts (None: every day).
    """

    episodes: EventLog
    precursors: EventLog = field(default_factory=EventLog)
    strength: float = 0.0
    seen: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Base:
    """The prior's rate of events a GPU-year: of each GPU's model [gpu], and that of the class."""

    per_gpu_year: Numbers
    reference: float


def blocks(history: FleetHistory) -> NDArray[np.intp]:
    """First and past-the-last column of each block of finished days [block, 2]; the first days are lead-in."""
    finished = len(history.daily.days) - int(history.daily.unfinished)
    starts = np.arange(BLOCK_DAYS, finished, BLOCK_DAYS)
    return np.stack([starts, np.minimum(starts + BLOCK_DAYS, finished)], axis=1).reshape(-1, 2)


def learn(
    history: FleetHistory, past: Past, base: Base, kernel: Kernel, prior: SitePrior, weak: Weak | None = None
) -> dict[str, NDArray[np.generic]]:
    """Arrays for a state, their names beginning with `site_`."""
    names, position = _names(history.topology, weak), _spread_of_positions(history.topology)
    cells, block = _person_time(history, past)
    per_s = base.per_gpu_year[cells.row] / YEAR_S
    excited_s, events = cells.tally(past.episodes, kernel)
    excited_s = excited_s + past.strength * cells.tally(past.precursors, kernel)[0]
    x = _covariates(names, position, history.topology, cells.row, cells.start_s)
    if weak is not None:
        x[:, 0] = np.nan_to_num(weak.value[cells.row, block])
    sd = np.full(len(names), prior.effect_sd)
    sd[: int(weak is not None)] = prior.weak_effect_sd
    doubt = Doubt(max(prior.gpu_years * base.reference, 1e-6), prior.recurrent_events, sd**-2.0)
    hazard = fit_hazard(x, cells.exposure_s * per_s, excited_s * per_s, events, doubt)
    if weak is not None and hazard.effects[0] < 0:
        x[:, 0] = 0.0  # more of the hint is never safer: then it says nothing
        hazard = fit_hazard(x, cells.exposure_s * per_s, excited_s * per_s, events, doubt)
    arrays = {
        "site_names": np.array(names, np.str_) if names else np.zeros(0, "U1"),
        "site_effects": hazard.effects,
        "site_log_ratio": np.array(hazard.log_ratio),
        "site_recurrence": np.array(hazard.recurrence),
        "site_position": position,
        "site_events": np.array(hazard.events),
        "site_gpu_years": np.array(float(cells.exposure_s.sum()) / YEAR_S),
    }
    rate = board_ratio(arrays, history, weak) * base.per_gpu_year
    arrays[SITE_RATIO] = np.array(float(rate.mean()) / base.reference if len(rate) else 1.0)
    return arrays


def board_ratio(state: Arrays, history: FleetHistory, weak: Weak | None = None) -> Numbers:
    """How many times the prior's base hazard each GPU has [gpu]; what is not known of it changes nothing."""
    names = tuple(state["site_names"].tolist())
    gpus = len(history.gpus)
    x = _covariates(names, state["site_position"], history.topology, np.arange(gpus), np.full(gpus, history.now_s))
    if weak is not None and names and names[0] == weak.name:
        x[:, 0] = np.nan_to_num(weak.now)
    logs = float(state["site_log_ratio"]) + x @ state["site_effects"].astype(np.float64)
    return np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG))


def _names(topology: Topology, weak: Weak | None) -> tuple[str, ...]:
    names = [weak.name] if weak is not None else []
    names += [column for column in ("installed", "position") if column in topology.groups]
    if "batch" in topology.groups:
        group = topology.groups["batch"]
        size = np.bincount(group[group >= 0], minlength=len(topology.names["batch"]))
        largest = np.sort(np.argsort(-size, kind="stable")[:MOST_BATCHES])
        names += [f"batch={topology.names['batch'][number]}" for number in largest.tolist()]
    return tuple(names)


def _spread_of_positions(topology: Topology) -> Numbers:
    """(mean, standard deviation) of the known positions, so that their unit and their zero mean nothing."""
    gpus = len(topology.groups["position"]) if "position" in topology.groups else 0
    told = _positions(topology, np.arange(gpus)) if gpus else np.zeros(0)
    told = told[~np.isnan(told)]
    return np.array([told.mean(), told.std() or 1.0]) if len(told) else np.array([0.0, 1.0])


def _positions(topology: Topology, row: NDArray[np.intp]) -> Numbers:
    return _of_group([_number(each) for each in topology.names["position"]], topology.groups["position"][row], np.nan)


def _covariates(
    names: tuple[str, ...], position: Numbers, topology: Topology, row: NDArray[np.intp], at_s: Numbers
) -> Numbers:
    """[cell, covariate], 0 where unknown; a name that is none of topology's columns is left 0 for the caller."""
    x = np.zeros((len(row), len(names)))
    for column, name in enumerate(names):
        layer, _, value = name.partition("=")
        if layer not in topology.groups:
            continue
        group, known = topology.groups[layer][row], topology.names[layer]
        if layer == "batch":
            x[:, column] = group == known.index(value) if value in known else 0.0
        elif layer == "position":
            x[:, column] = np.nan_to_num((_positions(topology, row) - position[0]) / position[1])
        elif layer == "installed":
            put_in_s = _of_group([_date_s(each) for each in known], group, np.nan)
            years = np.maximum(at_s - put_in_s, 30 * DAY_S) / YEAR_S
            x[:, column] = np.nan_to_num(np.log(years))
    return x


def _of_group(values: list[float], group: NDArray[np.int32], unknown: float = 0.0) -> Numbers:
    column = np.array([*values, unknown])
    return np.where(np.isnan(column), unknown, column)[group]  # group -1 picks the last


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _date_s(text: str) -> float:
    for form in DATES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return np.nan


def _person_time(history: FleetHistory, past: Past) -> tuple[PersonTime, NDArray[np.intp]]:
    """Cells, and the block of each: days of GPUs that had an episode, whose hazard moves daily; blocks of the rest."""
    edges, daily = blocks(history), history.daily
    if not len(edges):
        nothing = np.zeros(0)
        return PersonTime(np.zeros(0, np.intp), nothing, nothing, nothing), np.zeros(0, np.intp)
    finished = int(edges[-1, 1])
    exposure = np.where(np.isnan(daily.exposure_h), 0.0, daily.exposure_h).astype(np.float64)
    if past.seen is not None:
        exposure = np.where(past.seen, exposure, 0.0)
    struck = np.isin(np.arange(len(daily.gpus)), np.concatenate([past.episodes.row, past.precursors.row]))
    parts = []
    for rows, cuts in (
        (np.flatnonzero(~struck), edges),
        (np.flatnonzero(struck), np.stack([np.arange(edges[0, 0], finished), np.arange(edges[0, 0], finished) + 1], 1)),
    ):
        total = np.add.reduceat(exposure[rows][:, :finished], cuts[:, 0], axis=1)
        row, cut = np.nonzero(total > 0)
        start_s = daily.days[cuts[cut, 0]] * DAY_S
        end_s = (daily.days[cuts[cut, 1] - 1] + 1) * DAY_S
        exposure_s = np.minimum(total[row, cut] * 3600.0, end_s - start_s)
        block = np.searchsorted(edges[:, 0], cuts[cut, 0], side="right") - 1
        parts.append((rows[row], start_s.astype(np.float64), end_s.astype(np.float64), exposure_s, block))
    row, start_s, end_s, exposure_s, block = (np.concatenate(column) for column in zip(*parts, strict=True))
    return PersonTime(row, start_s, end_s, exposure_s), block


def model_rates(default: float, by_model: Mapping[str, float], products: tuple[str, ...]) -> Numbers:
    """Rate of each product [gpu]: that of the longest key that its name contains, else the default."""
    keys = sorted(by_model, key=len, reverse=True)
    known = {name: next((by_model[key] for key in keys if key in name), default) for name in set(products)}
    return np.array([known[name] for name in products], np.float64)
