"""The Alertmanager client against a real Alertmanager, and against one that misbehaves on purpose."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import structlog
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.alerts import Alert, Resolution
from healthsvc.config import AlertmanagerSettings
from healthsvc.publish.alertmanager import AlertmanagerClient
from tests import servers
from tests.publish.asks import five_gpu_decision
from tests.reports import HOUR_S, NOW_S


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        yield made


@pytest.fixture
def outcomes() -> Counter[str]:
    return Counter()


def client_of(url: str, session: requests.Session, outcomes: Counter[str]) -> AlertmanagerClient:
    settings = AlertmanagerSettings.model_validate({"url": url, "external_url": "http://health.example:9920/"})

    def count(outcome: str, alerts: int) -> None:
        outcomes[outcome] += alerts

    return AlertmanagerClient(settings, session, cycle_s=60.0, count=count)


def alert(uuid: str, summary: str = "first", **labels: str) -> Alert:
    known = {"alertname": "GpuDegrading", "UUID": uuid, "class": "thermal", "severity": "info", **labels}
    return Alert(known, {"summary": summary}, NOW_S)


def standing(url: str) -> dict[str, dict[str, Any]]:
    """What Alertmanager holds, by UUID."""
    return {a["labels"]["UUID"]: a for a in requests.get(f"{url}/api/v2/alerts", timeout=5).json()}


Real = tuple[AlertmanagerClient, str]


@pytest.fixture
def real(alertmanager_server: servers.Server, session: requests.Session, outcomes: Counter[str]) -> Real:
    return client_of(alertmanager_server.url, session, outcomes), alertmanager_server.url


@pytest.mark.servers
def test_alerts_stand_with_times_and_a_link(real: Real, outcomes: Counter[str]) -> None:
    client, url = real
    wall_s = time.time()
    assert client.push([alert("GPU-1"), alert("GPU-2")], [], wall_s)
    held = standing(url)
    assert held.keys() == {"GPU-1", "GPU-2"}
    assert held["GPU-1"]["generatorURL"] == "http://health.example:9920/api/v1/gpus/GPU-1"
    assert outcomes == {"sent": 2}


@pytest.mark.servers
def test_a_resend_replaces_annotations_and_keeps_the_start(real: Real) -> None:
    client, url = real
    client.push([alert("GPU-1")], [], time.time())
    before = standing(url)["GPU-1"]
    client.push([alert("GPU-1", "second")], [], time.time())
    after = standing(url)["GPU-1"]
    assert after["annotations"] == {"summary": "second"}
    assert after["startsAt"] == before["startsAt"]
    assert after["fingerprint"] == before["fingerprint"]


@pytest.mark.servers
def test_a_resolved_alert_leaves(real: Real) -> None:
    client, url = real
    client.push([alert("GPU-1"), alert("GPU-2")], [], time.time())
    assert client.push([alert("GPU-2")], [alert("GPU-1").ended(Resolution.CLEARED)], time.time())
    assert standing(url).keys() == {"GPU-2"}


@pytest.mark.servers
def test_one_bad_alert_is_named_while_the_others_stand(real: Real, outcomes: Counter[str]) -> None:
    client, url = real
    alerts = [alert(f"GPU-{i}") for i in range(9)] + [alert("GPU-bad", **{"bad-name": "x"})]
    with structlog.testing.capture_logs() as logs:
        assert not client.push(alerts, [], time.time())
    assert standing(url).keys() == {f"GPU-{i}" for i in range(9)}
    (entry,) = [line for line in logs if line["event"] == "alertmanager refused"]
    assert [labels["UUID"] for labels in entry["labels"]] == ["GPU-bad"]
    assert outcomes == {"sent": 9, "refused": 1}
    assert not client.resend(time.time())
    assert outcomes == {"sent": 18, "refused": 2}


def bodies(server: HTTPServer) -> list[list[dict[str, Any]]]:
    """What was posted. The server is one for all tests: a late request of another one may be in its log."""
    return [json.loads(request.data) for request, _ in server.log if request.path == "/api/v2/alerts"]


@pytest.fixture
def recorded(httpserver: HTTPServer, session: requests.Session, outcomes: Counter[str]) -> AlertmanagerClient:
    httpserver.expect_request("/api/v2/alerts", method="POST").respond_with_json({})
    return client_of(httpserver.url_for(""), session, outcomes)


def test_the_payload_of_a_decision_is_the_golden_one(
    recorded: AlertmanagerClient, httpserver: HTTPServer, golden: Callable[[str, str], None]
) -> None:
    decision = five_gpu_decision()
    recorded.push(decision.firing[:-1], [decision.firing[-1].ended(Resolution.CLEARED)], NOW_S)
    golden("alerts.json", json.dumps(bodies(httpserver)[0], indent=1, sort_keys=True) + "\n")


def test_a_large_set_goes_out_in_batches_of_a_thousand(recorded: AlertmanagerClient, httpserver: HTTPServer) -> None:
    assert recorded.push([alert(f"GPU-{i}") for i in range(2500)], [], NOW_S)
    assert [len(body) for body in bodies(httpserver)] == [1000, 1000, 500]


def test_a_resolved_alert_is_resent_for_five_minutes(recorded: AlertmanagerClient, httpserver: HTTPServer) -> None:
    recorded.push([alert("GPU-1")], [], NOW_S)
    recorded.push([], [alert("GPU-1")], NOW_S + 60)
    for later_s in (120, 360, 361):
        recorded.resend(NOW_S + later_s)
    sent = bodies(httpserver)
    assert len(sent) == 4
    assert {body[0]["endsAt"] for body in sent[1:]} == {"2026-09-21T14:14:20.000Z"}


def test_the_firing_set_is_resent_unchanged_for_as_long_as_its_caller_asks(
    recorded: AlertmanagerClient, httpserver: HTTPServer
) -> None:
    recorded.push([alert("GPU-1")], [], NOW_S)
    recorded.resend(NOW_S + 7 * HOUR_S)
    first, last = (body[0] for body in bodies(httpserver))
    assert first.pop("endsAt") == "2026-09-21T14:17:20.000Z"
    assert last.pop("endsAt") == "2026-09-21T21:17:20.000Z"
    assert first == last


def test_an_alert_that_comes_back_starts_anew(recorded: AlertmanagerClient, httpserver: HTTPServer) -> None:
    recorded.push([alert("GPU-1")], [], NOW_S)
    recorded.push([], [alert("GPU-1")], NOW_S + 60)
    recorded.push([alert("GPU-1")], [], NOW_S + 120)
    (again,) = bodies(httpserver)[-1]
    assert again["startsAt"] == "2026-09-21T14:15:20.000Z"


def test_a_server_error_is_counted_and_the_next_resend_succeeds(
    httpserver: HTTPServer, session: requests.Session, outcomes: Counter[str]
) -> None:
    httpserver.expect_ordered_request("/api/v2/alerts").respond_with_data("busy", status=503)
    httpserver.expect_ordered_request("/api/v2/alerts").respond_with_json({})
    client = client_of(httpserver.url_for(""), session, outcomes)
    assert not client.push([alert("GPU-1")], [], NOW_S)
    assert client.resend(NOW_S + 60)
    assert outcomes == {"failed": 1, "sent": 1}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 304, 404, 500])
def test_only_a_2xx_of_the_address_itself_is_success(
    httpserver: HTTPServer, session: requests.Session, outcomes: Counter[str], status: int
) -> None:
    away = {"Location": httpserver.url_for("/login")}
    httpserver.expect_request("/api/v2/alerts").respond_with_data("", status=status, headers=away)
    httpserver.expect_request("/login").respond_with_data("please sign in")
    with structlog.testing.capture_logs() as logs:
        assert not client_of(httpserver.url_for(""), session, outcomes).push([alert("GPU-1")], [], NOW_S)
    assert outcomes == {"failed": 1}
    assert f"HTTP {status}, redirected to http" in logs[0]["error"]
    assert [request.path for request, _ in httpserver.log] == ["/api/v2/alerts"]


@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_without_end_is_not_read_to_its_end(
    httpserver: HTTPServer, session: requests.Session, outcomes: Counter[str], status: int
) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"no " * 10_000
            time.sleep(0.1)

    httpserver.expect_request("/api/v2/alerts").respond_with_handler(lambda _: Response(endless(), status))
    began = time.monotonic()
    with structlog.testing.capture_logs() as logs:
        client_of(httpserver.url_for(""), session, outcomes).push([alert("GPU-1")], [], NOW_S)
    assert time.monotonic() - began < 3
    assert outcomes == {"sent" if status == 200 else "refused": 1}
    assert all(len(line["answer"]) <= 500 for line in logs)


def test_nobody_listening_is_a_failure_and_no_exception(session: requests.Session, outcomes: Counter[str]) -> None:
    client = client_of(f"http://127.0.0.1:{servers.free_port()}", session, outcomes)
    assert not client.push([alert("GPU-1")], [], NOW_S)
    assert outcomes == {"failed": 1}


def test_the_search_for_bad_alerts_is_bounded(
    httpserver: HTTPServer, session: requests.Session, outcomes: Counter[str]
) -> None:
    def refuse(_request: Request) -> Response:
        return Response("all bad", 400)

    httpserver.expect_request("/api/v2/alerts").respond_with_handler(refuse)
    client = client_of(httpserver.url_for(""), session, outcomes)
    assert not client.push([alert(f"GPU-{i}") for i in range(1000)], [], NOW_S)
    assert outcomes == {"refused": 1000}
    assert len(httpserver.log) <= 70


def test_a_client_without_an_address_names_the_setting(session: requests.Session) -> None:
    with pytest.raises(ValueError, match=r"alertmanager\.url"):
        AlertmanagerClient(AlertmanagerSettings(), session, 60.0)
