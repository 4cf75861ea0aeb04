"""The forecasters as they ship: what the tests of forecasters try, and what seeded faults are made from."""

from typing import TypeVar

from healthsvc.engine.shipped import load_priors
from healthsvc.forecasters import shipped_domain_forecasters, shipped_forecasters

PRIORS = load_priors()
FORECASTERS = shipped_forecasters(PRIORS)
DOMAIN_FORECASTERS = shipped_domain_forecasters(PRIORS)

Kind = TypeVar("Kind")


def shipped(kind: type[Kind]) -> Kind:
    """A shipped forecaster, or a class derived from one, with the shipped numbers."""
    numbers = next(vars(f) for f in (*FORECASTERS, *DOMAIN_FORECASTERS) if issubclass(kind, type(f)))
    return kind(**numbers)
