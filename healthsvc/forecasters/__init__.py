"""The forecasters in service: one line each."""

from collections.abc import Mapping
from typing import Any

from healthsvc.features.recurrence import Kernel
from healthsvc.forecasters.base import DomainForecaster, Forecaster
from healthsvc.forecasters.device_loss import DeviceLoss
from healthsvc.forecasters.ecc_growth import EccGrowth
from healthsvc.forecasters.thermal_trend import ThermalTrend
from healthsvc.forecasters.throttling_cascade import ThrottlingCascade

Prior = Mapping[str, Any]  # a models/<name>/prior.json
NAMES = ("thermal_trend", "ecc_growth", "device_loss")
DOMAIN_NAMES = ("throttling_cascade",)


def shipped_forecasters(priors: Mapping[str, Prior]) -> tuple[Forecaster, ...]:
    """The GPU forecasters with the numbers of their priors. Raises KeyError naming what a prior lacks."""
    return (
        ThermalTrend(),
        EccGrowth(
            base_t2_per_gpu_year=priors["ecc_growth"]["rates"]["t2_per_gpu_year"],
            kernel=_kernel(priors["ecc_growth"]["recurrence"]),
        ),
        DeviceLoss(
            base_t2_per_gpu_year=priors["device_loss"]["rates"]["t2_per_gpu_year"],
            kernel=_kernel(priors["device_loss"]["recurrence"]),
        ),
    )


def shipped_domain_forecasters(priors: Mapping[str, Prior]) -> tuple[DomainForecaster, ...]:
    """The domain forecasters with the numbers of their priors."""
    cascade = priors["throttling_cascade"]
    return (
        ThrottlingCascade(
            base_onsets_per_gpu_year=cascade["rates"]["onsets_per_gpu_year"],
            prior_gpu_years=cascade["rates"]["gpu_years"],
            neighbour_effect=cascade["neighbours"]["effect"],
        ),
    )


def _kernel(numbers: Mapping[str, Any]) -> Kernel:
    return Kernel(tuple(numbers["scales_days"]), tuple(numbers["weights"]), numbers["frailty"])
