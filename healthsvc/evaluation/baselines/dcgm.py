"""b0: the health checks that DCGM itself makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from healthsvc.evaluation.baselines.base import (
    Flags,
    alarms_of,
    any_xid,
    columns_in,
    lately,
    summed,
    volatile_double_bit_error,
)
from healthsvc.features.medians import nan_sum
from healthsvc.features.windows import covered_steps, thermal_throttle_seconds
from healthsvc.fleet import DAY_S, MINUTE_S, FleetHistory, Floats, Signal

REMAPPED_ROWS = 512
RETIRED_PAGES = 63
RETIRED_PAGES_WITH_GROWTH = 15
GROWTH_PAGES, GROWTH_DAYS = 1, 7

# By the subsystem that DCGM files them under: PCIe, power, NVLink and InfoROM are the device's.
FAIL_XIDS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"memory": (48, 64, 95, 140), "device_loss": (74, 79, 119, 120)}
)
WARN_XIDS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "thermal": (60, 61, 62),
        "memory": (31, 32, 43, 63, 94),
        "device_loss": (38, 39, 42, 54, 56, 57, 58, 67, 73, 78, 93, 121, 137),
    }
)


@dataclass(frozen=True)
class DcgmHealth:
    """DCGM's passive health watches; FAIL alone, or WARN as well.

    FAIL: a volatile double-bit error, a failed row remap, 63 retired pages, or more than 15 of which more than 1 came
    within a week, and the XIDs it calls devastating. WARN: 512 uncorrectable remapped rows, page retirement pending,
    PCIe replays beyond a bit error rate of 1e-12 (16 lanes of generation 5: 31 a minute), any thermal throttle time
    within a minute, and the XIDs it gives a subsystem.
    Source: DCGM 4.6, DcgmHealthWatch.cpp and DcgmGPUHardwareLimits.h; classes by the subsystem of each check.
    Blind to: NVLink counters and the unrepairable-memory flag (not among our signals), retirements by single-bit
    errors and totals from before the ledger began (it holds increments, so totals are lower bounds). The thermal
    check counts software slowdown too where only the newer counters are exported.
    """

    every_s: float = 300.0
    warnings: bool = False
    replays_a_minute: float = 31.0  # ceil(16 lanes x 1.92)

    @property
    def name(self) -> str:
        return "b0w DCGM health, WARN and FAIL" if self.warnings else "b0 DCGM health, FAIL"

    def alarms(self, history: FleetHistory) -> Flags:
        """See the class."""
        failed = self._fail(history)
        return failed | self._warn(history) if self.warnings else failed

    def _fail(self, history: FleetHistory) -> Flags:
        xid = {name: any_xid(history, codes, self.every_s) for name, codes in FAIL_XIDS.items()}
        window = history.recent
        pages = history.daily.get("retired_pages_pages")
        this_week = history.daily.days > history.now_s / DAY_S - 1 - GROWTH_DAYS
        grows = nan_sum(pages[:, this_week]) > GROWTH_PAGES
        memory = volatile_double_bit_error(history) | xid["memory"]
        memory |= lately(window.get(Signal.REMAP_FAILURE) >= 1, window, self.every_s)
        memory |= (nan_sum(pages) >= RETIRED_PAGES) | ((nan_sum(pages) > RETIRED_PAGES_WITH_GROWTH) & grows)
        return alarms_of(len(history.gpus), memory=memory, device_loss=xid["device_loss"])

    def _warn(self, history: FleetHistory) -> Flags:
        xid = {name: any_xid(history, codes, self.every_s) for name, codes in WARN_XIDS.items()}
        window = history.recent
        thermal = xid["thermal"] | lately(thermal_throttle_seconds(window) > 0, window, self.every_s)
        memory = xid["memory"] | lately(window.get(Signal.RETIRED_PAGES_PENDING) >= 1, window, self.every_s)
        memory |= nan_sum(history.daily.get("uncorrectable_remaps_rows")) >= REMAPPED_ROWS
        replays = xid["device_loss"] | lately(self._replays(history) > self.replays_a_minute, window, self.every_s)
        return alarms_of(len(history.gpus), thermal=thermal, memory=memory, device_loss=replays)

    @staticmethod
    def _replays(history: FleetHistory) -> Floats:
        """PCIe replays a minute [gpu, time]; what a gap gathered is spread over it."""
        window = history.recent
        counted = window.get(Signal.PCIE_REPLAYS)
        steps = covered_steps(counted)
        a_step = np.where(steps > 0, counted / np.maximum(steps, 1), 0.0)
        columns = columns_in(window, MINUTE_S)
        return summed(a_step, columns) * MINUTE_S / (columns * window.step_s)
