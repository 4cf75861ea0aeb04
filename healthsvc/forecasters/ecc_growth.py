"""ecc_growth: memory failure from remaps and recurrences, with correctable errors as the weak hint that they are.

On HBM the correctable rate tells next to nothing about uncorrectable errors (Calchas, ATC 2024); recurrence tells most
(Titan: x480 in the week after a double-bit error). So the hazard is the model's base rate x what the site's own record
makes of it (features.site) x (state of the spare rows x horizon + the self-exciting mass of past uncorrectable
episodes and, far weaker, of precursors). Correctable errors raise a change alarm where an hour of them is out of the
GPU's character (forecasters.ecc.rates), and enter the hazard only as far as the site's own events say that they tell.

Blind to: a first uncorrectable error without any earlier sign, which is the usual case (97.8 % on Titan).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.facts import class_events
from healthsvc.features.medians import nan_sum
from healthsvc.features.recurrence import Kernel, excitation, merge_episodes
from healthsvc.features.site import BLOCK_DAYS, Base, Past, SitePrior, Weak, blocks, board_ratio, learn, model_rates
from healthsvc.fleet import (
    DAY_S,
    HAZARD_CAP,
    HORIZONS_S,
    YEAR_S,
    Arrays,
    EventKind,
    EventLog,
    FleetHistory,
    Floats,
    Forecast,
    Projection,
    Signal,
)
from healthsvc.fleet.meaning import ROWS_A_BANK
from healthsvc.forecasters.base import Pool, device_ids, observed
from healthsvc.forecasters.ecc.rates import fit_rates, unusual_errors
from healthsvc.forecasters.ecc.spares import spares_at_worst, time_to_exhaustion_s

Numbers = NDArray[np.float64]


MANY_CORRECTABLE = 92.0  # XID


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
            Signal.SRAM_THRESHOLD,
        }
    )
    pools: ClassVar[Pool] = "fleet"  # the false-discovery rate of the change alarm is the fleet's
    daily_state: ClassVar[bool] = True

    base_t2_per_gpu_year: float
    base_by_model: tuple[tuple[str, float], ...]  # of products whose name contains the key
    terminal_share: float  # of T2
    terminal_share_per_remap: float  # each uncorrectable remap of the last 30 days eats a spare row
    kernel: Kernel
    precursor_strength: float  # in units of an uncorrectable episode
    pending_multiplier: float
    low_spares_multiplier: float
    no_spares_multiplier: float
    correctable_remap_multiplier: float  # a log1p(rows in 30 d)
    site: SitePrior

    def fit(self, history: FleetHistory) -> Arrays:
        """What correctable errors are usual (rate_*), and what the site's record makes of the prior (site_*)."""
        past = Past(*_episodes(history), self.precursor_strength, _countable(history))
        base = Base(self._base(history), self.base_t2_per_gpu_year)
        site = learn(history, past, base, self.kernel, self.site, _error_days_before(history))
        return {"device_id": device_ids(history.gpus), **fit_rates(history), **site}

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        """Discrete-state hazard; change_p: whether the newest hour of correctable errors is out of character."""
        known = observed(history, self.requires)
        pending, failed = history.recent.last(Signal.REMAP_PENDING), history.recent.last(Signal.REMAP_FAILURE)
        remaps_30d = _recent_sum(history, "uncorrectable_remaps_rows", 30)
        ratio = board_ratio(state, history, _error_days_before(history))
        rows = np.arange(len(history.gpus))
        t2 = self._expected(state, history, ratio, rows, horizons_s)
        share = np.minimum(self.terminal_share + self.terminal_share_per_remap * _or_zero(remaps_30d), 1.0)
        hazard = np.stack([t2, t2 * share[:, None]], axis=1)
        hazard = np.where((failed >= 1)[:, None, None], np.maximum(hazard, HAZARD_CAP), hazard)
        hazard = np.where(known[:, None, None], hazard, np.nan)
        left = spares_at_worst(history)
        exhaustion_s = time_to_exhaustion_s(
            np.where(known, left, np.nan), lambda worn, ahead_s: self._expected(state, history, ratio, worn, ahead_s)
        )
        change_p, unusual = unusual_errors(state, history)
        episodes, _ = _episodes(history)
        evidence: dict[str, Floats] = {
            "uncorrectable_remaps_30d_rows": remaps_30d,
            "correctable_remaps_30d_rows": _recent_sum(history, "correctable_remaps_rows", 30),
            "uncorrectable_episodes_90d_episodes": _recent_episodes(episodes, len(history.gpus), history.now_s, 90),
            "correctable_errors_7d_errors": _recent_sum(history, "sbe_errors", 7),
            "remap_pending_bool": pending,
            "remap_failure_bool": failed,
            "sram_threshold_exceeded_bool": history.recent.last(Signal.SRAM_THRESHOLD),
            "spares_at_worst_rows": left,
            "board_hazard_ratio": ratio,
            **unusual,
        }
        return Forecast(
            tuple(horizons_s),
            hazard.astype(np.float32),
            np.where(known, change_p, np.nan).astype(np.float32),
            exhaustion_s,
            {name: np.where(known, values, np.nan).astype(np.float32) for name, values in evidence.items()},
        )

    def _base(self, history: FleetHistory) -> Numbers:
        products = tuple(gpu.product for gpu in history.gpus)
        return model_rates(self.base_t2_per_gpu_year, dict(self.base_by_model), products)

    def _expected(
        self,
        state: Arrays,
        history: FleetHistory,
        ratio: Numbers,
        rows: NDArray[np.intp],
        horizons_s: tuple[float, ...],
    ) -> Numbers:
        """Uncorrectable events expected within each horizon [row, horizon], of the GPUs `rows` of the history: no more
        than theirs is worked out, since the time to exhaustion asks for many horizons of few GPUs."""
        per_s = (self._base(history) / YEAR_S * ratio)[rows]
        excited = sum(
            excitation(log.take(rows), len(rows), history.now_s, horizons_s, self.kernel, strength)
            for log, strength in zip(_episodes(history), (1.0, self.precursor_strength), strict=True)
        )
        exposure = self._spares_multiplier(history)[rows, None] * np.array(horizons_s)
        return np.asarray(per_s[:, None] * (exposure + float(state["site_recurrence"]) * np.asarray(excited)))

    def _spares_multiplier(self, history: FleetHistory) -> Numbers:
        """What the state of row remapping does to the base hazard [gpu]; signals that are absent do nothing."""
        factor = np.ones(len(history.gpus))
        for signal, multiplier in (
            (Signal.REMAP_PENDING, self.pending_multiplier),
            (Signal.BANKS_LOW, self.low_spares_multiplier),
            (Signal.BANKS_NONE, self.no_spares_multiplier),
        ):
            factor *= np.where(history.recent.last(signal) >= 1, multiplier, 1.0)
        correctable = _or_zero(_recent_sum(history, "correctable_remaps_rows", 30))
        return factor * (1.0 + self.correctable_remap_multiplier * np.log1p(correctable))

    def project(self, state: Arrays, history: FleetHistory, row: int) -> Projection:
        """Uncorrectable remaps so far, and as many again as the hazard expects over 30 days."""
        history = history.take(np.array([row]))  # the page of one GPU must not cost the whole fleet's numbers
        total = np.cumsum(_or_zero(history.daily.get("uncorrectable_remaps_rows")[0]))
        reached = float(total[-1]) if len(total) else 0.0
        ratio = board_ratio(state, history, _error_days_before(history))
        expected = np.append(0.0, self._expected(state, history, ratio, np.array([0]), HORIZONS_S)[0])
        ahead = np.array([0.0, *HORIZONS_S])
        spread = np.sqrt(expected) * 1.2816
        future = reached + np.stack([np.maximum(expected - spread, 0.0), expected, expected + spread])
        past_s = (history.daily.days.astype(np.float64) + 0.5) * DAY_S
        left = float(spares_at_worst(history)[0])
        limit = reached + (ROWS_A_BANK if np.isnan(left) else left)
        return Projection("uncorrectable remaps", "rows", past_s, total, history.now_s + ahead, future, limit=limit)


def _episodes(history: FleetHistory) -> tuple[EventLog, EventLog]:
    """(uncorrectable episodes, precursors) known by now, one of each a GPU and day; worked out once a history.

    No precursor is XID 92, which says that correctable errors are many: that is the change alarm's matter. Nor is a
    recorded remap on a day on which a row was remapped for correctable errors and none for others.
    """

    def work(told: FleetHistory) -> tuple[EventLog, EventLog]:
        events = told.events.known_at(told.now_s)
        failures, signs = class_events(events, "memory"), class_events(events, "memory", ("P",))
        mild = np.setdiff1d(_days_of(events.of(EventKind.CORRECTABLE_REMAP)), _days_of(failures))
        correctable = (signs.kind == EventKind.XID) & (signs.value == MANY_CORRECTABLE)
        signs = signs.where(~correctable & ~np.isin(_days_of(signs), mild))
        return merge_episodes(failures), merge_episodes(signs)

    return history.once("memory_episodes", work)


def _days_of(log: EventLog) -> Numbers:
    """One number for the GPU and UTC day of each event."""
    return np.asarray(log.row * 1e6 + np.floor(log.start_s / DAY_S), np.float64)


def _countable(history: FleetHistory) -> NDArray[np.bool_]:
    """bool[gpu, day]: whether any count that an uncorrectable event raises was exported."""
    counts = ("dbe_errors", "uncorrectable_remaps_rows", "retired_pages_pages")
    return np.asarray(np.stack([~np.isnan(history.daily.get(name)) for name in counts]).any(axis=0), bool)


def _error_days_before(history: FleetHistory) -> Weak:
    """log(1 + days with correctable errors) of the week before each block of the ledger, and of the newest week."""
    errors = history.daily.get("sbe_errors")
    struck = np.where(np.isnan(errors), np.nan, errors > 0)
    cuts = blocks(history)
    weeks = [nan_sum(struck[:, max(first - BLOCK_DAYS, 0) : first]) for first in cuts[:, 0].tolist()]
    before = np.stack(weeks, axis=1) if weeks else np.zeros((len(errors), 0))
    newest = struck[:, -BLOCK_DAYS:]
    now = nan_sum(newest) if newest.shape[1] else np.full(len(errors), np.nan)
    return Weak("correctable_days_log", np.log1p(before), np.log1p(now))


def _recent_sum(history: FleetHistory, feature: str, days: int) -> Numbers:
    values = history.daily.get(feature)[:, -days:]
    return nan_sum(values) if values.shape[1] else np.full(len(values), np.nan)


def _recent_episodes(episodes: EventLog, gpu_count: int, now_s: float, days: int) -> Numbers:
    fresh = episodes.where(episodes.start_s > now_s - days * DAY_S)
    return np.bincount(fresh.row, minlength=gpu_count).astype(np.float64)


def _or_zero(values: Floats) -> Numbers:
    """For sums that enter a multiplier: what was not observed adds nothing (the GPU stays unknown elsewhere)."""
    return np.where(np.isnan(values), 0.0, values).astype(np.float64)
