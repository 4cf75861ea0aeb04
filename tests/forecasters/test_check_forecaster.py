"""The rules hold for every forecaster, and each rule catches the faults that it is there for."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from healthsvc.features.daily import DAILY_FEATURES
from healthsvc.fleet import (
    LIVENESS,
    THERMAL_THROTTLE_SOURCES,
    EventKind,
    FleetHistory,
    Floats,
    Signal,
)
from healthsvc.testing import (
    DOMAIN_RULES,
    RULES,
    check_domain_forecaster,
    check_forecaster,
    example_history,
    try_rule,
)
from healthsvc.testing.changes import alarmed
from tests.forecasters import domain_faults
from tests.forecasters.faults import FAULTS
from tests.forecasters.shipped import DOMAIN_FORECASTERS, FORECASTERS

DOMAIN_KINDS = tuple(type(forecaster) for forecaster in DOMAIN_FORECASTERS)
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
@pytest.mark.parametrize("forecaster", DOMAIN_FORECASTERS, ids=lambda f: f.name)
def test_every_domain_forecaster_keeps_every_rule(
    rule: Callable[..., None], forecaster: Any, history: FleetHistory
) -> None:
    try_rule(rule, forecaster, history, np.random.default_rng(1))


@pytest.mark.parametrize("seed", [11, 12])
def test_the_whole_check_passes_on_other_fleets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    smaller = example_history(rng, gpus=24, days=20)
    for forecaster in FORECASTERS:
        check_forecaster(forecaster, smaller, rng)
    for domain_forecaster in DOMAIN_FORECASTERS:
        check_domain_forecaster(domain_forecaster, smaller, rng)
        check_domain_forecaster(domain_forecaster)


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
    check = check_domain_forecaster if isinstance(fault, DOMAIN_KINDS) else check_forecaster
    with pytest.raises(AssertionError, match="breaks the rule"):
        check(fault, history, np.random.default_rng(1))


def test_no_rule_is_without_a_seeded_fault() -> None:
    assert domain_faults.__name__  # its import registers the faults of domains
    broken = {(rule, isinstance(fault, DOMAIN_KINDS)) for rule, fault in PAIRS}
    wanted = [(rule, False) for rule in RULES] + [(rule, True) for rule in DOMAIN_RULES]
    assert [(rule.__name__, of_domains) for rule, of_domains in wanted if (rule, of_domains) not in broken] == []


def everything(history: FleetHistory) -> dict[str, Floats]:
    """What it holds of each signal and each daily feature."""
    return {**{signal.value: values for signal, values in history.recent.values.items()}, **history.daily.features}


def test_the_alarmed_read_higher_in_everything(history: FleetHistory) -> None:
    every = np.ones(len(history.gpus), bool)
    loud = alarmed(history, every)
    before = everything(history)
    for name, values in everything(loud).items():
        assert np.all((values > before[name]) | np.isnan(before[name])), name


def test_the_example_has_one_of_everything(history: FleetHistory) -> None:
    """Or the rules prove nothing on it."""
    hazards = {f.name: f.forecast(f.fit(history), history).cumulative_hazard for f in FORECASTERS}
    for name, hazard in hazards.items():
        assert np.isnan(hazard).any(), name
        assert np.nanmax(hazard) > 100 * np.nanmedian(hazard), name
    assert {EventKind.LOST, EventKind.XID, EventKind.THERMAL_THROTTLE} <= set(history.events.kind.tolist())
    (cascade,) = DOMAIN_FORECASTERS
    assert cascade.forecast(cascade.fit(history), history).throttling.max() == 4


@pytest.mark.parametrize(("gpus", "days"), [(16, 40), (32, 1)])
def test_an_example_too_small_for_its_cast_is_refused(gpus: int, days: int) -> None:
    with pytest.raises(ValueError, match="at least 24 GPUs and 2 days"):
        example_history(np.random.default_rng(0), gpus, days)


READS_ELSEWHERE = {
    "memory": {
        Signal.XID,
        Signal.DBE_AGGREGATE,
        Signal.DBE_VOLATILE,
        Signal.UNCORRECTABLE_REMAPS,
        Signal.RETIRED_PAGES_DBE,
        Signal.REMAP_FAILURE,
        Signal.REMAP_PENDING,
    },
    "device_loss": {Signal.XID, *LIVENESS},
    "throttling": {
        *THERMAL_THROTTLE_SOURCES,
        Signal.CLOCK_EVENT_REASONS,
        # And by its parts, heat_path and the ten minutes of features.onset_bins; what surrounds a place is no signal of
        # a GPU, and nobody is worse off for air without coolant.
        Signal.GPU_TEMPERATURE,
        Signal.POWER,
        Signal.ENERGY,
        Signal.POWER_LIMIT,
        Signal.GPU_MAX_OPERATING_LIMIT,
        Signal.GPU_TEMPERATURE_MARGIN,
    },
}


@pytest.mark.parametrize("forecaster", [*FORECASTERS, *DOMAIN_FORECASTERS], ids=lambda f: f.name)
def test_a_forecaster_names_the_signals_that_it_reads_and_no_others(forecaster: Any) -> None:
    """It reads what its code names outside of the two declarations, what its ledger columns are made from, what the
    events of its class are seen in, and what its parts read."""
    declarations = ("requires", "uses")
    body = ast.parse(textwrap.dedent(inspect.getsource(type(forecaster)))).body[0]
    assert isinstance(body, ast.ClassDef)
    declared = [n for n in body.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) in declarations]
    body.body = [node for node in body.body if node not in declared]
    assert len(declared) == len(declarations)
    module = ast.parse(inspect.getsource(inspect.getmodule(type(forecaster)) or ast))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    nodes = [each for part in (body, *functions) for each in ast.walk(part)]
    read = {Signal[n.attr] for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "Signal"}
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    read |= {
        signal for name in texts & DAILY_FEATURES.keys() for group in DAILY_FEATURES[name].requires for signal in group
    }
    read |= READS_ELSEWHERE.get(forecaster.failure_class, set())
    assert read == frozenset().union(*forecaster.requires, forecaster.uses)
