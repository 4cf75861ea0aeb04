"""Priors, and the monotone map from a forecaster's hazard to one that can be believed.

log H' = a + b log H + c_horizon. With fewer than 20 labelled events the map is the identity and every probability is
labelled `prior`: a number without a track record says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import CLASSES, DAY_S, YEAR_S, Floats

LEAST_EVENTS = 20
WATCH_P_30D = 0.01
WATCH_TIMES_PRIOR = 5.0


@dataclass(frozen=True)
class ClassPrior:
    """What is believed of a class before a site's own events: rates per GPU-year, thresholds, and where they are from.

    failure_p_7d: the shipped failure threshold on P(T2, 7 d); degrading_p: on change_p. site_ratio: how many times the
    rates a site's own events speak for.
    """

    failure_class: str
    t2_per_gpu_year: float
    t1_per_gpu_year: float
    failure_p_7d: float
    degrading_p: float
    source: str
    site_ratio: float = 1.0

    def at_site(self, ratio: float) -> "ClassPrior":
        """The same class at a site whose own events speak for `ratio` times the rate."""
        return replace(self, site_ratio=ratio)

    @property
    def watch_p_30d(self) -> float:
        """P(T2, 30 d) from which the class is at watch: five times what the prior says, and 1 % at least."""
        return max(WATCH_P_30D, WATCH_TIMES_PRIOR * float(-np.expm1(-self.hazard((30 * DAY_S,))[0, 0])))

    def hazard(self, horizons_s: tuple[float, ...]) -> NDArray[np.float64]:
        """Cumulative hazard [grade, horizon] of a GPU about which nothing is known."""
        rates = np.array([self.t2_per_gpu_year, self.t1_per_gpu_year]) / YEAR_S
        return np.asarray(self.site_ratio * rates[:, None] * np.array(horizons_s)[None, :], np.float64)


def parse_prior(document: Mapping[str, Any]) -> ClassPrior:
    """A models/<forecaster>/prior.json as a ClassPrior. Raises ValueError naming the key that is missing or wrong."""
    try:
        prior = ClassPrior(
            str(document["failure_class"]),
            _number(document, "rates", "t2_per_gpu_year"),
            _number(document, "rates", "t1_per_gpu_year"),
            _number(document, "thresholds", "failure_p_7d", at_most=1.0),
            _number(document, "thresholds", "degrading_p", at_most=1.0),
            str(document["rates"]["source"]),
        )
    except KeyError as missing:
        raise ValueError(
            f"prior.json: key {missing} is missing; models/ecc_growth/prior.json shows all of them"
        ) from None
    if prior.failure_class not in CLASSES:
        raise ValueError(f"prior.json: failure_class = {prior.failure_class!r}: choose one of {', '.join(CLASSES)}")
    if prior.t1_per_gpu_year > prior.t2_per_gpu_year:
        raise ValueError(
            f"prior.json of {prior.failure_class}: rates.t1_per_gpu_year = {prior.t1_per_gpu_year} must be at most "
            f"rates.t2_per_gpu_year = {prior.t2_per_gpu_year}, since T2 means T2 or worse"
        )
    return prior


def _number(document: Mapping[str, Any], table: str, key: str, at_most: float = np.inf) -> float:
    """document[table][key], which must be above 0. Raises KeyError or ValueError naming the key."""
    value = document[table][key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= at_most:
        bound = "" if np.isinf(at_most) else f" and at most {at_most:g}"
        raise ValueError(f"prior.json: {table}.{key} = {value!r}: give a number above 0{bound}")
    return float(value)


@dataclass(frozen=True)
class CalibrationMap:
    """Monotone in H (slope > 0) and in the horizon (offsets rise); events: labelled events it was fitted on.

    Raises ValueError if it would not be monotone in both.
    """

    intercept: float = 0.0
    slope: float = 1.0
    offsets: tuple[float, ...] = ()
    events: int = 0

    def __post_init__(self) -> None:
        if not self.slope > 0:
            raise ValueError(f"CalibrationMap.slope = {self.slope}: must be above 0, else more hazard would mean less")
        if any(later < earlier for earlier, later in pairwise(self.offsets)):
            raise ValueError(
                f"CalibrationMap.offsets = {self.offsets}: must not fall, else a longer horizon would be safer"
            )

    @property
    def calibrated(self) -> bool:
        return self.events >= LEAST_EVENTS

    def apply(self, hazard: Floats) -> Floats:
        """Mapped cumulative hazard [..., horizon]; zero stays zero, NaN stays NaN."""
        if not self.calibrated:
            return hazard
        offsets = np.array(self.offsets) if self.offsets else 0.0
        logs = np.log(np.where(hazard > 0, hazard, 1.0))
        mapped: Floats = np.where(hazard > 0, np.exp(self.intercept + self.slope * logs + offsets), hazard)
        return mapped


@dataclass(frozen=True)
class Calibration:
    """One map a class; a class without one is at its prior."""

    maps: Mapping[str, CalibrationMap] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, failure_class: str) -> CalibrationMap:
        return self.maps.get(failure_class, CalibrationMap())


def prior_hazards(priors: Mapping[str, ClassPrior], horizons_s: tuple[float, ...]) -> NDArray[np.float64]:
    """[class, grade, horizon] in the order of CLASSES. Raises KeyError if a class has no prior."""
    return np.stack([priors[name].hazard(horizons_s) for name in CLASSES])
