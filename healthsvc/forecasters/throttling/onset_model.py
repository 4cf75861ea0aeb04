"""What hastens the onset of throttling, learned from a site's own ten minutes: margin, load, inlet, flow, neighbours.

log odds of an onset = a + x b + hour of the day + node + rack, fitted to every onset and a known share of the rest: a
bin without one is in the sample with that share, so the odds there are larger by 1 / share and the log odds by
-log(share), whatever the covariates (Prentice & Pyke 1979, Biometrika 66:403). Effects have Gaussian priors, weak ones
where a site has onsets enough; nodes and racks are Gaussian random effects, so that a place that always throttles is
not read as one whose neighbours do (Breslow & Clayton 1993, JASA 88:9, section 2).

A neighbour's effect is what it adds given the environment. Where no environment is measured it cannot be told from a
common cause, and no number is reported; the forecast uses it all the same, since it foretells either way. Blind to GPUs
that differ from their node, and to a common cause that is neither in inlet, margin or flow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.windows import WINDOW_S
from healthsvc.fleet import (
    DAY_S,
    HOUR_S,
    NEIGHBOUR_LAYERS,
    ONSET_COVARIATES,
    YEAR_S,
    Arrays,
    Floats,
    NeighbourEffect,
    OnsetBins,
    Topology,
)
from healthsvc.fleet.onset_bins import INLET_UNKNOWN
from healthsvc.forecasters.throttling.place_effects import PlaceFit, Rows, fit_places

Numbers = NDArray[np.float64]
MARGIN, FLOW_DEFICIT = (ONSET_COVARIATES.index(name) for name in ("margin_celsius", "flow_deficit_ratio"))
NEIGHBOURS = [ONSET_COVARIATES.index(f"{layer}_neighbours_log") for layer in NEIGHBOUR_LAYERS]
HOUR_SD, BASE_SD = 0.5, 3.0  # of the prior on the terms of the hour, and on the log odds at the reference
WEAK = 10.0  # times wider is a prior where a site has onsets enough
Z_90 = 1.6449
CONTROLS_AN_ONSET, LEAST_CONTROLS = 50, 20_000
LEAST_KNOWN = 0.5  # of the bins that must know an inlet, or the environment counts as not measured
HELD_SD = 1e-6  # deviation of a prior on an effect that stays where the prior is


@dataclass(frozen=True)
class Believed:
    """A prior on one effect: log odds a unit, with its deviation; at: the value of the covariate of a usual bin."""

    mean: float
    sd: float
    at: float


@dataclass(frozen=True)
class OnsetPrior:
    """onsets_per_gpu_year: of a usual bin; effects: one for each of ONSET_COVARIATES; place_sd: of node and rack
    effects, to begin with; least_onsets: below them no effect of neighbours is reported."""

    onsets_per_gpu_year: float
    effects: Mapping[str, Believed]
    place_sd: float
    least_onsets: int

    def base(self) -> float:
        """Log odds of an onset in a usual bin."""
        return float(np.log(np.expm1(self.onsets_per_gpu_year * WINDOW_S / YEAR_S)))


@dataclass(frozen=True)
class OnsetModel:
    """intercept: log odds at `usual`, the mean of the site's bins, which stands for what is not observed; effects,
    usual [covariate]; hour: of sin and cos of the day; sd [layer] of the neighbours' effects; varies bool[layer];
    enough: onsets; separable: an inlet is known; node, rack: {name: effect}."""

    intercept: float
    effects: Numbers
    usual: Numbers
    hour: Numbers
    sd: Numbers
    varies: NDArray[np.bool_]
    onsets: int
    enough: bool
    separable: bool
    node: Mapping[str, float]
    rack: Mapping[str, float]

    def to_arrays(self) -> Arrays:
        """As named arrays of a state."""
        found: dict[str, NDArray[Any]] = {
            "onset_intercept": np.array(self.intercept),
            "onset_effects": self.effects,
            "onset_usual": self.usual,
            "onset_hour": self.hour,
            "onset_neighbours_sd": self.sd,
            "onset_neighbours_vary": self.varies,
            "onset_count": np.array(self.onsets),
            "onset_enough": np.array(self.enough),
            "onset_separable": np.array(self.separable),
        }
        for layer, effects in (("node", self.node), ("rack", self.rack)):
            found[f"onset_{layer}_name"] = np.array(list(effects), np.str_) if effects else np.zeros(0, "U1")
            found[f"onset_{layer}_effect"] = np.array(list(effects.values()), np.float64)
        return found

    @staticmethod
    def from_arrays(state: Arrays) -> "OnsetModel":
        """Of a state."""
        node, rack = (
            dict(zip(state[f"onset_{layer}_name"].tolist(), state[f"onset_{layer}_effect"].tolist(), strict=True))
            for layer in ("node", "rack")
        )
        return OnsetModel(
            float(state["onset_intercept"]),
            state["onset_effects"],
            state["onset_usual"],
            state["onset_hour"],
            state["onset_neighbours_sd"],
            state["onset_neighbours_vary"],
            int(state["onset_count"]),
            bool(state["onset_enough"]),
            bool(state["onset_separable"]),
            node,
            rack,
        )

    def places(self, topology: Topology, gpus: int) -> Numbers:
        """What each GPU's node and rack add to the log odds [gpu]; 0 for places that training did not know."""
        added = np.zeros(gpus)
        for layer, effects in (("node", self.node), ("rack", self.rack)):
            known = np.array([effects.get(name, 0.0) for name in topology.names.get(layer, ())] + [0.0])
            added += known[topology.group(layer, gpus)]  # -1, an unknown place, picks the last
        return added

    def log_odds(self, x: Floats, places: Numbers, hour: float) -> Numbers:
        """Of an onset within the next ten minutes [gpu]; x [gpu, covariate], NaN counts as usual; places [gpu], see
        `places`; hour of the day, UTC."""
        away = np.where(np.isnan(x), 0.0, x - self.usual)
        return self.intercept + away @ self.effects + float(_hour_terms(np.array([hour]))[0] @ self.hour) + places

    def neighbour_effects(self) -> tuple[NeighbourEffect, ...]:
        """What may be said of contagion, layer by layer."""
        return tuple(self._effect(number, layer) for number, layer in enumerate(NEIGHBOUR_LAYERS))

    def _effect(self, number: int, layer: str) -> NeighbourEffect:
        if not self.enough or not self.varies[number]:
            return NeighbourEffect(layer, "insufficient", np.nan, np.nan, np.nan, self.onsets)
        if not self.separable:
            return NeighbourEffect(layer, "not separable", np.nan, np.nan, np.nan, self.onsets)
        effect, apart = float(self.effects[NEIGHBOURS[number]]), Z_90 * float(self.sd[number])
        return NeighbourEffect(layer, "estimated", effect, effect - apart, effect + apart, self.onsets)


def fit_onsets(bins: OnsetBins, topology: Topology, gpus: int, prior: OnsetPrior) -> OnsetModel:
    """bins: in the rows of `gpus` GPUs that stand as `topology` says. Without bins it is the prior."""
    believed = [prior.effects[name] for name in ONSET_COVARIATES]
    at, mean, sd = (np.array([getattr(each, name) for each in believed]) for name in ("at", "mean", "sd"))
    bins = _thinned(bins)
    onsets = int(bins.onset.sum())
    enough = onsets >= prior.least_onsets
    x = bins.x.astype(np.float64)
    usual = _usual(x, bins, at)
    design = np.concatenate(
        [np.ones((len(x), 1)), np.where(np.isnan(x), usual, x) - at, _hour_terms(bins.start_s % DAY_S / HOUR_S)], axis=1
    )
    centre = np.concatenate([[prior.base()], mean, [0.0, 0.0]])
    spread = np.concatenate([[BASE_SD], sd, [HOUR_SD, HOUR_SD]])
    if enough:
        spread = spread * WEAK
        centre[1:][NEIGHBOURS] = 0.0
    names = {layer: topology.names.get(layer, ()) for layer in ("node", "rack")}
    node, rack = (topology.group(layer, gpus)[bins.row] for layer in names)
    rows = Rows.of(
        design,
        bins.onset.astype(np.float64),
        -np.log(bins.share.astype(np.float64)),
        node,
        rack,
        len(names["node"]),
        len(names["rack"]),
    )
    fitted = _never_safer(rows, centre, spread, prior.place_sd)
    effects = fitted.effects[1 : 1 + len(at)]
    known = float(np.mean(bins.inlet_source != INLET_UNKNOWN)) if len(x) else 0.0
    return OnsetModel(
        float(fitted.effects[0] + (usual - at) @ effects),
        effects,
        usual,
        fitted.effects[1 + len(at) :],
        np.sqrt(np.diag(fitted.covariance))[1:][NEIGHBOURS],
        np.array([len(x) > 0 and bool(np.ptp(x[:, column]) > 0) for column in NEIGHBOURS]),
        onsets,
        enough,
        known >= LEAST_KNOWN,
        dict(zip(names["node"], fitted.node.tolist(), strict=True)),
        dict(zip(names["rack"], fitted.rack.tolist(), strict=True)),
    )


def _thinned(bins: OnsetBins) -> OnsetBins:
    """All onsets and all bins beside a neighbour that throttles, and of the quiet rest every so-manieth: fifty for an
    onset tell nearly all that there is to tell, and a calm fleet learns in no time."""
    quiet = ~(bins.x[:, NEIGHBOURS] > 0).any(axis=1)
    controls = np.flatnonzero(quiet & ~bins.onset)
    every = len(controls) // max(CONTROLS_AN_ONSET * int(bins.onset.sum()), LEAST_CONTROLS)
    if every < 2:
        return bins
    kept = bins.onset | ~quiet
    kept[controls[::every]] = True
    share = np.where(quiet, bins.share / np.float32(every), bins.share).astype(np.float32)
    return replace(bins, share=share).where(kept)


def _usual(x: Numbers, bins: OnsetBins, at: Numbers) -> Numbers:
    """Mean of the site's bins without an onset, as if all had been kept [covariate]; `at` where nothing is observed."""
    weight = np.where(np.isnan(x), 0.0, (~bins.onset / bins.share.astype(np.float64))[:, None])
    total = weight.sum(axis=0)
    mean = np.sum(np.nan_to_num(x) * weight, axis=0) / np.maximum(total, 1e-300)
    usual = np.where(total > 0, mean, at)
    usual[NEIGHBOURS] = 0.0  # always known
    return usual


def _never_safer(rows: Rows, centre: Numbers, spread: Numbers, place_sd: float) -> PlaceFit:
    """The fit in which less margin and less flow are never safer: an effect that chance has turned round is nothing."""
    signs = {1 + MARGIN: -1.0, 1 + FLOW_DEFICIT: 1.0}
    centre, spread = centre.copy(), spread.copy()
    held: list[int] = []
    while True:  # holding one may turn the other
        fitted = fit_places(rows, centre, spread, place_sd)
        fitted.effects[held] = 0.0
        turned = [column for column, sign in signs.items() if sign * fitted.effects[column] < 0]
        if not turned:
            return fitted
        held += turned
        centre[held], spread[held] = 0.0, HELD_SD


def _hour_terms(hour: Numbers) -> Numbers:
    """sin and cos of the day [bin, 2]."""
    angle = 2 * np.pi * hour / 24.0
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)
