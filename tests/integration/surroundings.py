"""What stands around the service in these tests: a small history, and someone who is paged."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests

from healthsvc.simulator import Scenario, write_recording

DAY_S = 86_400
TODAY_S = time.time() // DAY_S * DAY_S  # once for all: a run of the tests that passes midnight stays in its day
# The flag is hidden and must come first: without it the whole text is parsed once for every two hours of history.
BACKFILL = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=500h", "openmetrics"]


def ends_today(days: float) -> float:
    """The start of a run of so many days whose last day was yesterday (UTC) when the tests began."""
    return TODAY_S - days * DAY_S


def rfc3339(time_s: float) -> str:
    """Unix seconds as people write them."""
    return datetime.fromtimestamp(time_s, UTC).isoformat()


def simulate(scenario: Scenario, folder: Path, seed: int = 1) -> Path:
    """The scenario as a recording, folder/recording, and as Prometheus blocks, folder/prometheus/data."""
    text, data = folder / "history.om", folder / "prometheus" / "data"
    recording = write_recording(scenario, folder / "recording", seed, ends_today(scenario.days), text)
    data.mkdir(parents=True)
    made = subprocess.run([*BACKFILL, str(text), str(data)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    text.unlink()
    return recording


def scrape_config(target: str) -> str:
    """Prometheus' configuration that scrapes this address every second."""
    job = {"job_name": "drill", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    return json.dumps({"scrape_configs": [job]})


@dataclass
class Sink:
    """A webhook receiver: every alert of every notification, in the order in which they came."""

    alerts: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def told(self, status: str, **labels: str) -> bool:
        """Whether an alert with these labels has come with this status (firing, resolved)."""
        return any(a["status"] == status and labels.items() <= a["labels"].items() for a in list(self.alerts))

    def config(self) -> str:
        """Alertmanager's configuration that notifies this sink of each alert, at once."""
        route = {
            "receiver": "sink",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
        }
        receiver = {"name": "sink", "webhook_configs": [{"url": self.url, "send_resolved": True}]}
        return json.dumps({"route": route, "receivers": [receiver]})


@contextmanager
def webhook_sink() -> Iterator[Sink]:
    """A sink on a free loopback port."""
    sink = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sink.alerts += json.loads(body)["alerts"]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        sink.url = f"http://127.0.0.1:{server.server_address[1]}/"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()


def standing(url: str, **labels: str) -> list[dict[str, Any]]:
    """Alerts in Alertmanager with these labels."""
    found = requests.get(f"{url}/api/v2/alerts", timeout=5).json()
    return [alert for alert in found if labels.items() <= alert["labels"].items()]


def started(alerts: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Which alerts these are, and since when they stand."""
    return {(json.dumps(alert["labels"], sort_keys=True), alert["startsAt"]) for alert in alerts}


def query(url: str, promql: str) -> list[dict[str, Any]]:
    """What Prometheus answers now: [{"metric": labels, "value": [time, text]}]."""
    answer = requests.get(f"{url}/api/v1/query", params={"query": promql}, timeout=10).json()
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found
