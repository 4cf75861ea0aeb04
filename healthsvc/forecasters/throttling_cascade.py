"""throttling_cascade: how likely is it that several GPUs of a node, rack, loop or feed throttle together?

Plainest form: each member starts to throttle at its shrunk rate, raised by the neighbours of its domain that throttle
already; the domain's count is Poisson-binomial. A performance probability: it never enters a GPU's risk.

Blind to: what drives the neighbours. Heat and contagion look alike here, and no claim of contagion is made.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.counts import fit_gamma
from healthsvc.features.facts import DOMAIN_LAYERS, throttling_now
from healthsvc.features.medians import group_rows
from healthsvc.fleet import (
    DAY_S,
    HOUR_S,
    LEAST_MEMBERS,
    THERMAL_THROTTLE_SOURCES,
    Arrays,
    DomainForecast,
    EventKind,
    FleetHistory,
    Signal,
)
from healthsvc.forecasters.base import aligned, device_ids

HORIZONS_S = (1800.0, 7200.0, 86_400.0)


@dataclass(frozen=True)
class ThrottlingCascade:
    """See the module. neighbour_effect: log hazard a log(1 + neighbours throttling), assumed until fitted."""

    name: ClassVar[str] = "throttling_cascade"
    failure_class: ClassVar[str] = "throttling"
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (
        frozenset({*THERMAL_THROTTLE_SOURCES, Signal.CLOCK_EVENT_REASONS}),
    )
    uses: ClassVar[frozenset[Signal]] = frozenset()

    base_onsets_per_gpu_year: float
    prior_gpu_years: float
    neighbour_effect: float

    def fit(self, history: FleetHistory) -> Arrays:
        """Onset rate of each GPU per day, shrunk to the fleet's."""
        gpus = len(history.gpus)
        onsets = history.events.known_at(history.now_s).of(EventKind.THERMAL_THROTTLE)
        counts = np.bincount(onsets.row, minlength=gpus).astype(np.float64)
        exposure_days = np.sum(history.daily.exposure_h, axis=1, dtype=np.float64) / 24.0
        prior_days = self.prior_gpu_years * 365.25
        prior = fit_gamma(
            np.append(counts, self.base_onsets_per_gpu_year * self.prior_gpu_years),
            np.append(exposure_days, prior_days),
        )
        rate = (prior.a + counts) / (prior.b + exposure_days)
        return {
            "device_id": device_ids(history.gpus),
            "onset_rate_per_day": rate,
            "fleet_onset_rate_per_day": np.array(prior.a / prior.b),
        }

    def forecast(self, state: Arrays, history: FleetHistory) -> DomainForecast:
        """P(at least k members throttle), members that throttle now counting as certain. [domain, k, horizon]"""
        gpus = history.gpus
        rate = aligned(state, "onset_rate_per_day", gpus, float(state["fleet_onset_rate_per_day"])).astype(np.float64)
        hot, seen = throttling_now(history)
        domains: list[tuple[str, str]] = []
        members: list[NDArray[np.int32]] = []
        chances, counts, lost_hours = [], [], []
        for layer in DOMAIN_LAYERS:
            table = group_rows(history.topology.group(layer, len(gpus)))
            if not table.size:
                continue
            inside = (table >= 0) & seen[table]
            big = inside.sum(axis=1) >= LEAST_MEMBERS
            table, inside = table[big], inside[big]
            count = (hot[table] & inside).sum(axis=1)
            raised = rate[table] / DAY_S * np.exp(self.neighbour_effect * np.log1p(count))[:, None]
            at_risk = inside & ~hot[table]
            for_horizons = np.stack([at_risk * -np.expm1(-raised * h) for h in HORIZONS_S], axis=2)
            chances.append(at_least(for_horizons, count))
            counts.append(count)
            # Who begins within the horizon begins anywhere in it alike, so half of it is lost on average.
            lost_hours.append((count + for_horizons[:, :, 1].sum(axis=1) / 2) * HORIZONS_S[1] / HOUR_S)
            names = history.topology.names[layer]
            domains += [(layer, names[i]) for i in np.flatnonzero(big)]
            members += [row[keep].astype(np.int32) for row, keep in zip(table, inside, strict=True)]
        empty = np.zeros((0, LEAST_MEMBERS, len(HORIZONS_S)))
        return DomainForecast(
            tuple(domains),
            HORIZONS_S,
            np.concatenate([empty, *chances]).astype(np.float32),
            np.concatenate([np.zeros(0), *lost_hours]).astype(np.float32),
            np.concatenate([np.zeros(0, np.int32), *counts]).astype(np.int32),
            tuple(members),
        )


def at_least(p: NDArray[np.float64], certain: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(count >= k) for k = 1..3 [domain, k, horizon] from independent chances p [domain, member, horizon] on top of
    `certain` members [domain]. Exact Poisson-binomial: only P(0), P(1), P(2) are needed.
    """
    none = np.zeros_like(p[:, 0])
    exactly = [np.ones_like(none), none.copy(), none.copy()]
    for member in range(p.shape[1]):  # over members of the largest domain, not over GPUs
        q = p[:, member]
        exactly = [
            exactly[0] * (1 - q),
            exactly[1] * (1 - q) + exactly[0] * q,
            exactly[2] * (1 - q) + exactly[1] * q,
        ]
    below = np.cumsum(np.stack([none, *exactly], axis=1), axis=1)  # P(more than certain by fewer than j), j = 0..3
    needed = np.clip(np.arange(1, LEAST_MEMBERS + 1)[None, :] - certain[:, None], 0, LEAST_MEMBERS)
    return np.clip(1.0 - np.take_along_axis(below, needed[:, :, None], axis=1), 0.0, 1.0)
