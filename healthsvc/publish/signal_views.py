"""The survey of the telemetry as an answer: no query and no look at samples."""

from healthsvc.fleet.survey import ForecasterFacts, SignalFacts, Survey
from healthsvc.publish.models import ForecasterModel, LackModel, MetricModel, SignalModel, SignalsAnswer
from healthsvc.publish.times import timestamp


def signals_answer(survey: Survey) -> SignalsAnswer:
    """Everything in the survey, in its order."""
    return SignalsAnswer(
        gpus=survey.gpus,
        silent=survey.silent,
        signals=[signal_model(facts) for facts in survey.signals],
        forecasters=[forecaster_model(facts) for facts in survey.forecasters],
        incomplete=survey.incomplete,
        warnings=list(survey.warnings),
        start=timestamp(survey.start_s),
        as_of=timestamp(survey.as_of_s),
    )


def signal_model(facts: SignalFacts) -> SignalModel:
    """One signal."""
    return SignalModel(
        signal=facts.signal.value,
        layer=facts.layer,
        reporting=facts.count,
        since=None if facts.since_s is None else timestamp(facts.since_s),
        missing=None if facts.missing_ratio is None else round(facts.missing_ratio, 6),
        metrics=[MetricModel.model_validate(vars(metric)) for metric in facts.metrics],
        rejected=dict(facts.rejected),
    )


def forecaster_model(facts: ForecasterFacts) -> ForecasterModel:
    """One forecaster."""
    return ForecasterModel(
        name=facts.name,
        failure_class=facts.failure_class,
        readiness=facts.readiness,
        ready=facts.ready,
        degraded=facts.degraded,
        starved=facts.starved,
        starved_by=[LackModel(any_of=[s.value for s in group], gpus=n) for group, n in facts.starved_by.items()],
        degraded_by=[LackModel(any_of=[signal.value], gpus=n) for signal, n in facts.degraded_by.items()],
        beyond_board=facts.beyond_board,
    )
