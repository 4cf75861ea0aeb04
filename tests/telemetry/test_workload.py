"""Which pod holds a GPU, and which pod is only the exporter's own."""

import numpy as np
import pytest

from healthsvc.fleet import Signal, Workload
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.identity.workload import Holders, exporters_own, workload_of

JOB = {"job": "nvidia-dcgm-exporter", "namespace": "gpu-operator", "container": "nvidia-dcgm-exporter"}
OWN = {**JOB, "pod": "nvidia-dcgm-exporter-wqqqn"}
BUSY = {"exported_namespace": "team", "exported_pod": "train-0", "exported_container": "main"}


def series(*told: tuple[dict[str, str], list[float]]) -> Samples:
    times = [at_s for _, each in told for at_s in each]
    counts = np.array([len(each) for _, each in told], np.int64)
    return Samples(tuple(labels for labels, _ in told), counts, np.array(times), np.zeros(len(times)))


def holders(*told: tuple[dict[str, str], list[float]], signal: Signal = Signal.GPU_TEMPERATURE) -> dict[str, Workload]:
    found = Holders()
    found.take(signal, series(*told))
    return found.workloads()


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        ({**OWN, **BUSY}, Workload("team", "train-0", "main")),
        (OWN, None),
        ({"pod": "train-0", "namespace": "team", "container": "main"}, Workload("team", "train-0", "main")),
        ({"pod_name": "train-0", "pod_namespace": "team", "container_name": "m"}, Workload("team", "train-0", "m")),
        ({"pod": "", "namespace": "", "container": ""}, None),
        ({"job": "monitoring/gpu", "pod": "gpu-x7k2p"}, None),
        ({"service": "amd-metrics", "pod": "amd-metrics-7b5c9d8f6-x7k2p"}, None),
        ({"job": "gpu", "pod": "gpu-training-0"}, Workload("", "gpu-training-0")),
        ({"job": "x", "pod": "dcgm-exporter-zxgzh"}, None),
    ],
)
def test_the_pod_that_holds_a_gpu_is_told_from_the_exporters(labels: dict[str, str], pod: Workload | None) -> None:
    assert workload_of({"UUID": "GPU-1", **labels}) == pod


def test_an_exporter_that_gave_itself_away_beside_a_busy_gpu_is_known_on_idle_ones() -> None:
    odd = {"pod": "telemetry-0", "namespace": "ops"}
    assert exporters_own({**odd, **BUSY}) == "telemetry-0"
    assert holders(({"UUID": "GPU-1", **odd, **BUSY}, [60.0]), ({"UUID": "GPU-2", **odd}, [60.0])) == {
        "GPU-1": Workload("team", "train-0", "main")
    }


def test_a_pod_on_every_gpu_of_a_host_is_a_workload_all_the_same() -> None:
    labels = {"job": "dcgm", "pod": "llm-0", "namespace": "team"}
    found = holders(*(({"UUID": f"GPU-{k}", **labels}, [60.0]) for k in range(8)))
    assert set(found.values()) == {Workload("team", "llm-0")}
    assert len(found) == 8


def test_the_newest_pod_counts_and_an_idle_gpu_has_none() -> None:
    old, new = ({"UUID": "GPU-1", "pod": pod} for pod in ("old", "new"))
    assert holders((new, [90.0, 120.0]), (old, [30.0, 60.0])) == {"GPU-1": Workload("", "new")}
    assert holders((old, [30.0, 60.0]), ({"UUID": "GPU-1"}, [90.0])) == {}


def test_of_pods_that_share_a_gpu_the_first_by_name_stands_for_them() -> None:
    pods = [({"UUID": "GPU-1", "pod": pod}, [60.0]) for pod in ("b", "a", "c")]
    assert holders(*pods, ({"UUID": "GPU-1"}, [60.0])) == {"GPU-1": Workload("", "a")}


def test_series_without_samples_or_device_or_of_another_signal_say_nothing() -> None:
    assert holders(({"UUID": "GPU-1", "pod": "a"}, [])) == {}
    assert holders(({"pod": "a"}, [1.0])) == {}
    assert holders(({"UUID": "GPU-1", "pod": "a"}, [1.0]), signal=Signal.PCIE_REPLAYS) == {}
    assert holders() == {}
