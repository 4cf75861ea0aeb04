"""b1: the alerting rules that teams publish for their GPU fleets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.evaluation.baselines.base import (
    LOOK_BACK_S,
    Flags,
    alarms_of,
    any_xid,
    carried,
    columns_in,
    held,
    lately,
    summed,
    volatile_double_bit_error,
)
from healthsvc.features.windows import preferred, thermal_throttle_seconds
from healthsvc.fleet import DAY_S, FleetHistory, Signal

CRITICAL_XIDS = {"memory": (48, 64, 95), "device_loss": (62, 74, 79, 119, 120)}


@dataclass(frozen=True)
class StaticRules:
    """Fixed limits, the same for every board.

    GPU temperature above 85 C or memory temperature above 95 C for 5 minutes; more than 100 correctable errors in
    24 h; any double-bit error since the driver was loaded; a row remap failed or pending; any thermal throttle time in
    5 minutes; an XID gauge that changes to 48, 62, 64, 74, 79, 95, 119 or 120.
    Source: the most common numbers among public rule files for dcgm-exporter.
    Blind to: limits of the board, load, peers and trends. Kinder than the originals in one thing: an XID's first
    sample counts, which `changes()` does not see where each code is a series of its own.
    """

    every_s: float = 300.0
    gpu_limit_celsius: float = 85.0
    memory_limit_celsius: float = 95.0
    hold_s: float = 300.0
    correctable_a_day: float = 100.0

    @property
    def name(self) -> str:
        return "b1 public static rules"

    def alarms(self, history: FleetHistory) -> Flags:
        """See the class."""
        window = history.recent
        hot = held(carried(window, Signal.GPU_TEMPERATURE) > self.gpu_limit_celsius, window, self.hold_s)
        hot |= held(carried(window, Signal.MEMORY_TEMPERATURE) > self.memory_limit_celsius, window, self.hold_s)
        throttled_s = summed(thermal_throttle_seconds(window), columns_in(window, LOOK_BACK_S))
        flagged = (window.get(Signal.REMAP_FAILURE) >= 1) | (window.get(Signal.REMAP_PENDING) >= 1)
        within_s = max(self.every_s, LOOK_BACK_S)  # as changes(xid[5m]) remembers
        xid = {name: any_xid(history, codes, within_s) for name, codes in CRITICAL_XIDS.items()}
        memory = lately(flagged, window, self.every_s) | volatile_double_bit_error(history) | xid["memory"]
        return alarms_of(
            len(history.gpus),
            thermal=lately(hot | (throttled_s > 0), window, self.every_s),
            memory=memory | (correctable_errors(history) > self.correctable_a_day),
            device_loss=xid["device_loss"],
        )


def correctable_errors(history: FleetHistory) -> NDArray[np.float64]:
    """Correctable errors of the last 24 h [gpu], 0 where none was seen.

    Today's so far and the share of yesterday's that is not yet 24 h old, as if they had come evenly; at least what the
    recent window shows.
    """
    window, daily = history.recent, history.daily
    seen = preferred(window, Signal.SBE_AGGREGATE, Signal.SBE_VOLATILE)[:, -columns_in(window, DAY_S) :]
    counted = np.where(np.isnan(seen), 0.0, seen).sum(axis=1, dtype=np.float64)
    errors = daily.get("sbe_errors")
    today, elapsed = divmod(history.now_s / DAY_S, 1.0)
    weight = np.where(daily.days == today, 1.0, np.where(daily.days == today - 1, 1.0 - elapsed, 0.0))
    return np.asarray(np.maximum(np.where(np.isnan(errors), 0.0, errors) @ weight, counted), np.float64)
