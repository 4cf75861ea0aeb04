"""Thermal limits per board, for fleets whose exporter does not report the limit fields (they are off by default).

Source: `nvidia-smi -q` readings of each board. A reported limit always wins.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.arrays import Floats, frozen_array
from healthsvc.fleet.gpus import GpuId
from healthsvc.fleet.signals import THERMAL_THROTTLE_SOURCES, Signal


@dataclass(frozen=True)
class Limits:
    """In degrees Celsius: software throttling begins, hardware slowdown, and the same for memory (NaN: no sensor)."""

    max_operating_celsius: float
    slowdown_celsius: float
    memory_max_operating_celsius: float


BOARD_LIMITS: tuple[tuple[re.Pattern[str], Limits], ...] = (
    (re.compile(r"GH200"), Limits(86, 88, 95)),
    (re.compile(r"H200"), Limits(87, 89, 95)),
    (re.compile(r"H100"), Limits(87, 89, 95)),
    (re.compile(r"A100"), Limits(85, 89, 95)),
    (re.compile(r"V100"), Limits(83, 87, 85)),
    (re.compile(r"\bL20\b|\bL40S?\b"), Limits(87, 89, np.nan)),
    (re.compile(r"\bL4\b"), Limits(86, 88, np.nan)),
    (re.compile(r"\bT4\b"), Limits(85, 93, np.nan)),
)


MAX_OPERATING, SLOWDOWN, MEMORY_MAX_OPERATING = range(3)  # columns of `board_limits`


@lru_cache(maxsize=4)
def board_limits(gpus: tuple[GpuId, ...]) -> NDArray[np.float64]:
    """[gpu, (max operating, slowdown, memory max operating)] by product name; NaN where the board is not known.

    Read-only, and worked out once a fleet.
    """
    known: dict[str, tuple[float, float, float]] = {}
    for product in {gpu.product for gpu in gpus}:
        found = next((limits for pattern, limits in BOARD_LIMITS if pattern.search(product)), None)
        known[product] = (
            (found.max_operating_celsius, found.slowdown_celsius, found.memory_max_operating_celsius)
            if found
            else (np.nan, np.nan, np.nan)
        )
    return frozen_array(np.array([known[gpu.product] for gpu in gpus], np.float64).reshape(len(gpus), 3))


def limit_in_force(reported: Floats, gpus: tuple[GpuId, ...], column: int) -> NDArray[np.float64]:
    """Limit of each GPU [gpu]: as reported, else the board's (a column of `board_limits`), else NaN."""
    return np.where(np.isnan(reported), board_limits(gpus)[:, column], reported).astype(np.float64)


# What a board cannot report, whatever is enabled: row remapping came with Ampere, page retirement went with it, only
# HBM has a thermometer, a virtual GPU sees neither the board's sensors nor its memory's repairs, XIDs and clock event
# reasons are NVIDIA's. Only boards that are sure are named.
_VIRTUAL = re.compile(r"^GRID\b|\bvGPU\b|-\d+[QCBA]$")
_BEFORE_AMPERE = re.compile(r"\b(K40m|K80|[MP](4|40|60|100)|V100\w*|T4|T40)\b|\bGTX\b|\bRTX 20\d\d\b|Quadro RTX")
_FROM_AMPERE = re.compile(r"\b(GH200|G?B[23]00|H[12]00|H800|A100|A800|A[234]0|A10G?|L40S?|L20|L4)\b")
_WITHOUT_HBM = re.compile(
    r"\b(K40m|K80|M(4|40|60)|P(4|40)|T4|T40|A2|A10G?|A16|A40|L4|L20|L40S?)\b|GTX|GeForce|RTX ([234]0\d\d|A\d{4})"
)
_OTHER_VENDOR = re.compile(r"\bAMD\b|Instinct|Radeon|\bMI[1-4]\d\d\w*\b")
_REMAPPING = frozenset(
    {
        Signal.CORRECTABLE_REMAPS,
        Signal.UNCORRECTABLE_REMAPS,
        Signal.REMAP_FAILURE,
        Signal.REMAP_PENDING,
        Signal.BANKS_LOW,
        Signal.BANKS_NONE,
        Signal.SRAM_THRESHOLD,
        Signal.UNREPAIRABLE,
    }
)
_RETIREMENT = frozenset({Signal.RETIRED_PAGES_DBE, Signal.RETIRED_PAGES_PENDING})
_NVIDIA_ONLY = frozenset(
    {Signal.XID, Signal.CLOCK_EVENT_REASONS, Signal.POWER_BRAKE_THROTTLE, *THERMAL_THROTTLE_SOURCES}
)
_MEMORY_SENSOR = frozenset({Signal.MEMORY_TEMPERATURE, Signal.MEMORY_MAX_OPERATING_LIMIT})
_SENSORS = _MEMORY_SENSOR | {
    Signal.GPU_TEMPERATURE,
    Signal.POWER,
    Signal.ENERGY,
    Signal.POWER_LIMIT,
    Signal.GPU_MAX_OPERATING_LIMIT,
    Signal.GPU_SLOWDOWN_LIMIT,
}


def beyond_board(product: str) -> frozenset[Signal]:
    """The signals that a board of this product cannot report; none where the product is not known."""
    if _VIRTUAL.search(product):
        return _SENSORS | _REMAPPING | _RETIREMENT
    if _OTHER_VENDOR.search(product):
        return _REMAPPING | _RETIREMENT | _NVIDIA_ONLY
    cannot = _MEMORY_SENSOR if _WITHOUT_HBM.search(product) else frozenset()
    if _BEFORE_AMPERE.search(product):
        return cannot | _REMAPPING
    return cannot | _RETIREMENT if _FROM_AMPERE.search(product) else cannot
