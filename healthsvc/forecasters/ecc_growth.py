"""ecc_growth: memory failure from remaps and recurrences, with correctable errors as the weak hint that they are.

On HBM the correctable rate tells next to nothing about uncorrectable errors (Calchas, ATC 2024); recurrence tells most
(Titan: x480 in the week after a double-bit error). So the hazard is base x (state of the spare rows x horizon + the
self-exciting mass of past uncorrectable episodes and, far weaker, of precursors); correctable errors themselves only
raise a change alarm.

Blind to: a first uncorrectable error without any earlier sign, which is the usual case (97.8 % on Titan).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.counts import exceedance, fit_gamma
from healthsvc.features.facts import class_events
from healthsvc.features.medians import nan_sum
from healthsvc.features.recurrence import Kernel, excitation, merge_episodes
from healthsvc.fleet import (
    DAY_S,
    HAZARD_CAP,
    HORIZONS_S,
    QUANTILES,
    YEAR_S,
    Arrays,
    EventLog,
    FleetHistory,
    Floats,
    Forecast,
    Projection,
    Signal,
)
from healthsvc.forecasters.base import Pool, aligned, device_ids, observed


@dataclass(frozen=True)
class EccGrowth:
    """See the module. The state multipliers are assumptions until a site's own events speak (models/ecc_growth)."""

    name: ClassVar[str] = "ecc_growth"
    failure_class: ClassVar[str] = "memory"
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (
        frozenset(
            {
                Signal.SBE_AGGREGATE,
                Signal.SBE_VOLATILE,
                Signal.DBE_AGGREGATE,
                Signal.DBE_VOLATILE,
                Signal.UNCORRECTABLE_REMAPS,
                Signal.RETIRED_PAGES_DBE,
            }
        ),
    )
    uses: ClassVar[frozenset[Signal]] = frozenset(
        {
            Signal.XID,
            Signal.CORRECTABLE_REMAPS,
            Signal.REMAP_PENDING,
            Signal.REMAP_FAILURE,
            Signal.BANKS_LOW,
            Signal.BANKS_NONE,
        }
    )
    pools: ClassVar[Pool] = "none"
    daily_state: ClassVar[bool] = True

    base_t2_per_gpu_year: float
    terminal_share: float  # of T2
    terminal_share_per_remap: float  # each uncorrectable remap of the last 30 days eats a spare row
    kernel: Kernel
    precursor_strength: float  # in units of an uncorrectable episode
    pending_multiplier: float
    low_spares_multiplier: float
    no_spares_multiplier: float
    correctable_remap_multiplier: float  # a log1p(rows in 30 d)

    def fit(self, history: FleetHistory) -> Arrays:
        """Rate of ten-minute windows with correctable errors, per GPU, shrunk to the fleet's (finished days only)."""
        daily = history.daily
        finished = len(daily.days) - int(daily.unfinished)
        windows = daily.get("sbe_windows")[:, :finished].astype(np.float64)
        exposure = np.sum(np.where(np.isnan(windows), 0.0, daily.exposure_h[:, :finished] / 24.0), axis=1)
        total = nan_sum(windows) if finished else np.full(len(daily.gpus), np.nan)
        prior = fit_gamma(total, exposure)
        own = np.where(np.isnan(total), 0.0, total)
        return {
            "device_id": device_ids(daily.gpus),
            "last_day": np.array(float(daily.days[finished - 1]) if finished else -1.0),
            "windows_a": prior.a + own,
            "windows_b": prior.b + exposure,
            "fleet_a": np.array(prior.a),
            "fleet_b": np.array(prior.b),
        }

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        """Discrete-state hazard; change_p: tail probability of today's windows with correctable errors."""
        gpus, now_s = history.gpus, history.now_s
        known = observed(history, self.requires)
        events = history.events.known_at(now_s)
        episodes = merge_episodes(class_events(events, "memory"))
        precursors = merge_episodes(class_events(events, "memory", ("P",)))
        pending, failed = history.recent.last(Signal.REMAP_PENDING), history.recent.last(Signal.REMAP_FAILURE)
        remaps_30d = _recent_sum(history, "uncorrectable_remaps_rows", 30)
        correctable_30d = _recent_sum(history, "correctable_remaps_rows", 30)
        exposure = (
            self._spares_multiplier(history, pending, correctable_30d)[:, None] * np.array(horizons_s)
            + excitation(episodes, len(gpus), now_s, horizons_s, self.kernel)
            + excitation(precursors, len(gpus), now_s, horizons_s, self.kernel, self.precursor_strength)
        )
        t2 = self.base_t2_per_gpu_year / YEAR_S * exposure
        share = np.minimum(self.terminal_share + self.terminal_share_per_remap * _or_zero(remaps_30d), 1.0)
        hazard = np.stack([t2, t2 * share[:, None]], axis=1)
        hazard = np.where((failed >= 1)[:, None, None], np.maximum(hazard, HAZARD_CAP), hazard)
        hazard = np.where(known[:, None, None], hazard, np.nan)
        evidence = {
            "uncorrectable_remaps_30d_rows": remaps_30d,
            "correctable_remaps_30d_rows": correctable_30d,
            "uncorrectable_episodes_90d_episodes": _recent_episodes(episodes, len(gpus), now_s, 90),
            "correctable_errors_7d_errors": _recent_sum(history, "sbe_errors", 7),
            "correctable_error_days_30d_days": _error_days(history, 30),
            "remap_pending_bool": pending,
            "remap_failure_bool": failed,
        }
        return Forecast(
            tuple(horizons_s),
            hazard.astype(np.float32),
            np.where(known, self._change_p(state, history), np.nan).astype(np.float32),
            np.full((len(gpus), len(QUANTILES)), np.nan, np.float32),
            {name: np.where(known, values, np.nan).astype(np.float32) for name, values in evidence.items()},
        )

    def _spares_multiplier(
        self, history: FleetHistory, pending: Floats, correctable_30d: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What the state of row remapping does to the base hazard [gpu]; signals that are absent do nothing."""
        factor = np.ones(len(history.gpus))
        for flags, multiplier in (
            (pending, self.pending_multiplier),
            (history.recent.last(Signal.BANKS_LOW), self.low_spares_multiplier),
            (history.recent.last(Signal.BANKS_NONE), self.no_spares_multiplier),
        ):
            factor *= np.where(flags >= 1, multiplier, 1.0)
        return factor * (1.0 + self.correctable_remap_multiplier * np.log1p(_or_zero(correctable_30d)))

    def _change_p(self, state: Arrays, history: FleetHistory) -> NDArray[np.float64]:
        """Exceedance of the newest day, if training has not seen it; newcomers are judged by the fleet's rate."""
        daily = history.daily
        if not len(daily.days) or daily.days[-1] <= float(state["last_day"]):
            return np.full(len(history.gpus), np.nan)
        count = daily.get("sbe_windows")[:, -1].astype(np.float64)
        a = aligned(state, "windows_a", history.gpus, float(state["fleet_a"])).astype(np.float64)
        b = aligned(state, "windows_b", history.gpus, float(state["fleet_b"])).astype(np.float64)
        return exceedance(count, a, b, 1.0)

    def project(self, state: Arrays, history: FleetHistory, row: int) -> Projection:
        """Uncorrectable remaps so far, and as many again as the hazard expects over 30 days."""
        forecast = self.forecast(state, history.take(np.array([row])), HORIZONS_S)
        total = np.cumsum(_or_zero(history.daily.get("uncorrectable_remaps_rows")[row]))
        reached = float(total[-1]) if len(total) else 0.0
        expected = np.concatenate([[0.0], forecast.cumulative_hazard[0, 0].astype(np.float64)])
        ahead = np.array([0.0, *HORIZONS_S])
        spread = np.sqrt(expected) * 1.2816
        future = reached + np.stack([np.maximum(expected - spread, 0.0), expected, expected + spread])
        past_s = (history.daily.days.astype(np.float64) + 0.5) * DAY_S
        return Projection(
            "uncorrectable remaps", "rows", past_s, total, history.now_s + ahead, future, limit=reached + 8.0
        )


def _recent_sum(history: FleetHistory, feature: str, days: int) -> NDArray[np.float64]:
    values = history.daily.get(feature)[:, -days:]
    return nan_sum(values) if values.shape[1] else np.full(len(values), np.nan)


def _error_days(history: FleetHistory, days: int) -> NDArray[np.float64]:
    errors = history.daily.get("sbe_errors")[:, -days:]
    flagged = np.where(np.isnan(errors), np.nan, errors > 0)
    return nan_sum(flagged) if errors.shape[1] else np.full(len(errors), np.nan)


def _recent_episodes(episodes: EventLog, gpu_count: int, now_s: float, days: int) -> NDArray[np.float64]:
    fresh = episodes.where(episodes.start_s > now_s - days * DAY_S)
    return np.bincount(fresh.row, minlength=gpu_count).astype(np.float64)


def _or_zero(values: Floats) -> NDArray[np.float64]:
    """For sums that enter a multiplier: what was not observed adds nothing (the GPU stays unknown elsewhere)."""
    return np.where(np.isnan(values), 0.0, values).astype(np.float64)
