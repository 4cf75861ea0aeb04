"""From a simulated history in a real Prometheus to pages in a real Alertmanager, and back by a scrape: nothing is
mocked."""

import csv
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthsvc.simulator import load_scenario
from tests import servers
from tests.integration.running import Program, eventually, program
from tests.integration.surroundings import (
    DAY_S,
    Sink,
    ends_today,
    query,
    rfc3339,
    scrape_config,
    simulate,
    standing,
    webhook_sink,
)

SCENARIO = Path(__file__).parents[2] / "data" / "fixtures" / "end_to_end.toml"
STEP_S = 300  # the fixture's own 60 s would make 3 GB of text
SERVED_FROM_DAY = 19.0
REPLAY_WITHIN_S = 240.0


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Says how long a part of the path took (pytest -s shows it)."""
    began_s = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - began_s:.1f} s")  # noqa: T201


def victims(recording: Path) -> tuple[str, str]:
    """UUIDs of the GPU whose cooling path ages and of the one whose memory wears."""
    faults = {fault.kind: fault for fault in load_scenario(SCENARIO).fault}
    with (recording / "gpus.csv").open(newline="") as file:
        uuids = [row["device_id"] for row in csv.DictReader(file)]
    aged, worn = (int(faults[kind].target) for kind in ("tim_drift", "hbm_wear"))
    return uuids[aged], uuids[worn]


@pytest.mark.servers
@pytest.mark.timeout(420)
def test_a_simulated_history_becomes_forecasts_metrics_and_pages(tmp_path: Path) -> None:
    if reason := servers.missing("prometheus", "promtool", "prometheus-alertmanager"):
        pytest.skip(reason)
    scenario = load_scenario(SCENARIO).model_copy(update={"step_s": STEP_S})
    start_s = ends_today(scenario.days)
    end_s = start_s + scenario.days * DAY_S - STEP_S
    with phase("simulate and backfill"):
        recording = simulate(scenario, tmp_path)
    aged, worn = victims(recording)
    port = servers.free_port()
    with (
        webhook_sink() as sink,
        servers.alertmanager(tmp_path / "alertmanager", sink.config()) as alertmanager,
        servers.prometheus(tmp_path / "prometheus", config=scrape_config(f"127.0.0.1:{port}")) as prometheus,
        program(
            tmp_path,
            ["--replay-from", rfc3339(start_s + SERVED_FROM_DAY * DAY_S), "--replay-speed", "100000"],
            port,
            prometheus_url=prometheus.url,
            alertmanager_url=alertmanager.url,
            alertmanager_resend_s=5,
            cycle_step_s=STEP_S,
            history_topology_file=recording / "topology.csv",
        ) as service,
    ):
        with phase("read 19 days, train, first report"):
            eventually("the first report", lambda: service.get("/-/ready").ok, 90)
        with phase("replay up to the loop's failure"):
            eventually("a page for the loop", lambda: sink.told("firing", domain="loop-1"), REPLAY_WITHIN_S)
            incident = standing(alertmanager.url, domain="loop-1")[0]
            assert incident["labels"]["alertname"] == "CoolingIncident"
            assert "8 GPUs of cooling loop loop-1" in incident["annotations"]["summary"]
        with phase("replay up to its repair"):
            eventually("the loop's all-clear", lambda: sink.told("resolved", domain="loop-1"), REPLAY_WITHIN_S)
        with phase("replay to the end"):
            eventually("the end", lambda: report_s(service) >= end_s, REPLAY_WITHIN_S, every_s=0.5)
        assert_gpu_alerts(alertmanager.url, sink, aged, worn)
        with phase("ask the Prometheus that scraped it"):
            assert_metrics(prometheus.url, aged, worn)
        took = service.get("/metrics").text.splitlines()
        print(*(line for line in took if "cycle_duration_seconds_sum" in line), sep="\n")  # noqa: T201


def report_s(service: Program) -> float:
    """Data time of the newest report."""
    lines = service.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("healthsvc_report_timestamp_seconds ")))


def assert_gpu_alerts(alertmanager: str, sink: Sink, aged: str, worn: str) -> None:
    """The GPU that ages and the one that wears have their alerts, pages for them went out, and nobody else has any."""
    by_class = {(a["labels"].get("class"), a["labels"].get("UUID")): a["labels"] for a in standing(alertmanager)}
    assert by_class.keys() == {("thermal", aged), ("memory", worn)}
    assert by_class["thermal", aged]["alertname"] in ("GpuFailurePredicted", "GpuDegrading")
    assert by_class["memory", worn]["alertname"] == "GpuFailurePredicted"
    assert sink.told("firing", UUID=aged, **{"class": "thermal"})
    assert sink.told("firing", UUID=worn, **{"class": "memory"})
    assert not sink.told("firing", hostname="node-001")  # its GPUs throttled, but under the loop's one incident


def assert_metrics(prometheus: str, aged: str, worn: str) -> None:
    """PromQL over what the service exposed, now and while the loop was failing."""
    last = f"sum(healthsvc_report_timestamp_seconds) and on() (count(healthsvc_gpu_band{{UUID='{worn}'}} >= 1))"
    eventually("a scrape of the end", lambda: query(prometheus, last), 15)
    bands = {
        s["metric"]["hostname"]: float(s["value"][1])
        for s in query(prometheus, "max by (hostname) (healthsvc_gpu_band)")
    }
    assert bands["node-001"] == 0  # the loop is repaired
    assert bands["node-002"] >= 2
    joined = query(
        prometheus,
        'healthsvc_gpu_risk_ratio{horizon="30d"}'
        " * on (UUID) group_left (cooling_loop, modelName) healthsvc_gpu_info > 0.5",
    )
    assert {(s["metric"]["UUID"], s["metric"]["cooling_loop"]) for s in joined} == {(aged, "loop-2"), (worn, "loop-2")}
    nodes = query(  # each is a loop of its own here, and one place is judged once, by its narrowest name
        prometheus,
        'max by (domain) (max_over_time(healthsvc_domain_throttling_probability_ratio{layer="node",'
        'horizon="2h"}[10m]))',
    )
    peaks = {s["metric"]["domain"]: float(s["value"][1]) for s in nodes}
    assert peaks["node-001"] > 0.5 > peaks.get("node-002", 0.0)  # a quiet one has no series
    fleet = query(prometheus, "sum(healthsvc_fleet_gpus)")
    assert [float(s["value"][1]) for s in fleet] == [16.0]
