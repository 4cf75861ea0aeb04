"""Real expositions and answers frame to the right signals, units and identities; expected values read off by hand.

The files are not part of the repository: without the folder they are skipped. The small ones of our own always run.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from healthsvc.fleet import Signal
from healthsvc.telemetry.decode import MalformedAnswerError, Samples, decode_points
from healthsvc.telemetry.source import RawGrid
from tests.telemetry.framed import EXPOSITIONS, SHARED, grid, line, scrape

T, M, P, E = Signal.GPU_TEMPERATURE, Signal.MEMORY_TEMPERATURE, Signal.POWER, Signal.ENERGY
C, U, X, R = Signal.SM_CLOCK, Signal.GPU_UTILIZATION, Signal.XID, Signal.PCIE_REPLAYS
L, MARGIN, BITS = Signal.POWER_LIMIT, Signal.GPU_TEMPERATURE_MARGIN, Signal.CLOCK_EVENT_REASONS
REMAPS = {Signal.CORRECTABLE_REMAPS: 0.0, Signal.UNCORRECTABLE_REMAPS: 0.0, Signal.REMAP_FAILURE: 0.0}
NO_MEMORY_SENSOR = {(M, "no_sensor"): 1}

# file -> device -> (host, slot, product), signals; what was rejected besides repeated lines
DCGM = {
    "aicr_eks_h100_gpu-operator.prom": (
        {
            "GPU-99f200be-dd95-7aae-b3f3-877e23216d70": (
                ("node-27d13d", "00000000:53:00.0", "NVIDIA H100 80GB HBM3"),
                {T: 30.0, P: 113.611, U: 0.0},
            ),
            "GPU-e81249ac-e858-9444-d82a-d401cc33e810": (
                ("node-27d13d", "00000000:CA:00.0", "NVIDIA H100 80GB HBM3"),
                {T: 26.0, P: 66.997, U: 0.0},
            ),
        },
        {},
    ),
    "cncf_v1.35_ericsson-ccd_t4_drv590.48.01.prom": (
        {
            "GPU-79af5fdd-81f6-420c-2a82-9cf05c822334": (
                ("node-cb7a02", "00000000:37:00.0", "Tesla T4"),
                {T: 74.0, P: 68.244, E: 15_152_422.938, C: 660e6, U: 0.91, R: 0.0},
            )
        },
        NO_MEMORY_SENSOR,
    ),
    "cncf_v1.35_kops_l4_drv580.105.08.prom": (
        {
            "GPU-9d5dcd40-3090-4c10-0d2b-e817d061660b": (
                ("node-b05942", "00000000:31:00.0", "NVIDIA L4"),
                {T: 31.0, P: 16.365, E: 4_742.776, C: 210e6, U: 0.0, R: 0.0, **REMAPS},
            )
        },
        NO_MEMORY_SENSOR,
    ),
    "cncf_v1.35_rafay_t4_drv580.105.08.prom": (
        {
            "GPU-e8c5bc16-001a-8e06-7b7f-3f3d81df3daa": (
                ("node-78aebd", "00000000:00:1E.0", "Tesla T4"),
                {T: 24.0, P: 14.512, E: 48_287.135, C: 300e6, U: 0.0},
            )
        },
        NO_MEMORY_SENSOR,
    ),
    "cncf_v1.35_upcloud_l40s_drv595.58.03.prom": (
        {
            "GPU-ede2c2ae-6219-7b5d-b17c-4c2fdf454b91": (
                ("node-12a891", "00000000:00:07.0", "NVIDIA L40S"),
                {T: 32.0, P: 35.686, E: 5_551_899.580, C: 210e6, U: 0.0, R: 0.0, **REMAPS},
            )
        },
        NO_MEMORY_SENSOR,
    ),
    "cncf_v1.35_viettel.prom": (
        {
            "GPU-6e010ab7-7d4a-b181-bf71-a8f66660c568": (
                ("node-4492d8", "00000000:0D:00.0", "NVIDIA L40S"),
                {C: 210e6},
            ),
            "GPU-bd744205-d214-4183-790c-df925df29d90": (
                ("node-4492d8", "00000000:B4:00.0", "NVIDIA L40S"),
                {C: 210e6},
            ),
        },
        {},
    ),
    "cncf_v1.35_vks.prom": (
        {
            "GPU-e6b647b5-6569-aad2-da00-75106e6d92d9": (
                ("node-1c243a", "00000000:03:00.0", "GRID A100-40C"),
                {C: 1410e6, U: 0.0},
            )
        },
        NO_MEMORY_SENSOR,
    ),
    "cncf_v1.36_vks.prom": (
        {
            "GPU-acbd3e39-2ee6-640a-93c4-a03fc4c497ef": (
                ("node-0dcc9c", "00000000:03:00.0", "GRID A100-10C"),
                {C: 1410e6, U: 0.0},
            )
        },
        NO_MEMORY_SENSOR,
    ),
    "dcgm-exporter_readme_sample.prom": (
        {"GPU-ca63c369-6cf5-df46-c150-dd2a0738ee53": (("", "", ""), {C: 139e6})},
        {(M, "blank"): 2},
    ),
    "dcgm_lines_from_issues.prom": (
        {
            "GPU-00000138-0000-0000-0000-000000000001": (
                ("", "", ""),
                {T: 55.0, M: 54.0, P: 302.206, E: 4_335_301.032, C: 1530e6, U: 0.44, R: 0.0},
            ),
            "GPU-00000188-0000-0000-0000-000000000001": (
                ("dcgm-exporter-aaaaa", "", ""),
                {T: 54.0, P: 30.982, E: 55_491_669.881, C: 585e6, U: 0.0, R: 0.0},
            ),
            "GPU-00000058-0000-0000-0000-000000000005": (
                ("dcgm-exporter-bbbbb", "", "NVIDIA TITAN V"),
                {C: 1335e6},
            ),
            "GPU-00000544-0000-0000-0000-000000000001": (("node-544", "00000000:00:06.0", "NVIDIA H100 NVL"), {}),
            "GPU-00000490-0000-0000-0000-000000000002": (
                ("node-490", "00000000:91:00.0", "NVIDIA H100 80GB HBM3"),
                {U: 0.0},
            ),
        },
        {},
    ),
}
COUNTS = {"aicr_eks_h100_gpu-operator.prom": 8, "dcgm_lines_from_issues.prom": 11}
REPEATED = ("cncf_v1.35_kops_l4_drv580.105.08.prom", "dcgm-exporter_readme_sample.prom")  # whole blocks, twice or more


def shared(*folders: str, name: str) -> Path:
    path = SHARED.joinpath(*folders, name)
    if not path.exists():
        pytest.skip(f"no real data here: {SHARED.joinpath(*folders)} is missing")
    return path


def shown(raw: RawGrid, device: str) -> dict[Signal, float]:
    row = [gpu.device_id for gpu in raw.gpus].index(device)
    return {s: value for s in raw.values if (value := line(raw, s, row)[0]) is not None}


@pytest.mark.parametrize("name", DCGM)
def test_a_real_dcgm_exporters_page_frames_as_it_reads(name: str) -> None:
    folder = "github-issue-excerpts" if name.startswith("dcgm_lines") else "dcgm-exporter-scrapes"
    exposition, raw = scrape(shared(folder, name=name).read_text())
    gpus, rejected = DCGM[name]
    assert len(raw.gpus) == COUNTS.get(name, len(gpus))
    for device, ((host, slot, product), signals) in gpus.items():
        gpu = next(gpu for gpu in raw.gpus if gpu.device_id == device)
        assert (gpu.hostname, gpu.slot, gpu.product) == (host, slot, product)
        assert shown(raw, device) == pytest.approx(signals)
    repeats = sum(n for (_, reason), n in raw.rejected.items() if reason == "duplicate_time")
    assert (repeats > 0) is (name in REPEATED)
    assert {key: n for key, n in raw.rejected.items() if key[1] != "duplicate_time"} == rejected
    # The lines with "..." in place of labels, as the page's author shortened them.
    assert exposition.rejected == ({"malformed": 18} if name == "cncf_v1.35_viettel.prom" else {})
    assert not any(reading.conflict for reading in raw.readings)


MASKED = "GPU-00000000-0000-0000-0000-000000000000"
# state -> temperature, memory temperature, margin, watts, clock, utilisation, limit, event reasons; None: absent
Row = tuple[float | None, ...]
NVIDIA_SMI: dict[str, tuple[str, str, Row, Row]] = {
    "linux-x86_64__nvidia-geforce-rtx-2080-super__595.71.05": (
        "NVIDIA GeForce RTX 2080 SUPER",
        "00000000:0C:00.0",
        (40, None, None, 39.32, 765e6, 0, 250, 4),
        (45, None, None, 111.5, 2.055e9, 0.08, 250, None),
    ),
    "linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04": (
        "NVIDIA GeForce RTX 2080 SUPER",
        "00000000:0C:00.0",
        (33, None, None, 39.17, 765e6, 0, 250, 1),
        (38, None, None, 98.14, 2.07e9, 0.08, 250, None),
    ),
    "linux-x86_64__nvidia-geforce-rtx-4080-super__595.71.05": (
        "NVIDIA GeForce RTX 4080 SUPER",
        "00000000:01:00.0",
        (43, None, None, 26.2, 210e6, 0, 320, 1),
        (46, None, None, 84.24, 2.805e9, 0.07, 320, None),
    ),
    "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01": (
        "NVIDIA H100 80GB HBM3",
        "00000000:00:09.0",
        (41, 48, 46, 69.85, 345e6, 0, 700, 1),
        (59, 54, 26, 631.95, 1.98e9, 1, 700, 0),
    ),
    "linux-x86_64__nvidia-h100-mig__590.48.01": (
        "NVIDIA H100 80GB HBM3",
        "00000000:00:09.0",
        (42, 48, 45, 71.15, 345e6, None, 700, 1),
        (53, 59, 24, 433.78, 1.98e9, None, 700, 0),
    ),
    "linux-x86_64__nvidia-h200-mig__590.48.01": (
        "NVIDIA H200",
        "00000000:83:00.0",
        (28, 32, 59, 78.28, 345e6, None, 700, 1),
        (36, 39, 46, 295.01, 1.98e9, None, 700, 0),
    ),
    "linux-x86_64__nvidia-h200__590.48.01": (
        "NVIDIA H200",
        "00000000:83:00.0",
        (28, 32, 59, 77.71, 345e6, 0, 700, 1),
        (52, 40, 35, 627.4, 1.98e9, 1, 700, 0),
    ),
    "linux-x86_64__nvidia-l40s__595.80": (
        "NVIDIA L40S",
        "00000000:01:00.0",
        (63, None, 25, 144.97, 2.52e9, 1, 350, None),
        (54, None, 34, 110.23, 2.52e9, 0.09, 350, None),
    ),
    "windows-x86_64__nvidia-geforce-rtx-2080-super__591.86": (
        "NVIDIA GeForce RTX 2080 SUPER",
        "00000000:0C:00.0",
        (40, None, None, 38.92, 3e8, 0, 250, 1),
        (45, None, None, 97.43, 2.055e9, 0.07, 250, None),
    ),
    "windows-x86_64__nvidia-geforce-rtx-2080-super__610.62": (
        "NVIDIA GeForce RTX 2080 SUPER",
        "00000000:0C:00.0",
        (40, None, None, 39.25, 3e8, 0, 250, 1),
        (44, None, None, 97.99, 2.04e9, 0.07, 250, None),
    ),
}


@pytest.mark.parametrize("state", ["idle", "load"])
@pytest.mark.parametrize("name", NVIDIA_SMI)
def test_a_real_nvidia_gpu_exporters_page_frames_as_it_reads(name: str, state: str) -> None:
    exposition, raw = scrape(shared("nvidia-gpu-exporter-captures", name=f"{name}__{state}.metrics").read_text())
    product, slot, idle, load = NVIDIA_SMI[name]
    assert [(gpu.device_id, gpu.product, gpu.slot, gpu.index) for gpu in raw.gpus] == [(MASKED, product, slot, "0")]
    wanted = dict(zip((T, M, MARGIN, P, C, U, L, BITS), idle if state == "idle" else load, strict=True))
    found = shown(raw, MASKED)
    for signal, value in wanted.items():
        if signal is BITS and value is None:
            assert signal in found
        else:
            assert found.get(signal) == (None if value is None else pytest.approx(value)), signal
    has_ecc = "geforce" not in name
    assert (Signal.DBE_AGGREGATE in found) is has_ecc
    if has_ecc:
        assert found[Signal.SBE_VOLATILE] == found[Signal.DBE_AGGREGATE] == found[Signal.BANKS_NONE] == 0
    # Remapped rows cannot be asked of a GPU that is cut into instances (NVML).
    assert (Signal.UNCORRECTABLE_REMAPS in found) is (has_ecc and "mig" not in name)
    for signal in (Signal.SOFTWARE_THERMAL_THROTTLE, Signal.HARDWARE_THERMAL_THROTTLE, Signal.POWER_BRAKE_THROTTLE):
        assert signal in found
    assert (dict(exposition.rejected), dict(raw.rejected)) == ({}, {})
    assert not any(reading.conflict for reading in raw.readings)


ANSWERS = {
    "aicr_eks_h100_00_DCGM_FI_DEV_GPU_UTIL.json": (16, "GPU-f6183233-a853-1ad0-01ef-2bbafa26fc87", U, 0.0),
    "aicr_eks_h100_01_DCGM_FI_DEV_FB_USED.json": (16, "", None, 0.0),
    "aicr_eks_h100_02_DCGM_FI_DEV_GPU_TEMP.json": (16, "GPU-f6183233-a853-1ad0-01ef-2bbafa26fc87", T, 29.0),
    "aicr_eks_h100_03_DCGM_FI_DEV_POWER_USAGE.json": (16, "GPU-f6183233-a853-1ad0-01ef-2bbafa26fc87", P, 68.347),
    "cncf_ericsson_t4_victoriametrics_00_DCGM_FI_DEV_PCIE_REPLAY_COUNTER.json": (
        1,
        "GPU-79af5fdd-81f6-420c-2a82-9cf05c822334",
        R,
        0.0,
    ),
    "cncf_rafay_01_DCGM_FI_DEV_PCIE_REPLAY_COUNTER.json": (1, "GPU-c4ddb51a-05ae-d8a5-17eb-dd9a279225f4", R, 0.0),
    "cncf_upcloud_l40s_00_DCGM_FI_DEV_GPU_TEMP.json": (1, "GPU-ede2c2ae-6219-7b5d-b17c-4c2fdf454b91", T, 32.0),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_real_answer_frames_as_it_reads(name: str) -> None:
    body = shared("prometheus-api-responses", name=name).read_bytes()
    count, device, signal, value = ANSWERS[name]
    points = decode_points(body)
    assert len(points.labels) == count
    answer = Samples(points.labels, np.ones(count, np.int64), np.full(count, 590.0), points.values)
    metric = json.loads(body)["data"]["result"][0]["metric"]["__name__"]
    raw = grid({metric: answer}, np.array([600.0]))
    assert len(raw.gpus) == count
    if signal is None:
        assert raw.values == {}
    else:
        assert shown(raw, device) == {signal: pytest.approx(value)}
        assert sum(value is not None for row in range(count) for value in line(raw, signal, row)) == count


def test_an_answer_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(MalformedAnswerError):
        decode_points(shared("prometheus-api-responses", name="cncf_rafay_00.json").read_bytes())


BUSY = {T: 71.0, P: 512.25, C: 1980e6, U: 0.91}
OWN = {
    "dcgm_classic.prom": {**BUSY, M: 84.0, E: 15_152_422.938, X: 31.0, MARGIN: -2.0},
    "dcgm_46.prom": {**BUSY, E: 15_152_422.938, X: 31.0},
    "dcgm_49.prom": {**BUSY, E: 15_152_422.938, X: 0.0},
    "aks_small_letters.prom": {T: 71.0},
    "vgpu.prom": {C: 1410e6, U: 0.0},
    "nvidia_gpu_exporter.prom": {**BUSY, MARGIN: 16.0, BITS: 4.0, X: 0.0},
    "amd.prom": {**BUSY, E: 15_152_422.938},
    "otel.prom": {T: 71.0, M: 84.0, P: 512.25, U: 0.91, Signal.SBE_VOLATILE: 3.0, Signal.DBE_VOLATILE: 1.0},
}


@pytest.mark.parametrize("name", OWN)
def test_one_gpu_looks_alike_through_every_exporter(name: str) -> None:
    exposition, raw = scrape((EXPOSITIONS / name).read_text())
    (gpu,) = raw.gpus
    assert shown(raw, gpu.device_id) == pytest.approx(OWN[name])
    assert exposition.rejected == {}
    conflicts = [reading.metric for reading in raw.readings if reading.conflict]
    assert conflicts == (["DCGM_FI_DEV_GPU_UTIL_RATIO"] if name == "dcgm_46.prom" else [])


def test_a_dirty_page_gives_what_is_clean_and_names_the_rest() -> None:
    exposition, raw = scrape((EXPOSITIONS / "dirty.prom").read_text())
    assert [line(raw, T, row)[0] for row in range(len(raw.gpus))] == [71.0, None, None, None]
    assert exposition.rejected == {"malformed": 6}
    assert raw.rejected == {(T, why): 1 for why in ("no_device", "out_of_range", "not_a_number", "blank")}
