"""What users have today, as rules over the same history that the forecasters see: the table a back-test must beat."""

from healthsvc.evaluation.baselines.base import Baseline
from healthsvc.evaluation.baselines.dcgm import DcgmHealth
from healthsvc.evaluation.baselines.linear import PredictLinear, PredictLinearDaily
from healthsvc.evaluation.baselines.peers import PeerTemperature
from healthsvc.evaluation.baselines.recurrence import Recurrence
from healthsvc.evaluation.baselines.spans import AlarmSpans, draw_spans, episodes_of
from healthsvc.evaluation.baselines.static_rules import StaticRules

__all__ = [
    "AlarmSpans",
    "Baseline",
    "DcgmHealth",
    "PeerTemperature",
    "PredictLinear",
    "PredictLinearDaily",
    "Recurrence",
    "StaticRules",
    "draw_spans",
    "episodes_of",
    "standard_baselines",
]


def standard_baselines(every_s: float) -> tuple[Baseline, ...]:
    """The rows of the table, for a back-test that evaluates every `every_s` seconds; chance (b5) is `draw_spans`."""
    return (
        DcgmHealth(every_s),
        DcgmHealth(every_s, warnings=True),
        StaticRules(every_s),
        PredictLinear(),
        PredictLinearDaily(),
        PeerTemperature(every_s),
        Recurrence(),
    )
