"""Exporter metric names and units, one table a vendor; everything behind this package speaks canonical signals only."""

from collections.abc import Iterable
from dataclasses import replace

from healthsvc.fleet import LIVENESS, Signal
from healthsvc.telemetry.catalogue import amd, dcgm, environment, nvidia_gpu_exporter, otel
from healthsvc.telemetry.catalogue.rows import EnvironmentRow, Merge, Row

# Of several rows with one signal the earlier wins, sample by sample.
GPU_ROWS: tuple[Row, ...] = (*dcgm.ROWS, *nvidia_gpu_exporter.ROWS, *amd.ROWS, *otel.ROWS)
ENVIRONMENT_ROWS: tuple[EnvironmentRow, ...] = environment.ROWS
NOT_READ = dcgm.NOT_READ

# Any of these tells that a GPU exists. A GPU off the bus keeps its last XID where everything else has stopped.
PRESENCE_METRICS = tuple(
    dict.fromkeys(row.metric for row in GPU_ROWS if row.signal in LIVENESS or row.signal is Signal.XID)
)


def rows_in(names: Iterable[str]) -> tuple[Row, ...]:
    """The rows whose metric is among `names`, in the order of GPU_ROWS.

    Some pipelines write all names in small letters (AKS); such a row comes back with the name as written there.
    """
    present = frozenset(names)
    small = {name.lower(): name for name in sorted(present) if name == name.lower()}
    found = []
    for row in GPU_ROWS:
        if row.metric in present:
            found.append(row)
        if (other := small.get(row.metric.lower())) is not None and other != row.metric:
            found.append(replace(row, metric=other))
    return tuple(found)


def presence_in(names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that tell of a GPU's presence, each once."""
    telling = (row.metric for row in rows_in(names) if row.signal in LIVENESS or row.signal is Signal.XID)
    return tuple(dict.fromkeys(telling))


__all__ = [
    "ENVIRONMENT_ROWS",
    "GPU_ROWS",
    "NOT_READ",
    "PRESENCE_METRICS",
    "EnvironmentRow",
    "Merge",
    "Row",
    "presence_in",
    "rows_in",
]
