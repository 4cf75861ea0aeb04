"""An exporter upgraded under a running server leaves no step: classic names, then new names and units, then pods.

A real Prometheus and a real VictoriaMetrics scrape the same small exporter every second for a minute.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from healthsvc.config import PrometheusSettings
from healthsvc.fleet import FleetWindow, Signal
from healthsvc.telemetry.framing.grid import frame, uniform_times
from healthsvc.telemetry.prometheus import PrometheusSource
from healthsvc.telemetry.source import RawGrid
from tests import servers
from tests.integration.running import eventually

pytestmark = [pytest.mark.servers, pytest.mark.drill]

PHASE_S, STEP_S = 20.0, 5.0
POWER_WATTS, CLOCK_HERTZ, UTILIZATION, THROTTLED = 650.0, 1.98e9, 0.97, 0.1
UUIDS = tuple(f"GPU-{n}aad3a52-9ba4-43f4-8ba7-2fcf3e3c6a4c" for n in range(2))

CLASSIC = {  # canonical signal -> name, and how many of its unit are one of ours
    Signal.GPU_TEMPERATURE: ("DCGM_FI_DEV_GPU_TEMP", 1.0),
    Signal.POWER: ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    Signal.ENERGY: ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3),
    Signal.SM_CLOCK: ("DCGM_FI_DEV_SM_CLOCK", 1e-6),
    Signal.GPU_UTILIZATION: ("DCGM_FI_DEV_GPU_UTIL", 1e2),
    Signal.THERMAL_THROTTLE: ("DCGM_FI_DEV_THERMAL_VIOLATION", 1e9),
    Signal.SBE_VOLATILE: ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1.0),
}
RENAMED = {
    Signal.GPU_TEMPERATURE: ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1.0),
    Signal.POWER: ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1.0),
    Signal.ENERGY: ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1.0),
    Signal.SM_CLOCK: ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.0),
    Signal.GPU_UTILIZATION: ("DCGM_FI_DEV_GPU_UTIL_RATIO", 1.0),
    Signal.THERMAL_THROTTLE: ("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", 1.0),
    Signal.SBE_VOLATILE: ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1.0),
}


@dataclass
class Exporter:
    """The truth, as it would be shown at this moment. phase 0: classic, 1: renamed, 2: renamed and with pods."""

    phase: int = 0
    began_s: float = field(default_factory=time.time)
    scraped_s: dict[str, list[float]] = field(default_factory=dict)  # scraper -> when it came

    def latest_s(self, began_s: float) -> float:
        """The longest time from one scrape to the next of the same server: on a busy machine some are late."""
        return max(
            float(np.diff([began_s, *(t for t in times if t > began_s)]).max()) for times in self.scraped_s.values()
        )

    def text(self) -> str:
        return "".join(self._lines(time.time() - self.began_s))

    def _lines(self, age_s: float) -> Iterator[str]:
        truth = {
            Signal.GPU_TEMPERATURE: 55.0 + int(age_s) % 2,
            Signal.POWER: POWER_WATTS,
            Signal.ENERGY: 1e9 + POWER_WATTS * age_s,
            Signal.SM_CLOCK: CLOCK_HERTZ,
            Signal.GPU_UTILIZATION: UTILIZATION,
            Signal.THERMAL_THROTTLE: 3600.0 + THROTTLED * age_s,
            Signal.SBE_VOLATILE: float(int(age_s)),
        }
        for signal, (name, scale) in (RENAMED if self.phase else CLASSIC).items():
            yield f"# TYPE {name} gauge\n"
            for number, uuid in enumerate(UUIDS):
                for pod in self._pods(number):
                    yield f"{name}{{{self._labels(number, uuid, pod)}}} {truth[signal] * scale!r}\n"

    def _pods(self, number: int) -> tuple[str, ...]:
        """Two pods share the first GPU: its every reading comes twice."""
        return ("train-0", "train-1") if self.phase == 2 and number == 0 else ("",)

    def _labels(self, number: int, uuid: str, pod: str) -> str:
        host = "hostname" if self.phase else "Hostname"
        driver = "DCGM_FI_SYSTEM_DRIVER_VERSION" if self.phase else "DCGM_FI_DRIVER_VERSION"
        labels = {"gpu": number, "UUID": uuid, "device": f"nvidia{number}", "modelName": "NVIDIA H100 80GB HBM3"}
        labels |= {host: "gpu-node-7", driver: "580.95.05"}
        if pod:
            labels |= {"namespace": "ml", "pod": pod, "container": "main"}
        return ",".join(f'{key}="{value}"' for key, value in labels.items())


@contextmanager
def serving(exporter: Exporter) -> Iterator[str]:
    """host:port at which it is scraped."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exporter.scraped_s.setdefault(self.headers["User-Agent"], []).append(time.time())
            body = exporter.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a line a second tells nobody anything."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def scrape_config(target: str) -> str:
    job = f'- {{job_name: dcgm-exporter, honor_labels: true, static_configs: [{{targets: ["{target}"]}}]}}'
    return f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{job}\n"


@dataclass(frozen=True)
class Scraped:
    """What two servers have scraped in one minute: an upgrade in it, then pods."""

    urls: dict[str, str]
    began_s: float
    ended_s: float
    latest_s: float


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """The servers still run."""
    if reason := servers.missing("prometheus", "promtool", "victoria-metrics"):
        pytest.skip(reason)
    folder, exporter = tmp_path_factory.mktemp("upgrade"), Exporter()
    with ExitStack() as stack:
        config = scrape_config(stack.enter_context(serving(exporter)))
        prometheus = stack.enter_context(servers.prometheus(folder / "prometheus", config=config))
        (folder / "scrape.yml").write_text(config)
        flags = [f"-promscrape.config={folder / 'scrape.yml'}", "-search.latencyOffset=0s"]
        victoria = stack.enter_context(servers.victoria_metrics(folder / "victoria", flags=flags))
        eventually("both servers scrape", lambda: len(exporter.scraped_s) == 2)
        began_s = time.time()
        for phase in range(3):
            exporter.phase = phase
            time.sleep(max(began_s + PHASE_S * (phase + 1) - time.time(), 0.0))
        ended_s = time.time() - 1.0
        time.sleep(2.0)  # VictoriaMetrics shows a sample about a second after it came
        urls = {"prometheus": prometheus.url, "victoria_metrics": victoria.url}
        yield Scraped(urls, began_s, ended_s, exporter.latest_s(began_s))


@pytest.fixture(scope="module", params=["prometheus", "victoria_metrics"])
def read(request: pytest.FixtureRequest, scraped: Scraped) -> tuple[RawGrid, FleetWindow]:
    """The minute as samples and as a window."""
    source = PrometheusSource(PrometheusSettings.model_validate({"url": scraped.urls[request.param]}))
    raw = source.read(uniform_times(scraped.began_s, scraped.ended_s, STEP_S))
    return raw, frame(raw)[0]


def test_the_fleet_is_the_same_two_gpus_all_along(read: tuple[RawGrid, FleetWindow]) -> None:
    raw, _ = read
    assert [(gpu.device_id, gpu.hostname, gpu.index) for gpu in raw.gpus] == [
        (uuid, "gpu-node-7", str(n)) for n, uuid in enumerate(UUIDS)
    ]
    assert not raw.incomplete


def test_no_signal_has_a_gap_or_a_step(read: tuple[RawGrid, FleetWindow]) -> None:
    _, window = read
    assert len(window.times_s) >= 11
    levels = {Signal.SM_CLOCK: CLOCK_HERTZ, Signal.GPU_UTILIZATION: UTILIZATION, Signal.POWER: POWER_WATTS}
    for signal, level in levels.items():
        np.testing.assert_allclose(window.get(signal), level, rtol=1e-6, err_msg=signal.value)
    temperature = window.get(Signal.GPU_TEMPERATURE)
    assert set(np.unique(temperature)) <= {55.0, 56.0}


@pytest.mark.parametrize(
    ("signal", "rate"),
    [(Signal.ENERGY, POWER_WATTS), (Signal.THERMAL_THROTTLE, THROTTLED), (Signal.SBE_VOLATILE, 1.0)],
)
def test_counters_go_on_through_both_changes(
    read: tuple[RawGrid, FleetWindow], scraped: Scraped, signal: Signal, rate: float
) -> None:
    raw, window = read
    counts, steps = raw.values[signal], window.get(signal)
    late_s = scraped.latest_s + 1.0  # the last sample of a column is as old as the latest scrape was late
    assert (steps[:, 1:] >= rate * (STEP_S - late_s) - 1.0).all()
    assert (steps[:, 1:] <= rate * (STEP_S + late_s) + 1.0).all()
    np.testing.assert_allclose(steps.sum(axis=1), counts[:, -1] - counts[:, 0], rtol=1e-4)
    if signal is Signal.ENERGY:
        assert not window.get(Signal.DRIVER_RELOADS).any(), "a change of unit looks like a driver reload"


def test_each_name_is_read_in_the_unit_that_it_says(read: tuple[RawGrid, FleetWindow]) -> None:
    raw, _ = read
    told = {(reading.signal, reading.metric) for reading in raw.readings}
    assert told == {(signal, name) for names in (CLASSIC, RENAMED) for signal, (name, _) in names.items()}
    assert not [reading for reading in raw.readings if reading.conflict]


def test_the_pods_of_the_last_phase_hold_their_gpu(read: tuple[RawGrid, FleetWindow]) -> None:
    raw, _ = read
    assert raw.workloads.keys() == {UUIDS[0]}
    assert raw.workloads[UUIDS[0]].pod in ("train-0", "train-1")
