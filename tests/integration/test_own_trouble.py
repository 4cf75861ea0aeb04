"""Trouble of the service's own: damaged files, a full disk, a kill, wrong settings, an error of its own making."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest
import structlog
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.engine.service import Service
from healthsvc.fleet import HORIZONS_S, Arrays, FleetHistory, Forecast
from healthsvc.forecasters.device_loss import DeviceLoss
from healthsvc.store import StateLock
from tests import servers
from tests.integration.drill import FROM_S, START_S, STEP_S, replay, settings_of
from tests.integration.running import eventually, inside, program, run_program
from tests.integration.surroundings import DAY_S, rfc3339, standing, started

STOPS_WITHIN_S = 5.0


def end_of_column(path: Path, name: str) -> int:
    """Where the bytes of one column end in a Parquet file."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == name)
    return int(chunk.data_page_offset + chunk.total_compressed_size)


def test_a_damaged_day_is_set_aside_and_read_again(tmp_path: Path, recording: Path) -> None:
    settings = settings_of(tmp_path, recorded={"directory": recording})
    with inside(settings, replay()) as service:
        eventually("the first report", lambda: not service.unready() and service.as_of())
    first, second = sorted((tmp_path / "state" / "ledger").glob("*.parquet"))
    whole = {path: path.read_bytes() for path in (first, second)}
    end = end_of_column(first, "power_q95_watts")
    first.write_bytes(whole[first][: end - 4] + b"rot!" + whole[first][end:])  # seen only once that column is read
    second.write_bytes(whole[second][:1000])  # cut short
    with structlog.testing.capture_logs() as logs, inside(settings, replay()) as service:
        eventually("the first report", lambda: not service.unready() and service.as_of())
        kept = service.service.ledger
        first_day = int(START_S // DAY_S)
        assert kept.missing_days(first_day, first_day + 1) == []
    for path in (first, second):
        assert path.with_name(f"{path.name}.corrupt-1").exists()
        assert len(path.read_bytes()) > 1000
    told = [line for line in logs if line["event"] == "damaged file set aside"]
    assert {line["file"] for line in told} == {str(first), str(second)}
    assert all("fetched again" in line["cure"] for line in told)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=False)


def fill(disk: Path) -> Path:
    """A file that takes all the space there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 1):
            try:
                while True:
                    file.write(b"\x00" * size)
            except OSError:
                continue
    return filler


def test_a_full_disk_stops_no_cycle_and_loses_no_day(small_disk: Path, recording: Path) -> None:
    settings = settings_of(small_disk, recorded={"directory": recording})
    days = small_disk / "state" / "ledger"
    with structlog.testing.capture_logs() as logs, inside(settings, replay(1.95, 0.05)) as service:
        eventually("the first report", lambda: not service.unready() and service.as_of())
        (old,) = days.glob("*.parquet")
        before = old.read_bytes()
        filler = fill(small_disk)

        def said(event: str) -> list[Any]:
            return [line for line in logs if line["event"].startswith(event)]

        entry = eventually("a message", lambda: said("day not written"))[0]
        assert "No space left on device" in entry["error"]
        assert "Free space on its volume" in entry["error"]
        assert service.unready() == ""
        assert old.read_bytes() == before
        assert service.failures("ledger") >= 1
        filler.unlink()
        eventually("the day", lambda: len(list(days.glob("*.parquet"))) == 2)
        assert service.unready() == ""


def test_a_second_service_on_one_state_directory_is_turned_away(tmp_path: Path, recording: Path) -> None:
    with StateLock(tmp_path / "state"):
        second = run_program(
            "serve",
            "--recorded",
            str(recording),
            "--replay-from",
            "2026-01-05",
            folder=tmp_path,
            store_directory=tmp_path / "state",
            server_port=servers.free_port(),
        )
    assert second.returncode == 2
    assert str(tmp_path / "state") in second.stderr
    assert f"pid {os.getpid()}" in second.stderr
    assert "store.directory" in second.stderr
    assert "Traceback" not in second.stderr


def test_every_wrong_setting_is_named_with_its_value_and_the_cure(tmp_path: Path) -> None:
    ended = run_program(
        "serve",
        folder=tmp_path,
        cycle_step_s=7,
        cycle_window_s=60,
        history_train_days=1,
        metrics_detail="some",
        prometheus_url="prometheus:9090",
        server_port=70_000,
        server_prot=1,
    )
    assert ended.returncode == 2
    lines = {line.split(" = ")[0]: line for line in ended.stderr.splitlines()}
    for setting, value, cure in (
        ("cycle.step_s", "'7'", "set it >= 10"),
        ("cycle.window_s", "'60'", "set it >= 1800"),
        ("history.train_days", "'1'", "set it >= 7"),
        ("metrics.detail", "'some'", "'watch' or 'all'"),
        ("prometheus.url", "'prometheus:9090'", "'http' or 'https'"),
        ("server.port", "'70000'", "set it <= 65535"),
        ("server.prot", "'1'", "no such setting"),
    ):
        assert value in lines[setting]
        assert cure in lines[setting]
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_program("serve", folder=tmp_path, server_port=port, prometheus_url="http://127.0.0.1:9")
    assert ended.returncode == 2
    assert f"server.port = {port}" in ended.stderr
    assert "--port" in ended.stderr


@pytest.mark.servers
@pytest.mark.timeout(120)
def test_a_killed_service_goes_on_with_its_alerts_and_stops_cleanly_when_asked(
    tmp_path: Path, recording: Path, alertmanager_server: servers.Server
) -> None:
    def serve(at_s: float) -> Any:
        arguments = ["--recorded", str(recording), "--replay-from", rfc3339(at_s), "--replay-speed", "600"]
        url = alertmanager_server.url
        return program(tmp_path, arguments, alertmanager_url=url, alertmanager_resend_s=5, cycle_step_s=STEP_S)

    with serve(FROM_S) as first:
        before = eventually("two alerts", lambda: len(a := standing(alertmanager_server.url)) == 2 and a)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(5)
    assert started(standing(alertmanager_server.url)) == started(before)
    with serve(FROM_S + DAY_S / 4) as second:
        alerts = eventually("the second run", lambda: second.json("/api/v1/alerts")["as_of"] and second)
        assert len(alerts.json("/api/v1/alerts")["firing"]) == 2
        eventually(
            "a resend",
            lambda: all(
                a["updatedAt"] > b["updatedAt"] for a, b in zip(standing(alertmanager_server.url), before, strict=True)
            ),
        )
        assert started(standing(alertmanager_server.url)) == started(before)
        began_s = time.monotonic()
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(STOPS_WITHIN_S) == 0
        assert time.monotonic() - began_s < STOPS_WITHIN_S
    assert "Traceback" not in second.log.read_text()
    assert started(standing(alertmanager_server.url)) == started(before)


def test_a_read_that_hangs_does_not_hold_up_the_end(tmp_path: Path, httpserver: HTTPServer) -> None:
    asked, released = threading.Event(), threading.Event()

    def answer(request: Request) -> Response:
        """One GPU that there is now, and not a single sample."""
        if request.path.endswith("/values"):
            return Response(json.dumps({"status": "success", "data": ["DCGM_FI_DEV_GPU_TEMP"]}))
        if request.form["query"].endswith("s]"):
            asked.set()
            released.wait(60)
        point = {"metric": {"UUID": "GPU-1", "Hostname": "node-1"}, "value": [time.time(), str(time.time())]}
        return Response(json.dumps({"status": "success", "data": {"resultType": "vector", "result": [point]}}))

    httpserver.expect_request(re.compile("/api/v1/.*")).respond_with_handler(answer)
    try:
        with program(tmp_path, ["--prometheus-url", httpserver.url_for("")]) as service:
            assert asked.wait(30)
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(2 * STOPS_WITHIN_S) == 0
    finally:
        released.set()


@dataclass(frozen=True)
class BreaksAt(DeviceLoss):
    """A forecaster with a mistake that shows from one moment of data time on."""

    name: ClassVar[str] = "device_loss"
    at_s: float = 0.0

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        if history.now_s >= self.at_s:
            raise ZeroDivisionError("a mistake of ours")
        return super().forecast(state, history, horizons_s)


@dataclass(frozen=True)
class Unteachable(DeviceLoss):
    """A forecaster that cannot learn."""

    name: ClassVar[str] = "device_loss"

    def fit(self, history: FleetHistory) -> Arrays:
        raise ZeroDivisionError("a mistake of ours")


def test_a_first_training_that_fails_is_said_and_no_score_is_invented(tmp_path: Path, recording: Path) -> None:
    settings = settings_of(tmp_path, recorded={"directory": recording})

    def break_now(service: Service) -> None:
        scorer = service.training.scorer
        broken = tuple(Unteachable(**vars(f)) if isinstance(f, DeviceLoss) else f for f in scorer.forecasters)
        service.training.scorer = replace(scorer, forecasters=broken)

    with inside(settings, replay(), break_now) as service:
        complaint = eventually("a complaint", lambda: "training failed" in service.unready() and service.unready())
        assert "nothing to score with; the log has the traceback" in complaint
        assert "healthsvc_gpu_" not in service.metrics()
        assert service.failures("train") >= 1


def test_an_error_in_a_cycle_keeps_the_last_report_and_is_said(tmp_path: Path, recording: Path) -> None:
    settings = settings_of(tmp_path, recorded={"directory": recording})

    def break_soon(service: Service) -> None:
        forecasters = service.training.scorer.forecasters
        at_s = FROM_S + 3 * STEP_S
        broken = tuple(BreaksAt(**vars(f), at_s=at_s) if isinstance(f, DeviceLoss) else f for f in forecasters)
        service.training.scorer = replace(service.training.scorer, forecasters=broken)

    with structlog.testing.capture_logs() as logs, inside(settings, replay(), break_soon) as service:
        eventually("a complaint", lambda: "cycles missed" in service.unready())
        complaint = service.unready()
        assert "a mistake of ours" in complaint
        assert "the log has the traceback" in complaint
        assert service.as_of().startswith(rfc3339(FROM_S + 2 * STEP_S)[:19])
        assert len(service.alerts()) == 2
        assert all(alert["alertname"] != "HealthsvcSourceDown" for alert in service.alerts())
        assert "healthsvc_gpu_" not in service.metrics()
        assert service.failures("cycle") >= 1
    assert any(line["event"] == "cycle failed" and line.get("exc_info") for line in logs)
