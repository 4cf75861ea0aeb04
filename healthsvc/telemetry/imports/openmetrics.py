"""Dumps of samples with their times: OpenMetrics or Prometheus text, and `promtool tsdb dump`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.exposition import MOST_SERIES, Reader
from healthsvc.telemetry.imports.nvidia_smi import Tally

# A comment that only this format has, or a line that is a sample from its name to its end: a log's first cell may look
# like a name and the beginning of a number (`Quadro 4000, ...`, `Thu Nov 12 ...`).
_NUMBER = r"[-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|[Ii]nf|[Nn]a[Nn])"
_SERIES = r"(?:[a-zA-Z_:][\w:]*(?:[ \t]*\{.*\})?|\{.*\})"
_SAMPLE = rf"{_SERIES}[ \t]+{_NUMBER}(?:[ \t]+{_NUMBER})?[ \t]*(?:#.*)?$"
_DUMP = re.compile(rf"^(?:# (?:TYPE|HELP|UNIT|EOF)\b|{_SAMPLE})", re.MULTILINE)
_LATEST_S = 1e11  # a larger number is in milliseconds, as Prometheus' own text has it; OpenMetrics has seconds


def is_dump(text: str) -> bool:
    """Whether something in the text is what only a dump has."""
    return bool(_DUMP.search(text))


def read_dump(text: Iterable[str], wanted: frozenset[str], tally: Tally) -> Iterator[tuple[str, Samples]]:
    """(metric, samples) of every wanted metric, block by block; tells `tally` the rest.

    Blind to samples without a time: they are counted as malformed.
    """
    tally.kind = "openmetrics"
    reader = Reader(only=wanted)
    for block in text:
        reader.read(block)
        found = reader.take()
        for reason, count in found.rejected.items():
            tally.rejected["row", reason] += count
            if reason == "too_many_series":
                tally.note = f"more than {MOST_SERIES:,} series of GPUs: import a part of them at a time"
        for metric, samples in found.samples.items():
            tally.rows += len(samples.values)
            at = samples.times_s
            yield metric, replace(samples, times_s=np.where(at > _LATEST_S, at / 1e3, at))
