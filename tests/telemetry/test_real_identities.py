"""What real exporters and servers have written, read as GPUs: the values are copied from the files by hand."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from healthsvc.fleet import GpuId, Signal, Workload
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.identity.labels import device_id, gpu_id, instance_of
from healthsvc.telemetry.identity.workload import Holders, exporters_own

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
LABEL = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')
H100, VGPU = "NVIDIA H100 80GB HBM3", "GRID A100-40C"


def series(path: str, metric: str) -> list[dict[str, str]]:
    """Label sets of a metric in an exposition, or in an answer of the query API."""
    file = SHARED / path
    if not file.is_file():
        pytest.skip(f"no {file}")
    if file.suffix == ".json":
        return [each["metric"] for each in json.loads(file.read_text())["data"]["result"]]
    lines = [line for line in file.read_text().splitlines() if line.startswith(metric + "{")]
    return [dict(LABEL.findall(line)) for line in lines]


def gpus(labels: list[dict[str, str]]) -> set[GpuId]:
    return {gpu for each in labels if (gpu := gpu_id(each)) is not None}


@pytest.mark.parametrize(
    ("file", "metric", "expected"),
    [
        (
            "dcgm-exporter-scrapes/cncf_v1.35_ericsson-ccd_t4_drv590.48.01.prom",
            "DCGM_FI_DEV_GPU_TEMP",
            {GpuId("GPU-79af5fdd-81f6-420c-2a82-9cf05c822334", "node-cb7a02", "0", "Tesla T4", "00000000:37:00.0")},
        ),
        (
            "dcgm-exporter-scrapes/cncf_v1.35_upcloud_l40s_drv595.58.03.prom",
            "DCGM_FI_DEV_GPU_TEMP",
            {GpuId("GPU-ede2c2ae-6219-7b5d-b17c-4c2fdf454b91", "node-12a891", "0", "NVIDIA L40S", "00000000:00:07.0")},
        ),
        (
            "dcgm-exporter-scrapes/cncf_v1.35_vks.prom",
            "DCGM_FI_DEV_GPU_UTIL",
            {
                GpuId(
                    "GPU-e6b647b5-6569-aad2-da00-75106e6d92d9", "node-1c243a", "0", "GRID A100-40C", "00000000:03:00.0"
                )
            },
        ),
        (
            "dcgm-exporter-scrapes/dcgm-exporter_readme_sample.prom",
            "DCGM_FI_DEV_SM_CLOCK",
            {GpuId("GPU-ca63c369-6cf5-df46-c150-dd2a0738ee53", "", "0")},
        ),
        (
            "prometheus-api-responses/cncf_ericsson_t4_victoriametrics_00_DCGM_FI_DEV_PCIE_REPLAY_COUNTER.json",
            "",
            {GpuId("GPU-79af5fdd-81f6-420c-2a82-9cf05c822334", "node-cb7a02", "0", "Tesla T4", "00000000:37:00.0")},
        ),
        (
            "github-issue-excerpts/dcgm_lines_from_issues.prom",
            "dcgm_gpu_temp",
            {GpuId("GPU-00000188-0000-0000-0000-000000000001", "dcgm-exporter-aaaaa", "0")},
        ),
        (
            "github-issue-excerpts/dcgm_lines_from_issues.prom",
            "dcgm_fi_prof_gr_engine_active",
            {GpuId("GPU-00000272-0000-0000-0000-000000000001", "", "0", "NVIDIA A100 80GB PCIe")},
        ),
        (
            "nvidia-gpu-exporter-captures/linux-x86_64__nvidia-h200-mig__590.48.01__idle.metrics",
            "nvidia_smi_gpu_info",
            {GpuId("GPU-00000000-0000-0000-0000-000000000000", "", "0", "NVIDIA H200", "00000000:83:00.0")},
        ),
        (
            "nvidia-gpu-exporter-captures/linux-x86_64__nvidia-h200-mig__590.48.01__idle.metrics",
            "nvidia_smi_temperature_gpu",
            {GpuId("GPU-00000000-0000-0000-0000-000000000000")},
        ),
    ],
)
def test_real_series_name_their_gpus(file: str, metric: str, expected: set[GpuId]) -> None:
    assert gpus(series(file, metric)) == expected


def test_the_l4_and_the_sixteen_h100_have_a_row_each() -> None:
    l4 = gpus(series("dcgm-exporter-scrapes/cncf_v1.35_kops_l4_drv580.105.08.prom", "DCGM_FI_DEV_GPU_TEMP"))
    device = "GPU-9d5dcd40-3090-4c10-0d2b-e817d061660b"
    assert l4 == {GpuId(device, "node-b05942", "0", "NVIDIA L4", "00000000:31:00.0")}
    h100 = gpus(series("prometheus-api-responses/aicr_eks_h100_02_DCGM_FI_DEV_GPU_TEMP.json", ""))
    assert len(h100) == 16
    assert {g.hostname for g in h100} == {"node-27d13d", "node-13d8b4"}
    assert {g.product for g in h100} == {H100}


def test_mig_instances_of_one_gpu_are_one_gpu() -> None:
    labels = series("github-issue-excerpts/dcgm_lines_from_issues.prom", "DCGM_FI_DEV_FB_USED")
    mig = [each for each in labels if "GPU_I_ID" in each]
    assert {device_id(each) for each in mig} == {"GPU-00000544-0000-0000-0000-000000000001"}
    assert sorted(instance_of(each) for each in mig) == ["7", "8"]


def held(labels: list[dict[str, str]]) -> Mapping[str, Workload]:
    holders, count = Holders(), len(labels)
    samples = Samples(tuple(labels), np.ones(count, np.int64), np.full(count, 60.0), np.zeros(count))
    holders.take(Signal.GPU_TEMPERATURE, samples)
    return holders.workloads()


def test_of_sixteen_h100_one_is_held_and_the_others_show_the_exporters_own_pods() -> None:
    labels = series("prometheus-api-responses/aicr_eks_h100_02_DCGM_FI_DEV_GPU_TEMP.json", "")
    assert held(labels) == {
        "GPU-99f200be-dd95-7aae-b3f3-877e23216d70": Workload(
            "dynamo-workload", "vllm-agg-0-vllmdecodeworker-s65j5", "main"
        )
    }
    assert {exporters_own(each) for each in labels} == {
        "",
        "nvidia-dcgm-exporter-wqqqn",
        "nvidia-dcgm-exporter-g2fjs",
    }
    assert held(series("prometheus-api-responses/cncf_upcloud_l40s_00_DCGM_FI_DEV_GPU_TEMP.json", "")) == {}


def test_on_the_exporters_own_page_an_idle_gpu_has_no_pod() -> None:
    labels = series("dcgm-exporter-scrapes/aicr_eks_h100_gpu-operator.prom", "DCGM_FI_DEV_GPU_TEMP")
    assert set(held(labels)) == {"GPU-99f200be-dd95-7aae-b3f3-877e23216d70"}
    labels = series("github-issue-excerpts/dcgm_lines_from_issues.prom", "DCGM_FI_DEV_GPU_UTIL")
    assert [pod.pod for pod in held(labels).values()] == ["dcgmproftester2"]
