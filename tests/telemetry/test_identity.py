"""Labels of every exporter generation name the same GPU."""

import pytest

from healthsvc.telemetry.identity import HOST_LABELS, device_id, gpu_id, place_name


@pytest.mark.parametrize(
    "labels",
    [
        {"UUID": "GPU-1", "Hostname": "n1", "modelName": "H100"},
        {"uuid": "GPU-1", "hostname": "n1", "model_name": "H100"},
        {"gpu_uuid": "GPU-1", "node": "n1", "modelName": "H100"},
        {"UUID": "MIG-GPU-1/3/0", "instance": "n1:9400", "modelName": "H100"},
        {"UUID": "GPU-1", "GPU_I_ID": "3", "hostname": "n1", "Hostname": "pod-name", "modelName": "H100"},
    ],
)
def test_any_spelling_names_the_same_gpu(labels: dict[str, str]) -> None:
    gpu = gpu_id(labels)
    assert gpu is not None
    assert (gpu.device_id, gpu.hostname, gpu.product) == ("GPU-1", "n1", "H100")


def test_a_series_without_a_device_belongs_to_no_gpu() -> None:
    assert gpu_id({"nvswitch": "0", "Hostname": "n1"}) is None
    assert device_id({"nvlink": "3", "UUID": ""}) == ""


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("n1:9290", "n1"),
        ("n1", "n1"),
        ("[fe80::1]:9290", "fe80::1"),
        ("fe80::1", "fe80::1"),
        ("10.0.0.1:1", "10.0.0.1"),
    ],
)
def test_an_instance_is_named_without_its_port(instance: str, host: str) -> None:
    assert place_name({"instance": instance}, HOST_LABELS) == host
