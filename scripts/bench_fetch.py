"""How fast history is read: our source against prometheus-api-client's MetricRangeDataFrame, on one real Prometheus.

Both read the same samples in turn, several rounds; the medians are printed as one line of JSON, and with them the most
memory that the server itself held during a read of ours.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.config import PrometheusSettings
from healthsvc.telemetry.catalogue import GPU_ROWS
from healthsvc.telemetry.framing.grid import uniform_times
from healthsvc.telemetry.prometheus import PrometheusSource
from tests import servers

START_S = 1_700_006_400
STEP_S = 60
_FIRST: dict[str, str] = {}
for _row in GPU_ROWS:
    _FIRST.setdefault(_row.signal, _row.metric)
METRICS = tuple(_FIRST.values())[:12]  # one metric a signal
DRIVER = "550.90.07"


def history(gpus: int, samples: int, seed: int) -> list[servers.Series]:
    """One series a GPU and metric, with the labels that dcgm-exporter writes and values of realistic length."""
    rng = np.random.default_rng(seed)
    series = []
    for n in range(gpus):
        node = f"gpu-node-{n // 8:03d}"
        labels = {
            "UUID": f"GPU-{n:08x}-52a3-4f3c-9d5e-{n:012x}",
            "gpu": str(n % 8),
            "device": f"nvidia{n % 8}",
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": node,
            "pci_bus_id": f"00000000:{n % 8:02X}:00.0",
            "DCGM_FI_DRIVER_VERSION": DRIVER,
            "instance": f"{node}:9400",
            "job": "dcgm-exporter",
        }
        for metric in METRICS:
            level, spread = (650.0, 40.0) if metric.endswith("USAGE") else (60.0, 5.0)
            values = np.round(rng.normal(level, spread, samples), 3 if level > 100 else 0)
            times = START_S + STEP_S * np.arange(1, samples + 1)
            series.append(servers.Series(metric, labels, list(zip(times.tolist(), values.tolist(), strict=True))))
    return series


def ours(url: str, samples: int) -> tuple[float, int]:
    """Seconds and samples of one read onto the grid, discovery included."""
    source = PrometheusSource(PrometheusSettings.model_validate({"url": url}))
    times_s = uniform_times(START_S, START_S + STEP_S * samples, STEP_S)
    began = time.perf_counter()
    grid = source.read(times_s)
    took = time.perf_counter() - began
    return took, sum(int(np.count_nonzero(~np.isnan(values))) for values in grid.values.values())


def theirs(url: str, samples: int) -> tuple[float, int]:
    """Seconds and samples of the same history as data frames."""
    from prometheus_api_client import MetricRangeDataFrame, PrometheusConnect

    client = PrometheusConnect(url)
    start = datetime.fromtimestamp(START_S + STEP_S, UTC)
    end = datetime.fromtimestamp(START_S + STEP_S * samples, UTC)
    count, began = 0, time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its use of set_index is deprecated
        for metric in METRICS:
            answer = client.custom_query_range(metric, start, end, str(STEP_S))
            count += len(MetricRangeDataFrame(answer))
    return time.perf_counter() - began, count


def bench(gpus: int, samples: int, rounds: int, seed: int) -> dict[str, float]:
    """Medians over interleaved rounds, in samples a second."""
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.prometheus(Path(folder) / "server", history(gpus, samples, seed)) as server,
    ):
        ours(server.url, samples)  # the server's page cache and our imports are warm for both
        server.forget_peak()
        ours(server.url, samples)
        peak_mib = server.peak_mib()
        pairs = [(ours(server.url, samples), theirs(server.url, samples)) for _ in range(rounds)]
    wanted = gpus * samples * len(METRICS)
    for (_, mine), (_, other) in pairs:
        if mine != wanted or other != wanted:
            raise SystemExit(f"{wanted} samples stored, but we read {mine} and prometheus-api-client {other}")
    ours_rate = median(count / took for (took, count), _ in pairs)
    pac_rate = median(count / took for _, (took, count) in pairs)
    return {
        "ours_samples_s": round(ours_rate),
        "pac_samples_s": round(pac_rate),
        "ratio": round(ours_rate / pac_rate, 2),
        "server_peak_mib": round(peak_mib),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if reason := servers.missing("prometheus", "promtool"):
        raise SystemExit(reason)
    print(json.dumps(bench(given.gpus, given.hours * 3600 // STEP_S, given.rounds, given.seed)))


if __name__ == "__main__":
    main()
