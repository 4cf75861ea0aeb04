"""What the service says about itself is there before anything has happened, and nothing in it is made up."""

import math

from healthsvc.publish.self_metrics import OUTCOMES, STAGES, SelfMetrics


def test_every_counter_begins_at_zero_so_that_its_first_count_is_an_increase() -> None:
    registry = SelfMetrics(reasons=("blank",)).registry
    for name, label, words in (
        ("healthsvc_failures_total", "stage", STAGES),
        ("healthsvc_alerts_sent_total", "outcome", OUTCOMES),
        ("healthsvc_samples_rejected_total", "reason", ("blank",)),
    ):
        assert [registry.get_sample_value(name, {label: word}) for word in words] == [0.0] * len(words)


def test_what_nobody_has_measured_yet_is_not_a_number() -> None:
    """A report of 1970 would page at every start."""
    own = SelfMetrics()
    for name in ("healthsvc_report_timestamp_seconds", "healthsvc_training_left_out_ratio"):
        value = own.registry.get_sample_value(name)
        assert value is not None
        assert math.isnan(value)
    own.report_made(5.0)
    assert own.registry.get_sample_value("healthsvc_report_timestamp_seconds") == 5.0
