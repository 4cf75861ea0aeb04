"""Labels of every exporter generation name the same GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.fleet import GpuId
from healthsvc.telemetry.identity.labels import (
    HOST_LABELS,
    canonical,
    completed,
    device_id,
    device_label,
    gpu_id,
    host_of,
    instance_of,
    place_among,
    place_name,
    slot_name,
    united,
)

UUID = "99f200be-dd95-7aae-b3f3-877e23216d70"


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


@pytest.mark.parametrize(
    "written",
    [
        f"GPU-{UUID}",
        f"gpu-{UUID}",
        f"GPU-{UUID.upper()}",
        UUID,
        UUID.upper(),
        UUID.replace("-", ""),
        f" GPU-{UUID} ",
        f"MIG-GPU-{UUID}/1/0",
        f"mig-gpu-{UUID}/13/0",
    ],
)
def test_any_spelling_of_a_uuid_is_one_device(written: str) -> None:
    assert canonical(written) == f"GPU-{UUID}"


@given(uuid=st.uuids(), upper=st.booleans(), prefix=st.sampled_from(["", "GPU-", "gpu-"]), dashes=st.booleans())
def test_spelling_a_uuid_twice_changes_nothing(uuid: object, upper: bool, prefix: str, dashes: bool) -> None:
    text = str(uuid) if dashes else str(uuid).replace("-", "")
    once = canonical(prefix + (text.upper() if upper else text))
    assert once == canonical(once) == f"GPU-{uuid}"


def test_the_text_as_written_is_kept_for_selectors() -> None:
    assert device_label({"uuid": UUID.upper()}) == ("uuid", UUID.upper())


def test_a_new_style_mig_instance_is_its_gpu_only_if_the_gpu_is_named_too() -> None:
    mig = {"UUID": "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", "GPU_I_ID": "3"}
    assert device_id(mig) == ""
    assert device_id({**mig, "gpu_uuid": f"GPU-{UUID}"}) == f"GPU-{UUID}"
    assert instance_of(mig) == instance_of({"gpu_i_id": "3"}) == "3"


@pytest.mark.parametrize("nothing", ["", "  ", "N/A", "[N/A]", "none", "unknown", "GPU-", "MIG-"])
def test_an_empty_uuid_is_no_device(nothing: str) -> None:
    assert gpu_id({"UUID": nothing, "Hostname": "n1"}) is None


def test_an_amd_gpu_is_its_uuid_else_its_serial_else_its_number_on_a_host() -> None:
    labels = {"gpu_id": "3", "hostname": "n1", "serial_number": "PCB-1", "gpu_uuid": UUID, "card_series": "MI300X"}
    found = gpu_id(labels)
    assert found == GpuId(f"GPU-{UUID}", "n1", "3", "MI300X")
    assert device_id({**labels, "gpu_uuid": ""}) == "PCB-1"
    assert device_id({"gpu_id": "3", "hostname": "n1", "serial_number": "", "gpu_uuid": "N/A"}) == "n1/3"
    assert device_id({"gpu_id": "3", "serial_number": ""}) == ""  # one of how many?


def test_only_the_first_partition_of_an_amd_gpu_speaks_for_the_board() -> None:
    labels = {"gpu_id": "3", "hostname": "n1", "serial_number": "PCB-1"}
    assert device_id({**labels, "gpu_partition_id": "0"}) == "PCB-1"
    assert device_id({**labels, "gpu_partition_id": "1"}) == ""


def test_an_otel_id_is_unique_on_its_host_and_only_of_gpus() -> None:
    assert device_id({"hw_id": "gpu-slot-1x", "hw_type": "gpu", "node": "n1"}).startswith("GPU-slot")
    assert device_id({"hw_id": "0000:41:00.0", "hw_type": "gpu", "node": "n1"}) == "n1/0000:41:00.0"
    assert device_id({"hw_id": f"GPU-{UUID}", "hw_type": "gpu", "node": "n1"}) == f"GPU-{UUID}"
    assert device_id({"hw_id": "cpu0", "hw_type": "cpu", "node": "n1"}) == ""


@pytest.mark.parametrize(
    ("labels", "host", "said"),
    [
        ({"Hostname": "node-1", "instance": "10.0.0.1:9400"}, "node-1", True),
        ({"Hostname": "dcgm-exporter-x7k2p", "node": "node-1"}, "node-1", True),
        ({"Hostname": "nvidia-dcgm-exporter-x7k2p", "instance": "10.0.0.1:9400"}, "nvidia-dcgm-exporter-x7k2p", True),
        ({"Hostname": "localhost", "instance": "10.0.0.1:9400"}, "10.0.0.1", False),
        ({"Hostname": "localhost", "kubernetes_node": "node-1"}, "node-1", True),
        ({"Hostname": "localhost", "instance": "localhost:9400"}, "localhost", False),
        ({"instance": "10.0.0.1:9400"}, "10.0.0.1", False),
        ({}, "", False),
    ],
)
def test_a_host_is_called_what_tells_it_from_others(labels: dict[str, str], host: str, said: bool) -> None:
    assert host_of(labels) == (host, said)


def test_a_bus_address_has_one_spelling() -> None:
    for written in ("00000000:1b:00.0", "0000:1B:00.0", "0000:1b:00", "00000000:1B:00.0"):
        assert slot_name(written) == "00000000:1B:00.0"
    assert slot_name("slot-7") == "slot-7"


def test_labels_with_quotes_and_newlines_are_only_text() -> None:
    found = gpu_id({"UUID": f"GPU-{UUID}", "Hostname": 'n"1\n\\', "modelName": "a\nb", "gpu": '"'})
    assert found == GpuId(f"GPU-{UUID}", 'n"1\n\\', '"', "a\nb")


def test_places_that_agree_as_far_as_they_go_are_one() -> None:
    bare, full = GpuId("a", "n1"), GpuId("a", "n1", "0", "H100", "bus-0")
    scraped = GpuId("a", "10.0.0.1", "0")
    assert united([(bare, True), (full, True), (scraped, False)]) == (full,)
    assert united([(scraped, False)]) == (scraped,)
    other = GpuId("a", "n2", "0", "H100", "bus-0")
    assert united([(other, True), (full, True), (scraped, False)]) == (full, other)
    assert completed(bare, full) == full


def test_a_series_speaks_for_the_place_that_it_fits() -> None:
    places = (GpuId("GPU-1", "n1", "0"), GpuId("GPU-1", "n2", "0"))
    assert place_among(places, {"UUID": "GPU-1", "hostname": "n2"}) == 1
    assert place_among(places, {"UUID": "GPU-1", "instance": "10.0.0.9:1"}) == 0
