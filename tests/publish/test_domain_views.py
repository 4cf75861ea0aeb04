"""Domains and incidents over REST and in the metrics."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from healthsvc.fleet import DomainForecast, Incident, NeighbourEffect, Snapshot, Workload
from healthsvc.publish.board import Board
from healthsvc.publish.domain_views import MOST_LISTED
from healthsvc.publish.metrics import render_fleet
from tests.publish.asks import READY, app_of, five_gpu_decision, get
from tests.publish.test_metrics import samples
from tests.reports import NOW_S, calm_report, five_gpu_report, five_gpu_snapshot, snapshot_of

DOMAINS, INCIDENTS = "/api/v1/domains", "/api/v1/incidents"
NAN = np.nan


def forecast_of(*domains: tuple[str, str, float, float], **fields: Any) -> DomainForecast:
    """(layer, name, P(at least 3, 2 h), the same in 24 h) each, with GPUs 0 to 2 as members."""
    chance = np.zeros((len(domains), 3, 3), np.float32)
    chance[:, :, 0] = np.array([[p / 2] * 3 for _, _, p, _ in domains])
    chance[:, :, 1] = np.array([[p] * 3 for _, _, p, _ in domains])
    chance[:, :, 2] = np.array([[p] * 3 for _, _, _, p in domains])
    return DomainForecast(
        domains=tuple((layer, name) for layer, name, _, _ in domains),
        horizons_s=(1800.0, 7200.0, 86_400.0),
        probability_at_least_k=chance,
        expected_lost_gpu_hours=np.full(len(domains), 0.25, np.float32),
        throttling=fields.pop("throttling", np.zeros(len(domains), np.int32)),
        members=tuple(np.arange(3, dtype=np.int32) for _ in domains),
        **fields,
    )


FIVE = (
    ("node", "n1", 0.001, 0.004),
    ("rack", "r1", 0.3, 0.5),
    ("cooling_loop", "l1", 0.3, 0.6),
    ("node", "n2", NAN, NAN),
    ("job", "a/train", 0.001, 0.02),
)


def snapshot_with(*forecasts: DomainForecast, incidents: tuple[Incident, ...] = ()) -> Snapshot:
    return snapshot_of(replace(calm_report(5), domains=forecasts, incidents=incidents))


def app_with(snapshot: Snapshot) -> FastAPI:
    return app_of(Board(snapshot, five_gpu_decision(), READY))


def names(snapshot: Snapshot, **params: Any) -> list[str]:
    return [item["domain"] for item in get(app_with(snapshot), DOMAINS, **params).json()["items"]]


def incident(name: str, state: Any, onset_s: float = NOW_S, members: tuple[str, ...] = ("GPU-0001",)) -> Incident:
    alertname = "" if state == "watch" else "CoolingIncident"
    return Incident(f"job:{name}", "job", name, state, alertname, "pump failure", onset_s, members, members[0])


def test_domains_come_by_their_chance_in_two_hours_then_in_a_day_and_unknown_last() -> None:
    assert names(snapshot_with(forecast_of(*FIVE))) == ["l1", "r1", "a/train", "n1", "n2"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"layer": "node"}, ["n1", "n2"]),
        ({"min_probability": 0.3}, ["l1", "r1"]),
        ({"min_probability": 0.0005, "layer": "node"}, ["n1"]),
        ({"layer": "tray"}, []),
    ],
)
def test_domains_can_be_filtered(filters: dict[str, Any], found: list[str]) -> None:
    assert names(snapshot_with(forecast_of(*FIVE)), **filters) == found


def test_pages_of_domains_join_and_count_the_whole() -> None:
    page = get(app_with(snapshot_with(forecast_of(*FIVE))), DOMAINS, limit=2, offset=2).json()
    assert [item["domain"] for item in page["items"]] == ["a/train", "n1"]
    assert (page["total"], page["limit"], page["offset"]) == (5, 2, 2)


def test_a_domain_shows_its_chances_its_pods_and_its_incident() -> None:
    loop, node = get(app_with(five_gpu_snapshot()), DOMAINS).json()["items"]
    assert (loop["layer"], loop["domain"], loop["members"], loop["throttling"]) == ("cooling_loop", "loop-a", 4, 1)
    assert loop["probability"]["3"] == {"30m": 0.3, "2h": 0.55, "24h": 0.6}
    assert loop["expected_lost_gpu_hours"] == 1.5
    assert (loop["watch"], loop["inferred"]) == (False, False)
    assert [pod["pod"] for pod in loop["workloads"]] == ['llm "8b"', "quiet-0"]
    assert loop["workloads_total"] == 2
    assert (loop["incident"], node["incident"]) == ("inc-1", "inc-1")  # the node's GPUs are all of the loop's
    assert node["probability"]["3"] == {"30m": None, "2h": None, "24h": None}
    assert node["probability"]["1"]["30m"] == 0.2


def test_a_guessed_domain_and_one_at_watch_say_so() -> None:
    forecast = forecast_of(*FIVE[:2], watch=np.array([False, True]), inferred=np.array([True, False]))
    found = {d["domain"]: d for d in get(app_with(snapshot_with(forecast)), DOMAINS).json()["items"]}
    assert (found["r1"]["watch"], found["r1"]["inferred"]) == (True, False)
    assert (found["n1"]["watch"], found["n1"]["inferred"]) == (False, True)


def test_contagion_is_a_number_only_where_it_can_be_told_from_a_common_cause() -> None:
    effects = (
        NeighbourEffect("node", "estimated", 0.8, 0.5, 1.1, 1200),
        NeighbourEffect("rack", "not separable", NAN, NAN, NAN, 1200),
        NeighbourEffect("cooling_loop", "insufficient", NAN, NAN, NAN, 12),
    )
    told = get(app_with(snapshot_with(forecast_of(*FIVE, neighbours=effects))), DOMAINS).json()["neighbours"]
    assert told[0] == {
        "layer": "node", "status": "estimated", "effect": 0.8, "low": 0.5, "high": 1.1, "onsets": 1200
    }  # fmt: skip
    assert (told[1]["status"], told[1]["effect"]) == ("common cause or contagion, not separable", None)
    assert (told[2]["status"], told[2]["low"]) == ("too few onsets for an estimate", None)


def test_incidents_come_open_first_and_the_newest_first() -> None:
    all_states = (
        replace(incident("a", "cleared"), cleared_s=NOW_S),
        incident("b", "watch"),
        incident("c", "active", NOW_S - 600),
        incident("d", "active"),
        incident("e", "predicted"),
    )
    app = app_with(snapshot_with(incidents=all_states))
    page = get(app, INCIDENTS).json()
    assert [item["domain"] for item in page["items"]] == ["d", "c", "e", "b", "a"]
    assert (page["total"], page["items"][4]["cleared"]) == (5, "2026-09-21T14:13:20.000Z")
    assert (page["items"][3]["alertname"], page["items"][0]["cleared"]) == ("", None)
    watched = get(app, INCIDENTS, state="watch").json()
    assert (watched["total"], watched["items"][0]["domain"]) == (1, "b")
    second = get(app, INCIDENTS, limit=1, offset=1).json()
    assert [item["domain"] for item in second["items"]] == ["c"]


def test_an_incident_is_found_by_its_id_even_with_a_slash_in_it() -> None:
    members = ("GPU-0000", "GPU-0001", "GPU-0002")
    found = replace(incident("team/train", "active", members=members), kind="flow", began_s=NOW_S - 60, evidence="flow")
    app = app_with(replace(five_gpu_snapshot(), report=replace(five_gpu_report(), incidents=(found,))))
    told = get(app, f"{INCIDENTS}/job:team/train").json()
    assert (told["domain"], told["kind"], told["evidence"]) == ("team/train", "flow", "flow")
    assert (told["began"], told["onset"]) == ("2026-09-21T14:12:20.000Z", "2026-09-21T14:13:20.000Z")
    assert (told["members"], told["members_total"], told["first_mover"]) == (list(members), 3, "GPU-0000")
    assert [pod["pod"] for pod in told["workloads"]] == ['llm "8b"', "quiet-0"]
    gone = get(app, f"{INCIDENTS}/none")
    assert (gone.status_code, "GET /api/v1/incidents lists" in gone.json()["detail"]) == (404, True)


def test_an_incident_says_what_its_alert_says_is_to_be_done() -> None:
    app = app_with(five_gpu_snapshot())  # an alert stands on its only incident
    alert = next(a for a in get(app, "/api/v1/alerts").json()["firing"] if "incident" in a["annotations"])
    for told in (get(app, INCIDENTS).json()["items"], get(app, "/api/v1/fleet").json()["incidents"]):
        assert [item["action"] for item in told] == [alert["annotations"]["action"]]
        assert told[0]["action"]
    assert (
        get(app_with(snapshot_with(incidents=(incident("b", "watch"),))), INCIDENTS).json()["items"][0]["action"] == ""
    )


def test_long_lists_are_cut_and_counted() -> None:
    report = calm_report(MOST_LISTED + 50)
    everybody = tuple(gpu.device_id for gpu in report.gpus)
    pods = {device: Workload("a", f"pod-{number:03d}") for number, device in enumerate(everybody)}
    one = incident("a", "active", members=everybody)
    app = app_with(snapshot_of(replace(report, incidents=(one,)), workloads=pods))
    told = get(app, INCIDENTS).json()["items"][0]
    assert (len(told["members"]), told["members_total"]) == (MOST_LISTED, MOST_LISTED + 50)
    assert (len(told["workloads"]), told["workloads_total"]) == (MOST_LISTED, MOST_LISTED + 50)


@pytest.mark.parametrize("params", [{"min_probability": 1.5}, {"limit": 0}, {"offset": -1}])
def test_a_wrong_parameter_of_domains_is_a_problem(params: dict[str, Any]) -> None:
    assert get(app_with(five_gpu_snapshot()), DOMAINS, **params).status_code == 422


def shown(snapshot: Snapshot, family: str, detail: Any = "watch") -> dict[str, float]:
    """domain -> value, of a family without horizons."""
    found = samples(render_fleet(snapshot, detail), family)
    return {dict(labels)["domain"]: value for labels, value in found.items()}


def test_only_domains_with_something_to_see_have_series_unless_all_are_asked_for() -> None:
    throttling = np.array([0, 0, 2, 0, 0], np.int32)
    quiet = [("node", f"n{i}", 1e-5, 1e-4) for i in range(5)]
    snapshot = snapshot_with(
        forecast_of(*quiet, watch=np.array([True] + [False] * 4), throttling=throttling), forecast_of(*FIVE)
    )
    assert shown(snapshot, "healthsvc_domain_throttling_gpus") == {
        "n0": 0, "n2": 2, "r1": 0, "l1": 0, "a/train": 0
    }  # fmt: skip
    assert shown(snapshot, "healthsvc_domain_watch")["n0"] == 1
    assert set(shown(snapshot, "healthsvc_domain_watch", "all")) == {f"n{i}" for i in range(5)} | {
        "r1",
        "l1",
        "a/train",
    }


def test_lost_gpu_time_is_in_seconds_as_prometheus_wants_it() -> None:
    found = shown(snapshot_with(forecast_of(*FIVE)), "healthsvc_domain_expected_lost_gpu_seconds", "all")
    assert set(found.values()) == {900.0}


def test_open_incidents_are_counted_by_state_and_name_and_none_is_zero() -> None:
    some = (incident("a", "active"), incident("b", "active"), incident("c", "watch"), incident("d", "cleared"))
    found = samples(render_fleet(snapshot_with(incidents=some)), "healthsvc_incidents")
    count = {(dict(k)["state"], dict(k).get("alertname", "")): value for k, value in found.items()}
    assert count == {
        ("active", "CoolingIncident"): 2,
        ("active", "FacilityPowerIncident"): 0,
        ("active", "ThrottlingCascadePredicted"): 0,
        ("predicted", "ThrottlingCascadePredicted"): 0,
        ("watch", ""): 1,
    }
