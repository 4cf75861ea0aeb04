"""Thermal limits per board, for fleets whose exporter does not report the limit fields (they are off by default).

Source: `nvidia-smi -q` readings of each board. A reported limit always wins.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.gpus import GpuId


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


def board_limits(gpus: Sequence[GpuId]) -> NDArray[np.float64]:
    """[gpu, (max operating, slowdown, memory max operating)] by product name; NaN where the board is not known."""
    known: dict[str, tuple[float, float, float]] = {}
    for product in {gpu.product for gpu in gpus}:
        found = next((limits for pattern, limits in BOARD_LIMITS if pattern.search(product)), None)
        known[product] = (
            (found.max_operating_celsius, found.slowdown_celsius, found.memory_max_operating_celsius)
            if found
            else (np.nan, np.nan, np.nan)
        )
    return np.array([known[gpu.product] for gpu in gpus], np.float64).reshape(len(gpus), 3)
