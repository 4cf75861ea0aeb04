"""Which samples are no measurement at all: DCGM's blank values, and readings that no hardware can have."""

from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import COUNTERS, Signal

# DCGM writes "blank, not found, not supported, not permitted" as the last numbers of each type (dcgm_structs.h). In
# float64 the four int64 values are one. They are matched exactly: 2**47 ns is 39 h of throttling, so "at least 2**47"
# would throw away legal counters.
BLANKS = np.array([*(2147483632.0 + k for k in range(4)), *(2.0**47 + k for k in range(4)), 2.0**63])

_TEMPERATURE = (-20.0, 150.0)
_LIMIT_TEMPERATURE = (1.0, 150.0)  # boards without the limit report 0
PLAUSIBLE = MappingProxyType(
    {
        Signal.GPU_TEMPERATURE: _TEMPERATURE,
        Signal.MEMORY_TEMPERATURE: (1.0, 150.0),  # boards without the sensor report 0
        Signal.POWER: (0.0, 20_000.0),
        Signal.SM_CLOCK: (0.0, 1e10),
        Signal.GPU_UTILIZATION: (0.0, 1.0),
        Signal.POWER_LIMIT: (1.0, 20_000.0),
        Signal.GPU_MAX_OPERATING_LIMIT: _LIMIT_TEMPERATURE,
        Signal.GPU_SLOWDOWN_LIMIT: _LIMIT_TEMPERATURE,
        Signal.MEMORY_MAX_OPERATING_LIMIT: _LIMIT_TEMPERATURE,
        Signal.INLET: _TEMPERATURE,
        Signal.COOLANT_SUPPLY: _TEMPERATURE,
        Signal.COOLANT_FLOW: (0.0, 1e6),
        Signal.RATED_COOLANT_FLOW: (1e-6, 1e6),
    }
    | dict.fromkeys(COUNTERS, (0.0, np.inf))
)


def to_base_units(raw: NDArray[np.float64], signal: Signal, scale: float = 1.0) -> NDArray[np.float64]:
    """`raw` in the signal's base unit, NaN where it is a blank or lies outside the signal's plausible range.

    Blind to a wrong reading inside the range. Blanks are matched before scaling.
    """
    values = raw * scale
    large = np.flatnonzero(raw >= BLANKS[0])  # only a shortcut: the match below is exact
    values[large[np.isin(raw[large], BLANKS)]] = np.nan
    low, high = PLAUSIBLE.get(signal, (-np.inf, np.inf))
    values[(values < low) | (values > high) | np.isinf(values)] = np.nan
    return values
