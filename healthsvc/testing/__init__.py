"""Behaviour that every forecaster must show, and a small plausible fleet to show it on.

`check_forecaster(MyForecaster())` is the whole of a new forecaster's contract test.
"""

from healthsvc.testing.check import check_domain_forecaster, check_forecaster, try_rule
from healthsvc.testing.domain_rules import DOMAIN_RULES
from healthsvc.testing.example import example_history
from healthsvc.testing.rules import RULES

__all__ = ["DOMAIN_RULES", "RULES", "check_domain_forecaster", "check_forecaster", "example_history", "try_rule"]
