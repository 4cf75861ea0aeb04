"""The rules hold for every forecaster, and each rule catches the faults that it is there for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from healthsvc.fleet import EventKind, FleetHistory
from healthsvc.forecasters.device_loss import DeviceLoss
from healthsvc.forecasters.ecc_growth import EccGrowth
from healthsvc.forecasters.thermal_trend import ThermalTrend
from healthsvc.forecasters.throttling_cascade import ThrottlingCascade
from healthsvc.testing import (
    DOMAIN_RULES,
    RULES,
    check_domain_forecaster,
    check_forecaster,
    example_history,
    try_rule,
)
from tests.forecasters import domain_faults
from tests.forecasters.faults import FAULTS

FORECASTERS = (ThermalTrend(), EccGrowth(), DeviceLoss())
PAIRS = [(rule, fault) for rule, faults in FAULTS.items() for fault in faults]


@pytest.fixture
def history() -> FleetHistory:
    """A fresh one for each test: some faults write to it."""
    return example_history(np.random.default_rng(0))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("forecaster", FORECASTERS, ids=lambda f: f.name)
def test_every_forecaster_keeps_every_rule(rule: Callable[..., None], forecaster: Any, history: FleetHistory) -> None:
    try_rule(rule, forecaster, history, np.random.default_rng(1))


@pytest.mark.parametrize("rule", DOMAIN_RULES, ids=lambda rule: rule.__name__)
def test_the_domain_forecaster_keeps_every_rule(rule: Callable[..., None], history: FleetHistory) -> None:
    try_rule(rule, ThrottlingCascade(), history, np.random.default_rng(1))


@pytest.mark.parametrize("seed", [11, 12])
def test_the_whole_check_passes_on_other_fleets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    smaller = example_history(rng, gpus=24, days=20)
    for forecaster in FORECASTERS:
        check_forecaster(forecaster, smaller, rng)
    check_domain_forecaster(ThrottlingCascade(), smaller, rng)
    check_domain_forecaster(ThrottlingCascade())


@pytest.mark.parametrize(("rule", "fault"), PAIRS, ids=[f"{type(f).__name__}-{r.__name__}" for r, f in PAIRS])
def test_a_seeded_fault_is_caught_by_the_rule_of_its_name(
    rule: Callable[..., None], fault: Any, history: FleetHistory
) -> None:
    sentence = rule.__name__.replace("_", " ")
    with pytest.raises(AssertionError, match=f"{fault.name} breaks the rule `{sentence}`: "):
        try_rule(rule, fault, history, np.random.default_rng(1))


@pytest.mark.parametrize(("rule", "fault"), PAIRS, ids=[type(f).__name__ for _, f in PAIRS])
def test_the_whole_check_catches_every_seeded_fault(
    rule: Callable[..., None], fault: Any, history: FleetHistory
) -> None:
    check = check_domain_forecaster if rule in DOMAIN_RULES else check_forecaster
    with pytest.raises(AssertionError, match="breaks the rule"):
        check(fault, history, np.random.default_rng(1))


def test_no_rule_is_without_a_seeded_fault() -> None:
    assert domain_faults.__name__  # its import registers the faults of domains
    assert [rule.__name__ for rule in (*RULES, *DOMAIN_RULES) if not FAULTS.get(rule)] == []


def test_the_example_has_one_of_everything(history: FleetHistory) -> None:
    """Or the rules prove nothing on it."""
    hazards = {f.name: f.forecast(f.fit(history), history).cumulative_hazard for f in FORECASTERS}
    for name, hazard in hazards.items():
        assert np.isnan(hazard).any(), name
        assert np.nanmax(hazard) > 100 * np.nanmedian(hazard), name
    assert {EventKind.LOST, EventKind.XID, EventKind.THERMAL_THROTTLE} <= set(history.events.kind.tolist())
    cascade = ThrottlingCascade()
    assert cascade.forecast(cascade.fit(history), history).throttling.max() == 4


@pytest.mark.parametrize(("gpus", "days"), [(16, 40), (32, 1)])
def test_an_example_too_small_for_its_cast_is_refused(gpus: int, days: int) -> None:
    with pytest.raises(ValueError, match="at least 24 GPUs and 2 days"):
        example_history(np.random.default_rng(0), gpus, days)
