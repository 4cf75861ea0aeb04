"""Which pod holds which GPU, whatever a server's honor_labels setting has done to the labels.

With honor_labels=false the exporter's `pod` becomes `exported_pod` and `pod` is the exporter's own. With true, `pod` is
the workload's, but an idle GPU gets the exporter's own pod in both modes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from healthsvc.fleet import Signal, Workload
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.owners import Owners

TELLING = frozenset({Signal.GPU_UTILIZATION, Signal.GPU_TEMPERATURE, Signal.POWER})  # every exporter has one of these
_POD = ("pod", "pod_name", "podname")
_NAMESPACE = ("namespace", "pod_namespace")
_CONTAINER = ("container", "container_name")
_TARGET = ("job", "service", "app", "kubernetes_name", "app_kubernetes_io_name")
# The last five characters of a DaemonSet's pod, before them perhaps a ReplicaSet's hash: Kubernetes deals no vowels.
_RANDOM = re.compile(r"-(?:[a-z0-9]{8,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5}")
_EXPORTERS = re.compile(r"(?:.*-)?(?:dcgm|gpu|metrics|nvidia)-exporter-[a-z0-9-]+")


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def exporters_own(labels: Mapping[str, str]) -> str:
    """The exporter's own pod, where these labels give it away; else "".

    They do beside an `exported_pod`, and where the pod is called after the job, the service or an exporter. A pod that
    is on every GPU of a host says nothing: that is how the usual training job looks too. Blind to an exporter whose
    pod is called like none of them, on a server with honor_labels=true.
    """
    pod = _first(labels, _POD)
    if not pod or labels.get("exported_pod"):
        return pod
    return pod if _is_called_after(pod, tuple([labels.get(name, "") for name in _TARGET])) else ""


@lru_cache(maxsize=2**16)
def _is_called_after(pod: str, targets: tuple[str, ...]) -> bool:
    """Whether a pod has an exporter's name, or that of a target (the part behind a slash) and random characters."""
    if _EXPORTERS.fullmatch(pod):
        return True
    names = [target.rpartition("/")[2] for target in targets]
    return any(name and pod.startswith(name) and _RANDOM.fullmatch(pod, len(name)) for name in names)


def workload_of(labels: Mapping[str, str], own: str | None = None) -> Workload | None:
    """The pod that these labels name as the GPU's holder, if they name one that is not the exporter's own.

    own: what exporters_own says of them, where that is known already.
    """
    if pod := labels.get("exported_pod"):
        return Workload(labels.get("exported_namespace", ""), pod, labels.get("exported_container", ""))
    pod = _first(labels, _POD)
    if not pod or (exporters_own(labels) if own is None else own):
        return None
    return Workload(_first(labels, _NAMESPACE), pod, _first(labels, _CONTAINER))


@dataclass
class Holders:
    """Takes answers in any order, then says who holds which GPU at the end of what was read."""

    owners: Owners = field(default_factory=Owners)
    _own: set[str] = field(default_factory=set, init=False)
    _newest: dict[str, tuple[float, Signal, Workload | None]] = field(default_factory=dict, init=False)

    def take(self, signal: Signal, samples: Samples) -> None:
        """The newest sample of each series, if `signal` is one that tells. Where pods share a GPU, the first by name
        stands for them."""
        if signal not in TELLING or not len(samples.times_s):
            return
        last = np.cumsum(samples.counts) - 1
        times = np.where(samples.counts > 0, samples.times_s[np.maximum(last, 0)], -np.inf)
        devices = self.owners.of(samples.labels).devices
        for labels, device, at_s in zip(samples.labels, devices, times.tolist(), strict=True):
            if not device or at_s == -np.inf:
                continue
            before = self._newest.get(device)
            if before is not None and (at_s < before[0] or (at_s == before[0] and signal is not before[1])):
                continue  # an older scrape, or another metric of the same one
            if own := exporters_own(labels):
                self._own.add(own)
            pod = workload_of(labels, own)
            if before is None or at_s > before[0] or _rank(pod) < _rank(before[2]):
                self._newest[device] = (at_s, signal, pod)

    def workloads(self) -> dict[str, Workload]:
        """device_id -> the pod that held it last; a GPU that was idle then has none."""
        return {
            device: pod for device, (_, _, pod) in self._newest.items() if pod is not None and pod.pod not in self._own
        }


def _rank(pod: Workload | None) -> tuple[bool, str, str, str]:
    return (True, "", "", "") if pod is None else (False, pod.namespace, pod.pod, pod.container)
