"""What an alert says."""

from dataclasses import replace
from typing import Any

import pytest

from healthsvc.alerts import Alert
from tests.alerts.cycles import Cycles
from tests.reports import HOUR_S, NOW_S, calm_report, changed, cooling_incident, five_gpu_report, with_probability


def told() -> dict[str, Alert]:
    decision = Cycles().run(replace(five_gpu_report(), incidents=()), 3 * HOUR_S)
    return {alert.labels.get("UUID", ""): alert for alert in decision.firing}


def test_a_degrading_gpu_says_how_likely_how_soon_why_and_what_to_do() -> None:
    said = told()["GPU-0001"].annotations
    assert said["summary"] == "GPU 1 on node0 is degrading (thermal)."
    assert "0.012 within 7d, 0.046 within 30d (prior)" in said["description"]
    assert said["time_to_limit"] == "9.5 d (80 % interval 2 d to 31 d)"
    assert said["evidence"] == "runs hotter than its peers and drifts; slope_celsius_per_day = 0.21"
    assert said["action"] == "check fan and thermal paste at the next stop"


def test_a_calibrated_probability_is_called_so() -> None:
    assert "(calibrated)" in told()["GPU-0002"].annotations["description"]


def test_a_fact_is_told_as_a_fact() -> None:
    assert told()["GPU-0003"].annotations["description"].startswith("Observed, not forecast: last seen ")


def test_a_failed_gpu_and_a_predicted_failure_read_differently() -> None:
    calm = calm_report()
    (fact,) = Cycles().once(changed(calm, "terminal", (0, 1), True)).firing
    (forecast,) = Cycles().run(with_probability(calm, 0, "memory", 0.4, terminal_week=0.2), 3 * HOUR_S).firing
    assert "has a terminal memory failure" in fact.annotations["summary"]
    assert "is predicted to reach a terminal memory failure" in forecast.annotations["summary"]
    assert fact.key == forecast.key


def incident_told(**changes: Any) -> Alert:
    incident = replace(cooling_incident(tuple(f"GPU-{i:04d}" for i in range(3))), **changes)
    (alert,) = Cycles().run(replace(calm_report(8), incidents=(incident,)), HOUR_S).firing
    return alert


@pytest.mark.parametrize(
    ("changes", "summary", "action"),
    [
        ({"kind": "flow"}, "3 GPUs of cooling loop loop-a are affected together.", "bring its flow back"),
        (
            {"kind": "common", "state": "predicted", "alertname": "ThrottlingCascadePredicted"},
            "3 GPUs of cooling loop loop-a may soon throttle together.",
            "Check what the GPUs share",
        ),
        ({"kind": "supply"}, "3 GPUs of cooling loop loop-a are affected together.", "Lower the supply temperature"),
        (
            {"kind": "airflow", "layer": "node", "domain": "node0"},
            "3 GPUs of node node0 are affected together.",
            "fans and filter",
        ),
        (
            {"kind": "power", "alertname": "FacilityPowerIncident", "layer": "power_feed", "domain": "f1"},
            "GPUs of power feed f1 are held by the power brake; it has 3 GPUs.",
            "Call the facility",
        ),
        (
            {"kind": "power", "alertname": "FacilityPowerIncident", "layer": "fleet", "domain": "all"},
            "3 GPUs of the fleet, in no common place, are held by the power brake.",
            "No GPU is at fault",
        ),
        ({}, "3 GPUs of cooling loop loop-a are affected together.", "before any single GPU"),
    ],
)
def test_an_incident_says_what_happens_and_what_to_do_about_its_cause(
    changes: dict[str, Any], summary: str, action: str
) -> None:
    said = incident_told(**changes).annotations
    assert said["summary"] == summary
    assert action in said["action"]


def test_an_incident_says_what_moved_first_how_long_before_and_what_led() -> None:
    moved = {"first_mover": "coolant flow of loop-a", "began_s": NOW_S - 900.0, "evidence": "the flow moved first"}
    assert incident_told(**moved).annotations["evidence"] == (
        "first mover coolant flow of loop-a, 15 min before it was seen; the flow moved first"
    )
    assert incident_told(first_mover="GPU-0001").annotations["evidence"] == "first mover GPU-0001"
    assert "evidence" not in incident_told(first_mover="").annotations


def test_nothing_to_say_is_no_annotation() -> None:
    (alert,) = Cycles().once(changed(calm_report(), "terminal", (0, 1), True)).firing
    assert alert.annotations.keys() == {"summary", "description"}
