"""Exporter metric names and units, one table a vendor; everything behind this package speaks canonical signals only."""

from healthsvc.fleet import LIVENESS, Signal
from healthsvc.telemetry.catalogue import dcgm, environment
from healthsvc.telemetry.catalogue.plausible import to_base_units
from healthsvc.telemetry.catalogue.rows import EnvironmentRow, Merge, Row

GPU_ROWS: tuple[Row, ...] = (*dcgm.ROWS,)
ENVIRONMENT_ROWS: tuple[EnvironmentRow, ...] = environment.ROWS

# Any of these tells that a GPU exists. A GPU off the bus keeps its last XID where everything else has stopped.
PRESENCE_METRICS = tuple(row.metric for row in GPU_ROWS if row.signal in LIVENESS or row.signal is Signal.XID)

__all__ = [
    "ENVIRONMENT_ROWS",
    "GPU_ROWS",
    "PRESENCE_METRICS",
    "EnvironmentRow",
    "Merge",
    "Row",
    "to_base_units",
]
