"""A sample of the ten minutes in which a GPU could have begun to throttle by heat, and what it was like before them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.arrays import Floats, frozen_array

# What is known of a GPU at the end of the ten minutes before. A neighbour counts in the narrowest layer that it shares.
NEIGHBOUR_LAYERS = ("node", "rack", "cooling_loop")
ONSET_COVARIATES = (
    "margin_celsius",  # limit less temperature: small is near throttling
    "power_ratio",  # mean power over the power limit
    "power_change_ratio",  # against the ten minutes before, over the power limit
    "inlet_celsius",  # measured, else the pseudo-inlet of its node's other GPUs; less INLET_REFERENCE_CELSIUS
    "inlet_change_celsius",  # against the ten minutes before
    "flow_deficit_ratio",  # 1 - measured coolant flow / rated; 0 where it is not measured
    *(f"{layer}_neighbours_log" for layer in NEIGHBOUR_LAYERS),  # log(1 + others of it that throttle)
)
INLET_REFERENCE_CELSIUS = 25.0
INLET_UNKNOWN, INLET_PSEUDO, INLET_MEASURED = 0, 1, 2


@dataclass(frozen=True)
class OnsetBins:
    """Case-control rows: every onset, and a known share of the bins without one, of GPUs that did not throttle before.

    row int32[bin] of the fleet; start_s float64[bin]: where the ten minutes begin; onset bool[bin]; share
    float32[bin]: the probability with which a bin like this one is kept if it has no onset (those with one are all
    kept), so that the log odds of the sample are those of the fleet - log(share); inlet_source int8[bin]; x
    float32[bin, covariate] in the order of ONSET_COVARIATES, NaN where not observed.
    """

    row: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    start_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    onset: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    share: Floats = field(default_factory=lambda: np.zeros(0, np.float32))
    inlet_source: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    x: Floats = field(default_factory=lambda: np.zeros((0, len(ONSET_COVARIATES)), np.float32))

    def __post_init__(self) -> None:
        wanted = (len(self.row), len(ONSET_COVARIATES))
        if self.x.shape != wanted:
            raise ValueError(f"OnsetBins.x has shape {self.x.shape}; needs {wanted} = [bin, covariate]")
        for name in ("row", "start_s", "onset", "share", "inlet_source", "x"):
            object.__setattr__(self, name, frozen_array(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.row)

    def where(self, mask: NDArray[np.bool_]) -> "OnsetBins":
        """The chosen bins."""
        return OnsetBins(
            self.row[mask],
            self.start_s[mask],
            self.onset[mask],
            self.share[mask],
            self.inlet_source[mask],
            self.x[mask],
        )

    def take(self, rows: NDArray[np.intp]) -> "OnsetBins":
        """The bins of a subset or permutation of the GPUs, `rows` (-1: new, has none), in their new rows."""
        highest = max(int(self.row.max(initial=-1)), int(rows.max(initial=-1)))
        new = np.full(highest + 2, -1, np.int32)
        known = rows >= 0
        new[rows[known]] = np.flatnonzero(known)
        mapped = new[self.row]
        kept = self.where(mapped >= 0)
        return OnsetBins(mapped[mapped >= 0], kept.start_s, kept.onset, kept.share, kept.inlet_source, kept.x)

    @staticmethod
    def joined(parts: Sequence["OnsetBins"]) -> "OnsetBins":
        """All of them, in the order given; they must have the same rows."""
        if not parts:
            return OnsetBins()
        names = ("row", "start_s", "onset", "share", "inlet_source", "x")
        return OnsetBins(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
