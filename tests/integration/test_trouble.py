"""Trouble with the source: a clear message (what, where, cure), nothing stored is lost, and no score is invented."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from pytest_httpserver import HTTPServer

from healthsvc.config import Settings
from healthsvc.engine.build import Replay
from tests import servers
from tests.integration.drill import STEP_S, replay, settings_of
from tests.integration.running import Inside, eventually, inside, run_program
from tests.integration.surroundings import DAY_S, ends_today, scrape_config, standing, started


def assert_no_score(service: Inside) -> None:
    """Self-metrics, and not a single word about any GPU."""
    page = service.metrics()
    assert "healthsvc_build_info" in page
    assert "healthsvc_gpu_" not in page
    assert "healthsvc_domain_" not in page


def live(tmp_path: Path, url: str) -> Settings:
    """Settings of a service that reads `url` as time goes by."""
    return settings_of(tmp_path, prometheus={"url": url}, cycle={"step_s": 10, "ingest_delay_s": 0})


def test_a_server_that_is_down_at_the_start_is_named_and_waited_for(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{servers.free_port()}"
    with inside(live(tmp_path, url)) as service:
        complaint = eventually("a complaint", lambda: "prometheus.url" in service.unready() and service.unready())
        assert url in complaint
        assert "Start the server or correct prometheus.url" in complaint
        assert service.get("/-/healthy").status_code == 200
        assert_no_score(service)
        assert 'healthsvc_failures_total{stage="read"} 1.0' in service.metrics()
        answer = service.get("/api/v1/gpus")
        assert answer.status_code == 503
        assert url in answer.json()["detail"]
        assert service.alerts() == []


def test_a_replay_from_a_server_that_is_down_waits_for_it(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{servers.free_port()}"
    with inside(settings_of(tmp_path, prometheus={"url": url}), replay()) as service:
        complaint = eventually("a complaint", lambda: "prometheus.url" in service.unready() and service.unready())
        assert url in complaint


REFUSALS = {
    "unauthorized": (401, "authentication required", "Set prometheus.bearer_token_file, or prometheus.basic_user"),
    "unavailable": (503, "starting up", "Wait until the server is ready"),
    "login page": (200, "<html><body>Sign in</body></html>", "Set prometheus.url to the API itself"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_server_that_refuses_is_quoted_with_the_cure(kind: str, tmp_path: Path, httpserver: HTTPServer) -> None:
    status, body, cure = REFUSALS[kind]
    httpserver.expect_request("/prom/api/v1/query").respond_with_data(body, status)
    with structlog.testing.capture_logs() as logs, inside(live(tmp_path, httpserver.url_for("/prom"))) as service:
        complaint = eventually("a complaint", lambda: cure in service.unready() and service.unready())
        assert httpserver.url_for("/prom") in complaint
        assert_no_score(service)
    entry = next(line for line in logs if line["event"] == "cannot begin yet")
    assert entry["cure"].startswith(cure)
    assert ("HTML" if status == 200 else str(status)) in entry["what"]


@pytest.mark.servers
def test_a_server_without_gpu_history_is_said_so(tmp_path: Path, prometheus_server: servers.Server) -> None:
    with inside(live(tmp_path, prometheus_server.url)) as service:
        complaint = eventually("a complaint", lambda: "no GPU" in service.unready() and service.unready())
        assert "prometheus.selector" in complaint
        assert service.get("/api/v1/gpus").json()["items"] == []
        assert "healthsvc_gpu_band{" not in service.metrics()
        assert service.alerts() == []


def exporter_page(gpus: range) -> str:
    """What a dcgm-exporter shows of some GPUs of one node."""
    values = {"DCGM_FI_DEV_GPU_TEMP": 60, "DCGM_FI_DEV_POWER_USAGE": 500.0, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 0}
    return "".join(
        f'{metric}{{gpu="{gpu}",UUID="GPU-live-{gpu}",Hostname="node-live"}} {value}\n'
        for metric, value in values.items()
        for gpu in gpus
    )


@pytest.mark.servers
@pytest.mark.timeout(120)
def test_a_fleet_that_appears_while_the_service_runs_is_judged_within_a_cycle_or_two(
    tmp_path: Path, httpserver: HTTPServer
) -> None:
    if reason := servers.missing("prometheus"):
        pytest.skip(reason)
    httpserver.expect_request("/metrics").respond_with_data("", content_type="text/plain")
    config = scrape_config(f"{httpserver.host}:{httpserver.port}")
    with (
        servers.prometheus(tmp_path / "prometheus", config=config) as prometheus,
        inside(live(tmp_path, prometheus.url)) as service,
    ):
        eventually("a complaint", lambda: "no GPU" in service.unready())
        for command in ("score", "train"):  # which end: silence must not look like health to a script
            ended = run_program(command, "--prometheus-url", prometheus.url, folder=tmp_path)
            assert (ended.returncode, ended.stdout) == (2, "")
            assert "no GPU in its history; check prometheus.url and prometheus.selector" in ended.stderr
        httpserver.clear()
        httpserver.expect_request("/metrics").respond_with_data(exporter_page(range(4)), content_type="text/plain")
        eventually("a report", lambda: service.metrics().count("healthsvc_gpu_band{") == 4, 40)
        assert service.unready() == ""
        assert {gpu["band"] for gpu in service.get("/api/v1/gpus").json()["items"]} == {"healthy"}
        assert service.alerts() == []


@pytest.mark.servers
def test_a_start_without_the_source_keeps_the_alerts_of_the_last_run(
    tmp_path: Path, recording: Path, alertmanager_server: servers.Server
) -> None:
    alertmanager = {"url": alertmanager_server.url, "resend_s": 5}
    with inside(settings_of(tmp_path, recorded={"directory": recording}, alertmanager=alertmanager), replay()):
        before = eventually("two alerts", lambda: len(a := standing(alertmanager_server.url)) == 2 and a)
    down = {"url": f"http://127.0.0.1:{servers.free_port()}"}
    with inside(settings_of(tmp_path, prometheus=down, alertmanager=alertmanager)) as service:
        eventually("a resend", lambda: updated(alertmanager_server.url) > max(a["updatedAt"] for a in before))
        assert started(standing(alertmanager_server.url)) == started(before)
        eventually("a complaint", lambda: "no connection" in service.unready())
        assert_no_score(service)


def updated(url: str) -> str:
    """When the alert that was sent longest ago was sent."""
    return str(min(alert["updatedAt"] for alert in standing(url)))


@pytest.mark.servers
@pytest.mark.timeout(120)
def test_a_server_that_dies_leaves_the_last_report_and_every_alert_and_may_come_back(
    tmp_path: Path, stored: Path, alertmanager_server: servers.Server
) -> None:
    port = servers.free_port()
    settings = settings_of(
        tmp_path,
        prometheus={"url": f"http://127.0.0.1:{port}"},
        alertmanager={"url": alertmanager_server.url, "resend_s": 5},
    )
    with_server = servers.prometheus(stored, port=port)
    with_server.__enter__()
    try:
        with inside(settings, replay()) as service:
            eventually("the first report", lambda: "healthsvc_gpu_band{" in service.metrics())
            before = eventually("two alerts", lambda: len(a := standing(alertmanager_server.url)) == 2 and a)
            with_server.__exit__(None, None, None)

            def down() -> list[dict[str, Any]]:
                return standing(alertmanager_server.url, alertname="HealthsvcSourceDown")

            (alert,) = eventually("an alert on the source", down)
            assert alert["labels"]["source"] == "prometheus"
            assert f"127.0.0.1:{port}" in alert["annotations"]["description"]
            assert_no_score(service)
            complaint = service.unready()
            assert "cycles missed" in complaint
            assert f"127.0.0.1:{port}" in complaint
            last = service.as_of()
            assert len(service.get("/api/v1/gpus").json()["items"]) == 8
            assert len(service.alerts()) == 3
            assert started(standing(alertmanager_server.url)) >= started(before)

            with servers.prometheus(stored, port=port):
                eventually("the families", lambda: "healthsvc_gpu_band{" in service.metrics())
                eventually("the source's all-clear", lambda: not down())
                assert service.as_of() > last
                assert started(standing(alertmanager_server.url)) == started(before)
                assert service.unready() == ""
    finally:
        with_server.__exit__(None, None, None)


def bare_history(start_s: float, end_s: float) -> Iterator[servers.Series]:
    """Four GPUs that report all, and one on a node of its own of which only XIDs are known."""
    times = [start_s + k * STEP_S for k in range(int((end_s - start_s) / STEP_S) + 1)]
    for gpu in range(4):
        labels = {"UUID": f"GPU-full-{gpu}", "gpu": str(gpu), "Hostname": "node-full"}
        for metric, value in (
            ("DCGM_FI_DEV_GPU_TEMP", 60.0),
            ("DCGM_FI_DEV_POWER_USAGE", 500.0),
            ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 0.0),
        ):
            yield servers.Series(metric, labels, [(at, value) for at in times])
    bare = {"UUID": "GPU-bare", "gpu": "0", "Hostname": "node-bare"}
    yield servers.Series("DCGM_FI_DEV_XID_ERRORS", bare, [(at, 0.0) for at in times])


@pytest.mark.servers
def test_a_gpu_without_any_required_signal_is_unknown_and_has_no_risk(tmp_path: Path) -> None:
    if reason := servers.missing("prometheus", "promtool"):
        pytest.skip(reason)
    end_s = ends_today(0)
    with servers.prometheus(tmp_path / "prometheus", bare_history(end_s - DAY_S, end_s)) as prometheus:
        settings = settings_of(tmp_path, prometheus={"url": prometheus.url})
        with inside(settings, Replay(end_s - STEP_S, 1.0)) as service:
            eventually("the first report", lambda: "healthsvc_gpu_band{" in service.metrics())
            gpu = service.get("/api/v1/gpus/GPU-bare").json()
            assert gpu["band"] == "unknown"
            assert gpu["coverage"] == 0
            assert set(gpu["risk"].values()) == {None}
            assert "nothing observed for thermal, memory, device loss" in gpu["reasons"][0]
            assert "enable the missing fields" in gpu["action"]
            of_it = [line for line in service.metrics().splitlines() if 'UUID="GPU-bare"' in line]
            assert {line.split("{")[0] for line in of_it} == {
                "healthsvc_gpu_info",
                "healthsvc_gpu_band",
                "healthsvc_gpu_coverage_ratio",
            }
            assert service.get("/api/v1/gpus/GPU-full-0").json()["band"] == "healthy"
