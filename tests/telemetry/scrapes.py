"""What one scrape of an exporter shows, and which GPUs samples tell of."""

from collections import Counter
from collections.abc import Mapping

from healthsvc.fleet import GpuId
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.exposition import Exposition, Reader
from healthsvc.telemetry.identity.labels import completed, gpu_id


def parse(text: str, at_s: float) -> Exposition:
    """The samples of one scrape; those that have no time are of `at_s`."""
    reader = Reader()
    for line in text.split("\n"):
        before = Counter(reader.rejected)
        reader.read(f"{line} {at_s}" if line.strip() else "")
        if reader.rejected != before:  # it has a time already, or cannot be read
            reader.rejected = before
            reader.read(line)
    return reader.take()


def devices_of(samples: Mapping[str, Samples]) -> tuple[GpuId, ...]:
    """Every GPU that these samples by metric name tell of, each once, in order of device_id."""
    found: dict[str, GpuId] = {}
    for each in samples.values():
        for labels in each.labels:
            gpu = gpu_id(labels)
            if gpu is not None:
                found[gpu.device_id] = completed(gpu, found.get(gpu.device_id, gpu))
    return tuple(found[device] for device in sorted(found))
