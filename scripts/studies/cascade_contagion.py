"""Does the fit find contagion where there is some, and none where there is only weather?

Onsets are drawn from the hazard that the model assumes (contagion_fleet); everything else - integer sensors, the
pseudo-inlet, the sampling of bins, the fit - is as in service. Lines: domain study, throttling cascades.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from healthsvc.engine.shipped import load_priors
from healthsvc.features.onset_bins import BinGrid, sample_bins, throttles
from healthsvc.features.rings import ring_counts
from healthsvc.features.windows import WINDOW_S
from healthsvc.fleet import DAY_S, ONSET_COVARIATES, NeighbourEffect, OnsetBins
from healthsvc.fleet.onset_bins import INLET_MEASURED, INLET_PSEUDO, INLET_UNKNOWN
from healthsvc.forecasters import shipped_domain_forecasters
from healthsvc.forecasters.throttling.onset_model import NEIGHBOURS, OnsetPrior, fit_onsets
from healthsvc.forecasters.throttling_cascade import ThrottlingCascade
from scripts.studies.contagion_fleet import BINS_A_DAY, Fleet, Size, make_fleet

__all__ = ["Size", "figures", "study"]

CONTROLS_A_DAY = 2000  # of 512 GPUs; what more would tell of a thousand onsets is little
ENVIRONMENT = [ONSET_COVARIATES.index(f"{name}_celsius") for name in ("margin", "inlet", "inlet_change")]


def shipped_prior() -> OnsetPrior:
    """That of models/throttling_cascade/prior.json."""
    (cascade,) = (f for f in shipped_domain_forecasters(load_priors()) if isinstance(f, ThrottlingCascade))
    return cascade.onsets


def shown(fleet: Fleet, inlet: str) -> OnsetBins:
    """What the sampler keeps of a fleet, day by day; its inlet is `known`, `hidden` (told by its peers) or `none`."""
    values, source = {
        "known": (fleet.grid.inlet_celsius, INLET_MEASURED),
        "hidden": (fleet.pseudo, INLET_PSEUDO),
        "none": (np.full_like(fleet.pseudo, np.nan), INLET_UNKNOWN),
    }[inlet]
    grid = replace(fleet.grid, inlet_celsius=values, inlet_source=np.full(values.shape, source, np.int8))
    days = range(0, len(grid.ends_s), BINS_A_DAY)
    return OnsetBins.joined(
        [sample_bins(_day(grid, first), fleet.topology, fleet.gpus, CONTROLS_A_DAY) for first in days]
    )


def _day(grid: BinGrid, first: int) -> BinGrid:
    cut = slice(first, first + BINS_A_DAY)
    names = ("throttled_ratio", "temperature_celsius", "power_watts", "inlet_celsius", "inlet_source", "flow_ratio")
    return replace(grid, ends_s=grid.ends_s[cut], **{name: getattr(grid, name)[:, cut] for name in names})


def of_the_day_before(bins: OnsetBins, fleet: Fleet) -> OnsetBins:
    """The same bins with the neighbours that each GPU had a day earlier: what acts at once cannot be in them."""
    later = bins.where(bins.start_s >= fleet.grid.ends_s[0] + DAY_S)
    at = np.rint((later.start_s - fleet.grid.ends_s[0] - DAY_S) / WINDOW_S).astype(np.intp)
    x = later.x.copy()
    for column, count in zip(NEIGHBOURS, ring_counts(throttles(fleet.grid), fleet.topology), strict=True):
        x[:, column] = np.log1p(count[later.row, at])
    return replace(later, x=x)


def ignoring_environment(bins: OnsetBins) -> OnsetBins:
    """The same bins as if margin and inlet were known and told nothing."""
    x = bins.x.copy()
    x[:, ENVIRONMENT] = np.nan
    return replace(bins, x=x)


def study(seed: int, number: int, gamma: float, size: Size) -> dict[str, list[dict[str, Any]]]:
    """{what the fit is shown: what it says of each layer} of fleet `number` of a seed, whose node neighbours have the
    effect gamma."""
    fleet, prior = make_fleet(seed, number, gamma, size), shipped_prior()
    known = shown(fleet, "known")
    bins = {"known": known}
    if gamma == 0:
        bins |= {name: shown(fleet, name) for name in ("hidden", "none")}
        bins["known, but ignored"] = ignoring_environment(known)
    else:
        bins["known; neighbours of the day before"] = of_the_day_before(known, fleet)
    models = {name: fit_onsets(each, fleet.topology, len(fleet.gpus), prior) for name, each in bins.items()}
    return {name: [vars(effect) for effect in model.neighbour_effects()] for name, model in models.items()}


def figures(fleets: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]], gamma: float) -> dict[str, Any]:
    """Counts over fleets of one true effect, by what the fit was shown."""
    return {
        name: _counts([[NeighbourEffect(**layer) for layer in fleet[name]] for fleet in fleets], gamma)
        for name in fleets[0]
    }


def _counts(fleets: Sequence[Sequence[NeighbourEffect]], gamma: float) -> dict[str, Any]:
    """claimed: contagion, the whole interval above 0; rejected: 0, on either side. wider: rack and loop together, which
    have no effect."""
    node = [layers[0] for layers in fleets]
    told = [effect for effect in node if effect.status == "estimated"]
    effect, low, high = (np.array([getattr(each, name) for each in told]) for name in ("effect", "low", "high"))
    wider = [layer for layers in fleets for layer in layers[1:] if layer.status == "estimated"]
    return {
        "fleets": len(node),
        "estimated": len(told),
        "not_separable": sum(all(layer.status == "not separable" for layer in layers) for layers in fleets),
        "onsets_least": min(each.onsets for each in node),
        "mean_effect": float(effect.mean()) if told else None,
        "mean_error": float(effect.mean() - gamma) if told else None,
        "spread": float(effect.std()) if told else None,
        "covered": int(np.sum((low <= gamma) & (gamma <= high))),
        "claimed": int(np.sum(low > 0)),
        "rejected": int(np.sum((low > 0) | (high < 0))),
        "wider": len(wider),
        "wider_claimed": sum(layer.low > 0 for layer in wider),
    }
