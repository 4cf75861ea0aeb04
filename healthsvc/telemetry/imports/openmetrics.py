"""Dumps of samples with their times: OpenMetrics or Prometheus text, and `promtool tsdb dump`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.exposition import Reader
from healthsvc.telemetry.imports.nvidia_smi import Tally

_LATEST_S = 1e11  # a larger number is in milliseconds, as Prometheus' own text has it; OpenMetrics has seconds


def read_dump(text: Iterable[str], wanted: frozenset[str], tally: Tally) -> Iterator[tuple[str, Samples]]:
    """(metric, samples) of every wanted metric, block by block; tells `tally` the rest.

    Blind to samples without a time: they are counted as malformed.
    """
    tally.kind = "openmetrics"
    reader = Reader(openmetrics=True, only=wanted)
    for block in text:
        reader.read(block)
        found = reader.take()
        for reason, count in found.rejected.items():
            tally.rejected["row", reason] += count
        for metric, samples in found.samples.items():
            tally.rows += len(samples.values)
            at = samples.times_s
            yield metric, replace(samples, times_s=np.where(at > _LATEST_S, at / 1e3, at))
