"""The REST interface over a board."""

import re
from dataclasses import replace
from typing import Any

import pytest

from healthsvc.alerts import Decision
from healthsvc.publish.board import Board, ServiceStatus
from tests.publish.asks import CLOCK_S, READY, app_of, get, ready_board
from tests.reports import calm_report, snapshot_of

APP = app_of(ready_board())
GPUS = "/api/v1/gpus"


def uuids(**params: Any) -> list[str]:
    return [item["uuid"][-1] for item in get(APP, GPUS, **params).json()["items"]]


def test_gpus_come_with_open_events_first_then_by_risk_and_unknown_last() -> None:
    assert uuids() == ["3", "2", "1", "0", "4"]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("risk", "03124"),
        ("uuid", "01234"),
        ("-uuid", "43210"),
        ("hostname", "40123"),
        ("coverage", "40123"),
        ("-coverage", "01234"),
    ],
)
def test_gpus_can_be_sorted(sort: str, order: str) -> None:
    assert "".join(uuids(sort=sort)) == order


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"band": "degraded"}, ["2"]),
        ({"class": "memory"}, ["2"]),
        ({"hostname": "node0"}, ["1", "0"]),
        ({"rack": "r2"}, ["3", "2"]),
        ({"rack": "r2", "band": "critical"}, ["3"]),
        ({"rack": "nowhere"}, []),
    ],
)
def test_gpus_can_be_filtered(filters: dict[str, str], found: list[str]) -> None:
    assert uuids(**filters) == found


def test_pages_join_without_overlap_and_count_the_whole() -> None:
    page = get(APP, GPUS, limit=2, offset=2).json()
    assert [item["uuid"] for item in page["items"]] == ["GPU-0001", "GPU-0000"]
    assert (page["total"], page["limit"], page["offset"]) == (5, 2, 2)
    assert page["as_of"] == "2026-09-21T14:13:20.000Z"


def test_unknown_is_null_and_never_zero() -> None:
    item = get(APP, GPUS, band="unknown").json()["items"][0]
    assert item["risk"] == {"24h": None, "7d": None, "30d": None}
    assert item["class"] is None


def test_one_gpu_shows_identity_probabilities_evidence_and_alerts() -> None:
    gpu = get(APP, f"{GPUS}/GPU-0001").json()
    thermal = gpu["classes"][0]
    assert gpu["places"] == {"node": "node0", "rack": "r1", "cooling_loop": "loop-a"}
    assert (thermal["class"], thermal["source"]) == ("thermal", "prior")
    assert thermal["probability"]["T2"] == {"24h": 0.003, "7d": 0.012, "30d": 0.0456789}
    assert thermal["evidence"] == {"slope_celsius_per_day": 0.21}
    assert thermal["time_to_limit_seconds"]["0.5"] == 9.5 * 86_400
    assert gpu["reasons"] == ["runs hotter than its peers and drifts"]
    assert gpu["held"][0]["reason"] == "under_incident"
    memory = get(APP, f"{GPUS}/GPU-0002").json()
    assert [a["labels"]["alertname"] for a in memory["alerts"]] == ["GpuFailurePredicted"]
    assert get(APP, f"{GPUS}/GPU-0003").json()["lost_since"] == "2026-09-21T14:03:20.000Z"


def test_the_pod_that_holds_a_gpu_is_shown_with_it() -> None:
    pod = {"namespace": "team-a", "pod": 'llm "8b"', "container": "main"}
    assert get(APP, f"{GPUS}/GPU-0002").json()["workload"] == pod
    shown = {item["uuid"]: item["workload"] for item in get(APP, GPUS).json()["items"]}
    assert shown["GPU-0002"] == pod
    assert shown["GPU-0003"] is None


def test_the_fleet_is_counted_by_band() -> None:
    fleet = get(APP, "/api/v1/fleet").json()
    assert fleet["bands"] == {"unknown": 1, "healthy": 1, "watch": 1, "degraded": 1, "critical": 1}
    assert fleet["incidents"][0]["domain"] == "loop-a"
    assert fleet["status"]["ready"] is True


def test_alerts_show_what_fires_and_why_others_are_held_back() -> None:
    alerts = get(APP, "/api/v1/alerts").json()
    assert {a["labels"]["alertname"] for a in alerts["firing"]} >= {"GpuFailurePredicted", "ThrottlingCascadePredicted"}
    assert all(a["raised_at"].endswith("Z") for a in alerts["firing"])
    assert "under_incident" in {a["reason"] for a in alerts["held"]}


def test_metrics_are_served_from_the_page() -> None:
    answer = get(APP, "/metrics")
    assert answer.text == "fleet 1\nown 1\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["vary"] == "Accept-Encoding"


def test_the_root_leads_to_the_documentation() -> None:
    assert get(APP, "/").headers["location"] == "/docs"


def test_the_page_of_the_interface_asks_nobody_else_for_its_parts() -> None:
    page = get(APP, "/docs").text
    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(parts) >= 2
    assert all(part.startswith("/") for part in parts), parts
    assert all(get(APP, part).status_code == 200 for part in parts)


def test_the_openapi_document_describes_every_path() -> None:
    document = get(APP, "/openapi.json").json()
    assert all(operation["get"]["summary"] for operation in document["paths"].values())
    assert "application/problem+json" in document["paths"][GPUS]["get"]["responses"]["422"]["content"]


def problem(answer: Any, status: int) -> str:
    assert answer.status_code == answer.json()["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["detail"])


def test_an_unknown_uuid_is_a_problem_with_a_cure() -> None:
    assert "GET /api/v1/gpus lists" in problem(get(APP, f"{GPUS}/GPU-none"), 404)


def test_an_unknown_path_is_a_problem() -> None:
    assert "/docs" in problem(get(APP, "/nowhere"), 404)


@pytest.mark.parametrize("params", [{"limit": 1001}, {"offset": -1}, {"band": "fine"}, {"sort": "luck"}])
def test_a_wrong_parameter_is_named_with_its_value(params: dict[str, Any]) -> None:
    ((name, value),) = params.items()
    detail = problem(get(APP, GPUS, **params), 422)
    assert name in detail
    assert str(value) in detail


def test_a_failure_inside_is_a_problem_without_its_entrails() -> None:
    broken = Board(status=READY, decision=None)  # type: ignore[arg-type]
    assert "AttributeError" not in problem(get(app_of(broken), "/api/v1/alerts"), 500)


def test_before_the_first_cycle_answers_say_how_far_the_backfill_is() -> None:
    app = app_of(Board(status=ServiceStatus(backfill_days=(12, 30))))
    assert "backfill 12/30 days" in problem(get(app, "/-/ready"), 503)
    assert "backfill 12/30 days" in problem(get(app, GPUS), 503)
    assert get(app, "/api/v1/alerts").json()["as_of"] is None


def test_ready_needs_a_cycle_within_three_intervals() -> None:
    board = ready_board()
    assert get(app_of(board), "/-/ready").text == "ready"
    board.status = replace(READY, last_cycle_s=CLOCK_S - 180, source_ok=False, source_message="connection refused")
    assert "connection refused" in problem(get(app_of(board), "/-/ready"), 503)


def test_healthy_needs_a_fresh_heartbeat() -> None:
    board = ready_board()
    assert get(app_of(board), "/-/healthy").text == "healthy"
    board.status = replace(READY, heartbeat_s=CLOCK_S - 180)
    assert "180 s" in problem(get(app_of(board), "/-/healthy"), 503)


def test_a_new_snapshot_is_seen_by_the_next_request() -> None:
    board = ready_board()
    app = app_of(board)
    assert get(app, GPUS).json()["total"] == 5
    board.snapshot, board.decision = snapshot_of(calm_report(7)), Decision(board.decision.state)
    assert get(app, GPUS).json()["total"] == 7
