"""Thermal limits per board, for fleets whose exporter does not report the limit fields (they are off by default).

Source: `nvidia-smi -q` readings of each board. A reported limit always wins.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.gpus import GpuId
from healthsvc.fleet.history import Floats, frozen_array


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
