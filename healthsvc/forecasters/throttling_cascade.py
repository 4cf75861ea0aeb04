"""throttling_cascade: how likely is it that several GPUs of a node, rack, loop, row, feed or job throttle together?

Three things drive a domain. A cooling path that is failing right now carries its members to their limits (heat_path);
a GPU begins by itself, by margin, load, inlet and throttling neighbours (onset_model); and common causes strike that
nothing announces, as often as they have (joint). Domains at risk are simulated for two hours; a day ahead only the
rates speak. A performance probability: it never enters a GPU's risk.

Blind to a cause that strikes within minutes (a burst pipe is detected, not foreseen), and to loads to come.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.counts import fit_gamma
from healthsvc.features.domains import DomainTable, domains_of
from healthsvc.fleet import (
    DAY_S,
    HOUR_S,
    LEAST_MEMBERS,
    THERMAL_THROTTLE_SOURCES,
    Arrays,
    DomainForecast,
    EventKind,
    FleetHistory,
    OnsetBins,
    Signal,
)
from healthsvc.forecasters.base import aligned, device_ids
from healthsvc.forecasters.throttling.assembly import assembled
from healthsvc.forecasters.throttling.counting import at_least, either
from healthsvc.forecasters.throttling.futures import DomainFutures
from healthsvc.forecasters.throttling.joint import JointPrior, joint_rates, rates_of
from healthsvc.forecasters.throttling.onset_model import OnsetModel, OnsetPrior, fit_onsets
from healthsvc.forecasters.throttling.outlook import Outlook, outlook
from healthsvc.forecasters.throttling.reach import reached

Numbers = NDArray[np.float64]
HORIZONS_S = (1800.0, 7200.0, 86_400.0)
THREE, TWO_HOURS, DAY = LEAST_MEMBERS - 1, 1, 2  # positions in probability_at_least_k
RISK_FLOOR = 0.005  # P(at least 3 members, 2 h) below which the closed form will do
MOST_SIMULATED = 200  # domains a cycle, those with most members within reach first


@dataclass(frozen=True)
class ThrottlingCascade:
    """See the module. goes_on: the exponent of how long a failing lasts once it has begun, see simulation; likeness:
    how alike GPUs of the same covariates are, see outlook."""

    name: ClassVar[str] = "throttling_cascade"
    failure_class: ClassVar[str] = "throttling"
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (
        frozenset({*THERMAL_THROTTLE_SOURCES, Signal.CLOCK_EVENT_REASONS}),
    )
    uses: ClassVar[frozenset[Signal]] = frozenset(
        {
            Signal.GPU_TEMPERATURE,
            Signal.POWER,
            Signal.ENERGY,
            Signal.POWER_LIMIT,
            Signal.GPU_MAX_OPERATING_LIMIT,
            Signal.GPU_TEMPERATURE_MARGIN,
        }
    )

    base_onsets_per_gpu_year: float
    prior_gpu_years: float
    goes_on: float
    likeness: float
    joint: JointPrior
    onsets: OnsetPrior

    def fit(self, history: FleetHistory) -> Arrays:
        """Onset rate of each GPU per day, shrunk to the fleet's; events of each domain per day; the onset model."""
        gpus = len(history.gpus)
        onsets = history.events.known_at(history.now_s).of(EventKind.THERMAL_THROTTLE)
        counts = np.bincount(onsets.row, minlength=gpus).astype(np.float64)
        exposure_days = np.sum(history.daily.exposure_h, axis=1, dtype=np.float64) / 24.0
        prior_days = self.prior_gpu_years * 365.25
        prior = fit_gamma(
            np.append(counts, self.base_onsets_per_gpu_year * self.prior_gpu_years),
            np.append(exposure_days, prior_days),
        )
        tables = domains_of(history)
        state: dict[str, NDArray[Any]] = {
            "device_id": device_ids(history.gpus),
            "onset_rate_per_day": (prior.a + counts) / (prior.b + exposure_days),
            "fleet_onset_rate_per_day": np.array(prior.a / prior.b),
            **joint_rates(tables, onsets, float(exposure_days.max(initial=0.0)), self.joint),
        }
        model = fit_onsets(OnsetBins.joined(history.onset_bins), history.topology, gpus, self.onsets)
        return state | dict(model.to_arrays())

    def forecast(self, state: Arrays, history: FleetHistory) -> DomainForecast:
        """P(at least k members throttle), members that throttle now counting as certain. [domain, k, horizon]"""
        model = OnsetModel.from_arrays(state)
        fleet_rate = float(state["fleet_onset_rate_per_day"])
        rate = aligned(state, "onset_rate_per_day", history.gpus, fleet_rate).astype(np.float64)
        now = outlook(history, model, rate, HORIZONS_S, self.likeness)
        tables = [_observed(table, now.seen) for table in domains_of(history)]
        rows = [table.table for table in tables]
        joint = [rates_of(state, table.layer, table.names, self.joint) for table in tables]
        chances = [self._closed_form(now, each, together) for each, together in zip(rows, joint, strict=True)]
        lost_h = [_lost_hours(now, each) for each in rows]
        futures = DomainFutures(now, model, history, HORIZONS_S[:DAY], self.goes_on)
        for layer, domain in _most_at_risk(chances, rows, now):
            future = futures.of(rows[layer][domain], tables[layer].names[domain])
            soon = either(future.at_least, -np.expm1(-joint[layer][domain] * np.array(HORIZONS_S[:DAY]) / DAY_S))
            chances[layer][domain, :, :DAY] = soon
            chances[layer][domain, :, DAY] = np.maximum(chances[layer][domain, :, DAY], soon[:, -1])
            lost_h[layer][domain] = future.throttled_h
        return assembled(history, HORIZONS_S, tables, chances, lost_h, now, self.joint, model.neighbour_effects())

    def _closed_form(self, now: Outlook, rows: NDArray[np.intp], joint_per_day: Numbers) -> Numbers:
        """[domain, k, horizon]: by themselves, by what is failing, or by what strikes them together."""
        member = rows >= 0
        count = (now.hot[rows] & member).sum(axis=1)
        alone = at_least(now.chance[rows] * member[:, :, None], count)
        carried = reached(rows, now.hot, now.path, now.needed_s, HORIZONS_S, self.goes_on)
        together = -np.expm1(-joint_per_day[:, None] * np.array(HORIZONS_S) / DAY_S)[:, None, :]
        return either(either(alone, carried), together)


def _observed(table: DomainTable, seen: NDArray[np.bool_]) -> DomainTable:
    """Those domains of which at least three members are observed, with these members."""
    inside = (table.table >= 0) & seen[table.table]
    big = inside.sum(axis=1) >= LEAST_MEMBERS
    names = tuple(name for name, keep in zip(table.names, big.tolist(), strict=True) if keep)
    return DomainTable(table.layer, names, np.where(inside, table.table, -1)[big], table.inferred)


def _most_at_risk(chances: list[Numbers], rows: list[NDArray[np.intp]], now: Outlook) -> list[tuple[int, int]]:
    """(table, domain) of the domains to simulate."""
    near = np.isfinite(now.needed_s) | now.hot
    found = [
        (-int((near[rows[layer][domain]] & (rows[layer][domain] >= 0)).sum()), layer, domain)
        for layer in range(len(rows))
        for domain in np.flatnonzero(chances[layer][:, THREE, TWO_HOURS] >= RISK_FLOOR).tolist()
    ]
    return [(layer, domain) for _, layer, domain in sorted(found)[:MOST_SIMULATED]]


def _lost_hours(now: Outlook, rows: NDArray[np.intp]) -> Numbers:
    """Who begins within the horizon begins anywhere in it alike, so half of it is lost on average."""
    member = rows >= 0
    whole = (now.hot[rows] & member).sum(axis=1)
    begun = (now.chance[rows, TWO_HOURS] * member).sum(axis=1)
    return np.asarray((whole + begun / 2) * HORIZONS_S[TWO_HOURS] / HOUR_S, np.float64)
