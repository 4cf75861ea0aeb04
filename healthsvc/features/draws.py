"""Chance that anybody can repeat: numbers that hang on a device and a time, and on nothing else."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId

_ODD = np.uint64(0x9E3779B97F4A7C15)


def hashed(gpus: Sequence[GpuId]) -> NDArray[np.uint64]:
    """A number of each device_id that is the same in every process: a polynomial of its characters, modulo 2^64."""
    if not gpus:
        return np.zeros(0, np.uint64)
    letters = np.array([gpu.device_id for gpu in gpus], str)[:, None].view(np.uint32).astype(np.uint64)
    return np.asarray(letters @ np.cumprod(np.full(letters.shape[1], _ODD)), np.uint64)


def draws(names: NDArray[np.uint64], start_s: float) -> NDArray[np.float64]:
    """A number in [0, 1) of each name and this time, as good as drawn: the finisher of SplitMix64 (Steele 2014)."""
    mixed = names + np.uint64(int(start_s) * int(_ODD) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) / 2.0**64
