"""The forecasters in service: one line each."""

from collections.abc import Mapping
from typing import Any

from healthsvc.features.recurrence import Kernel
from healthsvc.features.site import SitePrior
from healthsvc.fleet import ONSET_COVARIATES
from healthsvc.forecasters.base import DomainForecaster, Forecaster
from healthsvc.forecasters.device_loss import DeviceLoss
from healthsvc.forecasters.ecc_growth import EccGrowth
from healthsvc.forecasters.thermal.path import PathSpec
from healthsvc.forecasters.thermal_trend import ThermalTrend
from healthsvc.forecasters.throttling.joint import JointPrior
from healthsvc.forecasters.throttling.onset_model import Believed, OnsetPrior
from healthsvc.forecasters.throttling_cascade import ThrottlingCascade

Prior = Mapping[str, Any]  # a models/<name>/prior.json
NAMES = ("thermal_trend", "ecc_growth", "device_loss")
DOMAIN_NAMES = ("throttling_cascade",)


def shipped_forecasters(priors: Mapping[str, Prior]) -> tuple[Forecaster, ...]:
    """The GPU forecasters with the numbers of their priors. Raises KeyError naming what a prior lacks."""
    memory, device = priors["ecc_growth"], priors["device_loss"]
    multiplier = {name: group["value"] for name, group in memory["multipliers"].items()}
    return (
        _thermal_trend(priors["thermal_trend"]),
        EccGrowth(
            base_t2_per_gpu_year=memory["rates"]["t2_per_gpu_year"],
            base_by_model=tuple((name, each["t2_per_gpu_year"]) for name, each in memory["rates"]["by_model"].items()),
            terminal_share=_terminal_share(memory["rates"]),
            terminal_share_per_remap=multiplier["terminal_share_per_remap"],
            kernel=_kernel(memory["recurrence"]),
            precursor_strength=multiplier["precursor_strength"],
            pending_multiplier=multiplier["remap_pending"],
            low_spares_multiplier=multiplier["low_spares"],
            no_spares_multiplier=multiplier["no_spares"],
            correctable_remap_multiplier=multiplier["correctable_remap"],
            site=_site(memory["site"]),
        ),
        DeviceLoss(
            base_t2_per_gpu_year=device["rates"]["t2_per_gpu_year"],
            terminal_share=_terminal_share(device["rates"]),
            kernel=_kernel(device["recurrence"]),
        ),
    )


def shipped_domain_forecasters(priors: Mapping[str, Prior]) -> tuple[DomainForecaster, ...]:
    """The domain forecasters with the numbers of their priors."""
    cascade = priors["throttling_cascade"]
    return (
        ThrottlingCascade(
            base_onsets_per_gpu_year=cascade["rates"]["onsets_per_gpu_year"],
            prior_gpu_years=cascade["rates"]["gpu_years"],
            goes_on=cascade["going_on"]["exponent"],
            likeness=cascade["likeness"]["shape"],
            joint=JointPrior(
                cascade["joint"]["events_per_domain_year"],
                cascade["joint"]["domain_years"],
                cascade["joint"]["own_years"],
            ),
            onsets=_onsets(cascade["onsets"]),
        ),
    )


def _thermal_trend(prior: Prior) -> ThermalTrend:
    drift, noise, intervals = prior["drift"], prior["noise"], prior["intervals"]
    path = PathSpec(
        noise_floor=noise["floor_log"],
        persistence=noise["persistence"],
        persistence_pairs=noise["persistence_pairs"],
        drifting=drift["share_drifting"],
        tries=drift["beginnings"],
        slopes=drift["slopes"],
    )
    return ThermalTrend(
        season_step=intervals["season_step_log"],
        interval_scale=intervals["scale"],
        counted_p=prior["thresholds"]["degrading_p"],
        path=path,
    )


def _terminal_share(rates: Mapping[str, Any]) -> float:
    """T1 in T2, of which it is a part."""
    return float(rates["t1_per_gpu_year"] / rates["t2_per_gpu_year"])


def _site(numbers: Mapping[str, Any]) -> SitePrior:
    names = ("gpu_years", "recurrent_events", "effect_sd", "weak_effect_sd")
    return SitePrior(*(float(numbers[name]) for name in names))


def _kernel(numbers: Mapping[str, Any]) -> Kernel:
    return Kernel(tuple(numbers["scales_days"]), tuple(numbers["weights"]), numbers["frailty"])


def _onsets(numbers: Mapping[str, Any]) -> OnsetPrior:
    """Raises KeyError naming a covariate that the document lacks."""
    effects = {
        name: Believed(*(float(numbers["effects"][name][part]) for part in ("mean", "sd", "at")))
        for name in ONSET_COVARIATES
    }
    return OnsetPrior(numbers["onsets_per_gpu_year"], effects, numbers["place_sd"], int(numbers["least_onsets"]))
