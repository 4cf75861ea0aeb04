"""How restless a fleet is: named sets of defaults. What a scenario says itself always outranks them."""

from collections.abc import Mapping
from typing import Any, Literal

Profile = Literal["quiet", "default", "noisy"]

# `default` is empty: the specs' own defaults, daily log resistance with a deviation of 1 % and AR(1) of 0.4.
# `quiet` is an idealised simulation's (daily CV 0.3 %, white); `noisy` twice the default and as persistent as a fleet
# whose users, filters and seasons change by the week.
PROFILES: dict[str, dict[str, dict[str, float]]] = {
    "quiet": {
        "thermal": {"daily_noise_ratio": 0.003, "daily_noise_persistence": 0.0},
        "workload": {"noise_ratio": 0.005},
        "environment": {"inlet_noise_celsius": 0.1, "supply_noise_celsius": 0.05, "flow_noise_ratio": 0.002},
        "errors": {"noisy_gpus_ratio": 0.02, "application_xids_per_day": 0.005},
    },
    "default": {},
    "noisy": {
        "thermal": {"daily_noise_ratio": 0.02, "daily_noise_persistence": 0.6},
        "workload": {"noise_ratio": 0.03},
        "environment": {"inlet_noise_celsius": 0.8, "supply_noise_celsius": 0.4, "flow_noise_ratio": 0.01},
        "errors": {"noisy_gpus_ratio": 0.15, "application_xids_per_day": 0.1},
    },
}


def with_profile(table: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario's table with the defaults of the profile that it names; unchanged if it names none we know."""
    filled = dict(table)
    for section, defaults in PROFILES.get(str(table.get("noise", "default")), {}).items():
        given = filled.get(section, {})
        if isinstance(given, Mapping):
            filled[section] = {**defaults, **given}
    return filled
