"""Who a series belongs to: one GPU or one place, whatever exporter and generation calls its labels what.

A GPU is its UUID. AMD exporters without one give the board's serial number, or else only an index on a host; OTel's
`hw.id` is unique on its host only. The exporters' label sets: dcgm-exporter render_metrics.go (UUID, or uuid with the
old namespace; gpu_uuid on link metrics), AMD device-metrics-exporter, nvidia_gpu_exporter, OTel semantic conventions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from healthsvc.fleet import GpuId

DEVICE_LABELS = ("UUID", "uuid", "gpu_uuid", "serial_number", "hw_id", "gpu_id")
HOST_LABELS = ("hostname", "Hostname", "node", "nodename", "kubernetes_node", "instance")
PRODUCT_LABELS = ("modelName", "model_name", "modelname", "card_series", "hw_model", "name")
INDEX_LABELS = ("gpu", "gpu_id", "index")
SLOT_LABELS = ("pci_bus_id",)
INSTANCE_LABELS = ("GPU_I_ID", "gpu_i_id")  # of a MIG instance; the second where relabelling made all small
_OF_DEVICES = ("hw_type", "gpu_partition_id")
IDENTITY_LABELS = tuple(
    dict.fromkeys((*DEVICE_LABELS, *HOST_LABELS, *PRODUCT_LABELS, *INDEX_LABELS, *SLOT_LABELS, *_OF_DEVICES, "cluster"))
)
_UNIQUE = DEVICE_LABELS[:4]  # in the whole fleet; the others only on their host
_NO_VALUE = frozenset({"", "n/a", "[n/a]", "none", "unknown", "<nil>"})
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?", re.IGNORECASE)
# Kubernetes ends the names of a DaemonSet's pods in five random characters.
_EXPORTERS_POD = re.compile(r"(?=.*(?:exporter|dcgm))[a-z0-9.-]*-[a-z0-9]{5}")
_LOCAL = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "::1"})


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    for name in names:
        if value := labels.get(name):
            return value
    return ""


@lru_cache(maxsize=2**18)
def canonical(value: str) -> str:
    """The one spelling of a device's name: GPU-<uuid in small letters>; what is no UUID stays as it is.

    A MIG instance of the old style (MIG-GPU-<uuid>/1/0) is its GPU. One with a UUID of its own (MIG-<uuid>) names no
    GPU, and nor does a placeholder: "".
    """
    text = value.strip()
    low = text.lower()
    if low in _NO_VALUE:
        return ""
    if low.startswith("mig-"):
        low, _, _ = low.removeprefix("mig-").partition("/")
        if not low.startswith("gpu-"):
            return ""
    if low.startswith("gpu-"):
        low = low.removeprefix("gpu-")
        return f"GPU-{_dashed(low)}" if low else ""
    return f"GPU-{_dashed(low)}" if _UUID.fullmatch(low) else text


def _dashed(low: str) -> str:
    if "-" in low or not _UUID.fullmatch(low):
        return low
    return "-".join((low[:8], low[8:12], low[12:16], low[16:20], low[20:]))


def device_label(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The label that names the device, and its value as written; None for a series of no GPU (NVSwitch, CPU, link).

    Of an AMD GPU that is cut up only the partition 0 counts: the others report zeros for what the board measures.
    """
    if _of_no_gpu(labels):
        return None
    return next(((name, labels[name]) for name in DEVICE_LABELS if name in labels and canonical(labels[name])), None)


def _of_no_gpu(labels: Mapping[str, str]) -> bool:
    return labels.get("hw_type", "gpu") != "gpu" or labels.get("gpu_partition_id", "0") not in ("0", "")


def device_id(labels: Mapping[str, str]) -> str:
    """The GPU's own name, "" if the series has none.

    Blind to MIG instances that carry nothing but a UUID of their own: those series belong to nobody. A name that is
    unique on its host only is given the host's in front.
    """
    if _of_no_gpu(labels):
        return ""
    for label in _UNIQUE:  # spelled out: it is asked of every series of every answer
        if (value := labels.get(label)) and (name := canonical(value)):
            return name
    for label in DEVICE_LABELS[len(_UNIQUE) :]:
        if name := canonical(labels.get(label, "")):
            host = host_of(labels)[0]
            return name if name.startswith("GPU-") else f"{host}/{name}" if host else ""
    return ""


def host_of(labels: Mapping[str, str]) -> tuple[str, bool]:
    """The node's name, "" if the series has none; and whether a label says it, not only the address of the scrape.

    Some dcgm-exporters give `localhost` for the engine they talk to (4.x), or their own pod's name (before 3.1.6). Both
    give way to any other label that names a node, `localhost` also to the address of the scrape. A pod's name stays
    where nothing better is: it stands for one node, if only until the pod is replaced, which then is a rename.
    """
    written = ""
    for name in HOST_LABELS[:-1]:
        if value := labels.get(name):
            if value.lower() not in _LOCAL and not _EXPORTERS_POD.fullmatch(value):
                return value, True
            written = written or value
    if written and written.lower() not in _LOCAL:
        return written, True
    instance = _host(labels.get("instance", ""))
    if instance and instance.lower() not in _LOCAL:
        return instance, False
    return written or instance, False


def place_name(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The first of `names` that the series has; of an instance (host:port) the host. "" if it has none."""
    if tuple(names) == HOST_LABELS:
        return host_of(labels)[0]
    for name in names:
        if value := labels.get(name):
            return _host(value) if name == "instance" else value
    return ""


def _host(instance: str) -> str:
    """host of host:port, [v6]:port or a bare name."""
    if instance.startswith("["):
        return instance[1:].partition("]")[0]
    host, _, port = instance.rpartition(":")
    return host if host and port.isdigit() and ":" not in host else instance


@lru_cache(maxsize=2**16)
def slot_name(value: str) -> str:
    """A PCI address as DCGM writes it (00000000:1B:00.0), whether or not domain and function were written out."""
    told = _PCI.fullmatch(value.strip())
    if told is None:
        return value.strip()
    domain, bus, device, function = told.groups()
    return f"{domain:0>8}:{bus}:{device}.{function or '0'}".upper()


def instance_of(labels: Mapping[str, str]) -> str:
    """The MIG instance that a series speaks of, "" for the whole GPU. Its id alone: exporters err about the profile."""
    return labels.get(INSTANCE_LABELS[0]) or labels.get(INSTANCE_LABELS[1], "")


def gpu_id(labels: Mapping[str, str]) -> GpuId | None:
    """The GPU that a series belongs to; None if it names no device."""
    device = device_id(labels)
    if not device:
        return None
    return GpuId(
        device_id=device,
        hostname=host_of(labels)[0],
        index=_first(labels, INDEX_LABELS),
        product=_first(labels, PRODUCT_LABELS),
        slot=slot_name(_first(labels, SLOT_LABELS)),
        cluster=labels.get("cluster", ""),
    )


def completed(gpu: GpuId, other: GpuId) -> GpuId:
    """`gpu`, with what its labels leave open as in `other`."""
    return GpuId(
        gpu.device_id,
        gpu.hostname or other.hostname,
        gpu.index or other.index,
        gpu.product or other.product,
        gpu.slot or other.slot,
        gpu.cluster or other.cluster,
    )


def same_place(one: GpuId, other: GpuId) -> bool:
    """Whether both speak of one socket, as far as their labels go: equal wherever both say something."""
    pairs = ((one.cluster, other.cluster), (one.hostname, other.hostname), (one.slot, other.slot))
    return all(a == b or not a or not b for a, b in (*pairs, (one.index, other.index)))


def united(claims: Sequence[tuple[GpuId, bool]]) -> tuple[GpuId, ...]:
    """The places that several labels of one device speak of, in order of name: what agrees as far as it goes is one.

    claims: identities, and whether a label names the host; the address of a scrape does not contradict a name.
    """
    if len(claims) == 1:
        return (claims[0][0],)
    named = any(strong and gpu.hostname for gpu, strong in claims)
    places: list[GpuId] = []
    for gpu, strong in sorted(claims, key=lambda claim: (not claim[1], _name(claim[0]).count(""), _name(claim[0]))):
        told = gpu if strong or not named else replace(gpu, hostname="")
        match = next((i for i, place in enumerate(places) if same_place(place, told)), None)
        if match is None:
            places.append(told)
        else:
            places[match] = completed(places[match], told)
    return tuple(sorted(places, key=_name))


def place_among(places: Sequence[GpuId], labels: Mapping[str, str]) -> int:
    """Which of a device's places a series speaks for; the first where it fits none."""
    gpu = gpu_id(labels)
    if gpu is None:
        return 0
    if not host_of(labels)[1] and all(place.hostname != gpu.hostname for place in places):
        gpu = replace(gpu, hostname="")
    return next((i for i, place in enumerate(places) if same_place(place, gpu)), 0)


def _name(gpu: GpuId) -> tuple[str, ...]:
    return gpu.cluster, gpu.hostname, gpu.slot, gpu.index, gpu.product
