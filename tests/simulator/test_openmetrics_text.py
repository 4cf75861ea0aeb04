"""The text that backfills a Prometheus: exporter names, units and labels, and a real server that reads it."""

import subprocess
from pathlib import Path

import pytest
import requests

from healthsvc.simulator import write_recording
from healthsvc.simulator.openmetrics import DCGM
from tests import servers
from tests.simulator.runs import START_S, scenario

LOSS = {"kind": "off_bus", "target": 3, "start_day": 0.05}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    wanted = scenario(LOSS, days=0.125, fleet={"gpus": 8})
    write_recording(wanted, folder / "recording", 1, START_S, openmetrics=folder / "samples.om")
    return folder / "samples.om"


def test_every_family_comes_once_in_one_piece_and_the_text_ends_with_eof(text: Path) -> None:
    lines = text.read_text("utf-8").splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) == len(DCGM) + 4
    assert lines[-1] == "# EOF"
    order = [line.split("{")[0].split()[0] for line in lines if not line.startswith("#")]
    assert [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name] == types


def test_values_are_in_the_exporters_units_and_a_lost_gpu_has_no_line(text: Path) -> None:
    lines = text.read_text("utf-8").splitlines()
    clock = [float(line.split()[-2]) for line in lines if line.startswith("DCGM_FI_DEV_SM_CLOCK{")]
    assert 345 <= min(clock) <= max(clock) <= 1980
    energy = [line for line in lines if line.startswith("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{")]
    assert float(energy[0].split()[-2]) > 60 * 70 * 1000
    assert [sum(f'gpu="{i}"' in line for line in energy) for i in (2, 3)] == [180, 73]
    assert 'modelName="NVIDIA H100 80GB HBM3",Hostname="node-001",DCGM_FI_DRIVER_VERSION=' in energy[0]


@pytest.mark.servers
@pytest.mark.skipif(bool(servers.missing("prometheus", "promtool")), reason=servers.missing("prometheus", "promtool"))
def test_a_real_prometheus_loads_it_and_answers(text: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=240h", "openmetrics"]
    subprocess.run([*command, str(text), str(data)], check=True, capture_output=True)
    with servers.prometheus(tmp_path) as server:
        count, at_s = 'count(DCGM_FI_DEV_GPU_TEMP{Hostname="node-001"})', START_S + 10_000
        query: dict[str, str | float] = {"query": count, "time": at_s}
        answer = requests.get(f"{server.url}/api/v1/query", params=query, timeout=10).json()
    assert answer["data"]["result"][0]["value"][1] == "7"
