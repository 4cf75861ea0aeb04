"""The fleet's metric families: the whole text, and how it reads to Prometheus."""

import subprocess
import time
from collections.abc import Callable

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from healthsvc.publish.metrics import HELP, render_fleet
from healthsvc.publish.self_metrics import SelfMetrics
from tests import servers
from tests.reports import calm_report, changed, five_gpu_report, five_gpu_snapshot, snapshot_of

SELF_NAMES = {
    "healthsvc_report_timestamp_seconds",
    "healthsvc_cycle_duration_seconds",
    "healthsvc_failures",
    "healthsvc_samples_read",
    "healthsvc_source_warnings",
    "healthsvc_samples_rejected",
    "healthsvc_incomplete_reads",
    "healthsvc_training_left_out_ratio",
    "healthsvc_signal_missing_ratio",
    "healthsvc_alerts_sent",
    "healthsvc_build_info",
}


def samples(text: bytes, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """label pairs -> value, of one family."""
    found = {f.name: f for f in text_string_to_metric_families(text.decode())}[name]
    return {tuple(sorted(s.labels.items())): s.value for s in found.samples}


def used_self_metrics() -> SelfMetrics:
    own = SelfMetrics("1.2.3")
    own.report_made(1_790_000_000.0)
    own.stage_took("fetch", 0.2)
    own.failed("fetch")
    own.samples_read(1000, warnings=2)
    own.signal_missing("power_watts", 0.25)
    own.alerts_sent("sent", 3)
    return own


def test_the_text_of_five_gpus_is_the_golden_one(golden: Callable[[str, str], None]) -> None:
    golden("metrics.txt", render_fleet(five_gpu_snapshot()).decode())


def test_every_family_has_samples_and_the_parser_reads_them() -> None:
    families = {f.name: f for f in text_string_to_metric_families(render_fleet(five_gpu_snapshot()).decode())}
    assert families.keys() == HELP.keys()
    assert all(f.samples and f.documentation == HELP[name] for name, f in families.items())


def test_label_values_survive_escaping() -> None:
    found = samples(render_fleet(five_gpu_snapshot()), "healthsvc_gpu_band")
    assert found[(("UUID", "GPU-0004"), ("gpu", "0"), ("hostname", 'node"2\\'))] == -1


def test_an_unknown_risk_has_no_series_and_is_not_zero() -> None:
    risks = samples(render_fleet(five_gpu_snapshot()), "healthsvc_gpu_risk_ratio")
    assert not any(("UUID", "GPU-0004") in labels for labels in risks)
    assert len(risks) == 4 * 3


def test_classes_show_for_gpus_at_watch_or_above_unless_all_are_asked_for() -> None:
    name = "healthsvc_gpu_failure_probability_ratio"
    shown = {dict(k)["UUID"] for k in samples(render_fleet(five_gpu_snapshot(), "watch"), name)}
    every = {dict(k)["UUID"] for k in samples(render_fleet(five_gpu_snapshot(), "all"), name)}
    assert shown == {"GPU-0001", "GPU-0002", "GPU-0003"}
    assert len(every) == 5


def test_a_probability_says_whether_it_is_calibrated_or_a_prior() -> None:
    found = samples(render_fleet(five_gpu_snapshot()), "healthsvc_gpu_failure_probability_ratio")
    sources = {(dict(k)["class"], dict(k)["source"]) for k in found}
    assert sources == {("thermal", "prior"), ("memory", "calibrated"), ("device_loss", "calibrated")}


def test_expected_failures_are_the_sum_of_service_event_probabilities() -> None:
    report = five_gpu_report()
    found = samples(render_fleet(snapshot_of(report)), "healthsvc_fleet_expected_failures")
    wanted = report.probability[:, 1, 0, 1].sum()
    assert found[(("class", "memory"), ("horizon", "7d"))] == pytest.approx(wanted, rel=1e-5)


def test_an_empty_fleet_renders() -> None:
    assert b"healthsvc_fleet_gpus" in render_fleet(snapshot_of(calm_report(())))


def test_self_metrics_are_the_documented_ones() -> None:
    families = list(text_string_to_metric_families(used_self_metrics().render().decode()))
    assert {f.name for f in families} == SELF_NAMES


@pytest.mark.servers
def test_promtool_finds_nothing_but_the_label_names_of_dcgm_exporter() -> None:
    if reason := servers.missing("promtool"):
        pytest.skip(reason)
    text = used_self_metrics().render() + render_fleet(five_gpu_snapshot(), "all")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    complaints = (checked.stdout + checked.stderr).decode().splitlines()
    assert all("camelCase" in line and "healthsvc_gpu_info" in line for line in complaints), complaints


def test_ten_thousand_gpus_take_less_than_a_third_of_a_second() -> None:
    report = calm_report(10_000)
    report = changed(report, "risk", slice(None), np.random.default_rng(1).random((10_000, 3)))
    snapshot = snapshot_of(report)
    render_fleet(snapshot)  # fills the cached prefixes, as the first cycle does
    began = time.process_time()
    render_fleet(snapshot)
    assert time.process_time() - began < 0.3
