"""device_loss: GPUs that fall off the bus or hang in firmware.

Numbers seldom announce it (GWDG 2026: minimal numeric precursor in 7 incidents); history does: after one off-the-bus
event Titan's GPUs had 230 times the base hazard in the first week. A GPU that is gone while its node answers has
failed already: that is detection, reported as a fact.

Blind to: a first loss without an earlier one, and GPUs that are alone on their node (nobody is left to tell a lost GPU
from a lost node).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from healthsvc.features.facts import class_events, lost
from healthsvc.features.recurrence import Kernel, excitation, merge_episodes
from healthsvc.fleet import (
    DAY_S,
    HAZARD_CAP,
    HORIZONS_S,
    LIVENESS,
    QUANTILES,
    YEAR_S,
    Arrays,
    FleetHistory,
    Forecast,
    Projection,
    Signal,
)
from healthsvc.forecasters.base import Pool, device_ids, observed


@dataclass(frozen=True)
class DeviceLoss:
    """See the module. H = base x (horizon + self-exciting mass of the GPU's own device episodes)."""

    name: ClassVar[str] = "device_loss"
    failure_class: ClassVar[str] = "device_loss"
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (LIVENESS,)
    uses: ClassVar[frozenset[Signal]] = frozenset({Signal.XID})
    pools: ClassVar[Pool] = "node"  # a GPU is lost only if its node still answers
    daily_state: ClassVar[bool] = False  # a loss is news at once

    base_t2_per_gpu_year: float
    terminal_share: float  # of T2
    kernel: Kernel

    def fit(self, history: FleetHistory) -> Arrays:
        """Nothing to learn yet: the rates are the prior's. The key column keeps every state alike."""
        return {"device_id": device_ids(history.gpus)}

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        """Hazard from recurrence; a lost GPU has the largest hazard there is, as its failure has happened."""
        gpus, now_s = history.gpus, history.now_s
        gone = lost(history)
        known = observed(history, self.requires) | gone
        episodes = merge_episodes(class_events(history.events.known_at(now_s), "device_loss"))
        mass = excitation(episodes, len(gpus), now_s, horizons_s, self.kernel)
        t2 = self.base_t2_per_gpu_year / YEAR_S * (np.array(horizons_s) + mass)
        t2 = np.where(gone[:, None], np.maximum(t2, HAZARD_CAP), t2)
        # The loss has happened; whether it is terminal is as uncertain as for any other.
        t1 = np.where(gone[:, None], -np.log1p(-self.terminal_share), self.terminal_share * t2)
        hazard = np.where(known[:, None, None], np.stack([t2, np.minimum(t1, t2)], axis=1), np.nan)
        fresh = episodes.where(episodes.start_s > now_s - 30 * DAY_S)
        evidence = {
            "device_episodes_30d_episodes": np.bincount(fresh.row, minlength=len(gpus)).astype(np.float64),
            "missing_beside_live_node_bool": gone.astype(np.float64),
        }
        return Forecast(
            tuple(horizons_s),
            hazard.astype(np.float32),
            np.full(len(gpus), np.nan, np.float32),
            np.full((len(gpus), len(QUANTILES)), np.nan, np.float32),
            {name: np.where(known, values, np.nan).astype(np.float32) for name, values in evidence.items()},
        )

    def project(self, state: Arrays, history: FleetHistory, row: int) -> Projection:
        """Completeness of the GPU's telemetry day by day; the future is what a healthy GPU shows."""
        ahead = np.arange(1.0, 31.0)
        return Projection(
            "telemetry completeness",
            "ratio",
            (history.daily.days.astype(np.float64) + 0.5) * DAY_S,
            history.daily.completeness[row],
            history.now_s + ahead * DAY_S,
            np.ones((len(QUANTILES), len(ahead))),
            limit=0.0,
        )
