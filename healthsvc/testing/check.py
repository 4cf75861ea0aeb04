"""Runs every rule over a forecaster."""

from collections.abc import Callable
from typing import Any

import numpy as np

from healthsvc.fleet import FleetHistory
from healthsvc.forecasters.base import DomainForecaster, Forecaster
from healthsvc.testing.domain_rules import DOMAIN_RULES
from healthsvc.testing.example import example_history
from healthsvc.testing.rules import RULES


def check_forecaster(
    forecaster: Forecaster, history: FleetHistory | None = None, rng: np.random.Generator | None = None
) -> None:
    """Raises AssertionError naming the broken rule and the numbers, also where the forecaster itself raised.

    history: defaults to `example_history`; one of your own needs at least two nodes. rng: defaults to seed 0.
    Blind to whether the numbers are right: that takes a slow twin, physics and a back-test.
    """
    _check(RULES, forecaster, history, rng)


def check_domain_forecaster(
    forecaster: DomainForecaster, history: FleetHistory | None = None, rng: np.random.Generator | None = None
) -> None:
    """As `check_forecaster`, for forecasters of domains."""
    _check(DOMAIN_RULES, forecaster, history, rng)


def _check(
    rules: tuple[Callable[..., None], ...],
    forecaster: Any,
    history: FleetHistory | None,
    rng: np.random.Generator | None,
) -> None:
    rng = np.random.default_rng(0) if rng is None else rng
    history = example_history(rng) if history is None else history
    for rule in rules:
        try_rule(rule, forecaster, history, rng)


def try_rule(rule: Callable[..., None], forecaster: Any, history: FleetHistory, rng: np.random.Generator) -> None:
    """One rule alone. Raises AssertionError naming it and the numbers, also where the forecaster itself raised."""
    sentence = f"{forecaster.name} breaks the rule `{rule.__name__.replace('_', ' ')}`"
    try:
        rule(forecaster, history, rng)
    except AssertionError as broken:
        raise AssertionError(f"{sentence}: {broken}") from broken
    except Exception as failure:
        raise AssertionError(f"{sentence}: it raised {type(failure).__name__}: {failure}") from failure
