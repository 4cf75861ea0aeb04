"""The metrics of a case worked out by hand, and what must never happen to them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.evaluation.alert_episodes import AlertEpisode
from healthsvc.evaluation.exact import rate
from healthsvc.evaluation.labels import Label
from healthsvc.evaluation.matching import match_alerts
from healthsvc.evaluation.metrics import AlertMetrics, alert_metrics, natural_rate
from healthsvc.fleet import CLASSES
from tests.evaluation.cases import ALERTS, DAY_S, EXPOSURE_GPU_MONTHS, KNOWN_UNTIL_S, LABELS, alert, episodes, label


def measured(
    alerts: tuple[AlertEpisode, ...] = ALERTS, labels: tuple[Label, ...] = LABELS, classes: tuple[str, ...] = ()
) -> AlertMetrics:
    found = episodes(*labels)
    matching = match_alerts(alerts, found, KNOWN_UNTIL_S)
    chosen = matching.of_classes(*classes) if classes else matching
    return alert_metrics(chosen, EXPOSURE_GPU_MONTHS, decoys=found.decoys)


def test_the_hand_computed_case() -> None:
    found = measured()
    # Alerts: 3 true (days 3, 8, 49.5), 1 late (20.5), 2 false (30, 31), 1 censored (95).
    assert found.alerts == 7
    assert found.outcomes == {"true": 3, "late": 1, "false": 2, "censored": 1, "in_maintenance": 0}
    assert found.wrong_class == 1
    assert found.precision == rate(3, 5)  # 3 true of 3 true + 2 false
    # Incidents: memory of day 10 and the domain are predicted, device_loss is late, thermal and memory of 60 missed.
    assert found.recall == rate(2, 5)
    assert found.recall_with_precursor == rate(2, 4)  # device_loss had none
    assert found.precursor == rate(4, 5)
    assert found.late == rate(1, 5)
    assert found.detected == rate(3, 5)
    # Leads: 7 d (from the first of two alerts) and 0.5 d. Linear quantiles: 0.5 + q x 6.5 d.
    assert found.lead.n == 2
    leads = (found.lead.p10_s, found.lead.p50_s, found.lead.p90_s)
    assert leads == pytest.approx((1.15 * DAY_S, 3.75 * DAY_S, 6.35 * DAY_S))
    # 2 false in 3 GPUs x 100 d = 9.856 GPU-months: 202.9 per 1,000; the Garwood bound of 2 is 6.296, so 638.8.
    assert found.false_alerts.count == 2
    assert found.false_alerts.per_1000_gpu_months == pytest.approx(202.92, abs=0.01)
    assert found.false_alerts.upper_per_1000_gpu_months == pytest.approx(638.76, abs=0.02)
    assert found.false_by_decoy == {"constant_hot": 1}
    assert found.decoys == {"constant_hot": 1}
    # r = 0.4, f = 2 / 300 GPU-days x 30 = 0.2, pi = 0.0091: 0.00364 / (0.00364 + 0.2 x 0.9909) = 0.01804.
    assert found.natural_precision.value == pytest.approx(0.018036, abs=1e-6)
    assert found.natural_precision.lower < 0.018 < found.natural_precision.upper


def test_classes_are_judged_by_themselves() -> None:
    memory, loss = measured(classes=("memory",)), measured(classes=("device_loss",))
    assert memory.precision == rate(2, 3)
    assert memory.recall == rate(1, 2)
    assert math.isnan(loss.precision.value)  # its one alert was late, which is neither
    assert loss.detected == rate(1, 1)
    assert measured(classes=("thermal",)).false_by_decoy == {"constant_hot": 1}


def test_without_exposure_or_events_nothing_is_claimed() -> None:
    nothing = alert_metrics(match_alerts((), episodes(), KNOWN_UNTIL_S), 0.0)
    assert math.isnan(nothing.precision.value)
    assert math.isnan(nothing.recall.value)
    assert math.isnan(nothing.natural_precision.value)
    assert nothing.false_alerts.upper_per_1000_gpu_months == math.inf
    assert nothing.lead.n == 0


def test_no_false_alert_still_has_an_upper_bound() -> None:
    found = measured(ALERTS[:2]).false_alerts
    assert found.per_1000_gpu_months == 0
    assert found.upper_per_1000_gpu_months == pytest.approx(1000 * 2.9957 / EXPOSURE_GPU_MONTHS, rel=1e-4)


def test_natural_rates_of_the_classes_add_up_to_that_of_all() -> None:
    assert natural_rate(*CLASSES) == 0.0091
    assert sum(natural_rate(name) for name in CLASSES) == pytest.approx(0.0091)
    assert natural_rate("memory") == pytest.approx(0.0091 * 91 / 262)
    assert math.isnan(natural_rate("throttling"))


FEW = settings(deadline=None, max_examples=40)
SCOPES = ("GPU-a", "GPU-b", "GPU-c")
some_labels = st.lists(
    st.builds(
        lambda scope, what, at, known: label(scope, what, at, at + 0.5, precursor=known),
        st.sampled_from(SCOPES[:2]),
        st.sampled_from(CLASSES),
        st.integers(0, 100),
        st.booleans(),
    ),
    max_size=8,
)
some_alerts = st.lists(
    st.builds(alert, st.sampled_from(SCOPES[:2]), st.sampled_from(CLASSES), st.integers(0, 100)), max_size=8
)


def same(one: AlertMetrics, other: AlertMetrics) -> bool:
    return repr(one) == repr(other)  # NaN equals nothing


@FEW
@given(st.permutations(LABELS), st.permutations(ALERTS))
def test_the_order_of_rows_does_not_matter(labels: list[Label], alerts: list[AlertEpisode]) -> None:
    assert same(measured(tuple(alerts), tuple(labels)), measured())


@FEW
@given(some_labels, some_alerts, st.randoms(use_true_random=False))
def test_the_order_of_any_rows_does_not_matter(labels, alerts, random) -> None:  # type: ignore[no-untyped-def]
    shuffled_labels, shuffled_alerts = random.sample(labels, len(labels)), random.sample(alerts, len(alerts))
    one, other = measured(tuple(alerts), tuple(labels)), measured(tuple(shuffled_alerts), tuple(shuffled_labels))
    assert same(one, other)


@FEW
@given(some_labels, some_alerts, st.integers(0, 60), st.sampled_from(CLASSES))
def test_a_further_false_alert_never_raises_precision(labels, alerts, at, what) -> None:  # type: ignore[no-untyped-def]
    before = measured(tuple(alerts), tuple(labels)).precision
    after = measured((*alerts, alert("GPU-c", what, at)), tuple(labels)).precision  # nothing ever befalls GPU-c
    assert after.n == before.n + 1
    assert not after.value > before.value
    assert after.upper <= before.upper


@FEW
@given(some_labels, some_alerts, st.integers(0, 100), st.booleans())
def test_a_further_missed_incident_never_raises_recall(labels, alerts, at, known) -> None:  # type: ignore[no-untyped-def]
    missed = label("GPU-c", "memory", at, at + 0.5, precursor=known)  # nobody ever alerts on GPU-c
    before, after = measured(tuple(alerts), tuple(labels)), measured(tuple(alerts), (*labels, missed))
    assert after.recall.n == before.recall.n + 1
    assert not after.recall.value > before.recall.value
    assert not after.recall_with_precursor.value > before.recall_with_precursor.value
    assert not after.detected.value > before.detected.value


def test_an_alert_repeated_by_another_scope_changes_no_recall() -> None:
    doubled = (*ALERTS, replace(ALERTS[0], raised_s=ALERTS[0].raised_s + 60))
    assert measured(doubled).recall == measured().recall
