"""Who a series belongs to: one GPU or one place, whatever the exporter generation calls its labels."""

from collections.abc import Mapping, Sequence

from healthsvc.fleet import GpuId

DEVICE_LABELS = ("UUID", "uuid", "gpu_uuid")
HOST_LABELS = ("hostname", "Hostname", "node", "instance")
PRODUCT_LABELS = ("modelName", "model_name")
IDENTITY_LABELS = (*DEVICE_LABELS, *HOST_LABELS, *PRODUCT_LABELS, "gpu", "pci_bus_id", "cluster")


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def device_label(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The label that names the device, and its value as written; None for a series of no GPU (NVSwitch, CPU, link)."""
    return next(((name, labels[name]) for name in DEVICE_LABELS if labels.get(name)), None)


def device_id(labels: Mapping[str, str]) -> str:
    """The GPU's UUID, "" if the series has none. A MIG instance (MIG-GPU-<uuid>/1/0) folds into its GPU."""
    value = _first(labels, DEVICE_LABELS)
    if value.startswith("MIG-GPU-"):
        value = value.removeprefix("MIG-").partition("/")[0]
    return value


def place_name(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The first of `names` that the series has; of an instance (host:port) the host. "" if it has none."""
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


def gpu_id(labels: Mapping[str, str]) -> GpuId | None:
    """The GPU that a series belongs to; None if it names no device."""
    device = device_id(labels)
    if not device:
        return None
    return GpuId(
        device_id=device,
        hostname=place_name(labels, HOST_LABELS),
        index=labels.get("gpu", ""),
        product=_first(labels, PRODUCT_LABELS),
        slot=labels.get("pci_bus_id", ""),
        cluster=labels.get("cluster", ""),
    )
