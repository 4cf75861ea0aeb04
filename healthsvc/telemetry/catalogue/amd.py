"""AMD device-metrics-exporter, with and without the prefix that its configuration may add (amd_ in AMD's dashboards).

Only partition 0 of a partitioned GPU is read: the others report zeros for what belongs to the whole board. Series
without a gpu_id come from other exporters, whose names are as plain as these. The residency counters of throttling
are not read: their unit is not documented.
Source: the exporter's docs/configuration/metricslist.md; GPU_ENERGY_CONSUMED is in microjoules there.
"""

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue.rows import AMD, Merge, Row

_BOARD = 'gpu_id!="",gpu_partition_id=~"0?"'
_SYSTEM = _BOARD + ',clock_type=~"(GPU_CLOCK_TYPE_)?SYSTEM|system"'
_PREFIXES = ("", "amd_")


def _rows(signal: Signal, name: str, unit: str, matcher: str = _BOARD, merge: Merge = "max") -> tuple[Row, ...]:
    return tuple(Row(signal, prefix + name, unit, merge, AMD, matcher) for prefix in _PREFIXES)


ROWS = (
    *_rows(Signal.GPU_TEMPERATURE, "gpu_junction_temperature", "celsius"),  # MI3xx
    *_rows(Signal.GPU_TEMPERATURE, "gpu_edge_temperature", "celsius"),  # MI2xx
    *_rows(Signal.MEMORY_TEMPERATURE, "gpu_memory_temperature", "celsius"),
    *_rows(Signal.POWER, "gpu_package_power", "watts"),
    *_rows(Signal.POWER, "gpu_average_package_power", "watts"),
    *_rows(Signal.POWER, "gpu_power_usage", "watts"),
    *_rows(Signal.ENERGY, "gpu_energy_consumed", "microjoules"),
    *_rows(Signal.SM_CLOCK, "gpu_clock", "megahertz", _SYSTEM),
    *_rows(Signal.GPU_UTILIZATION, "gpu_gfx_activity", "percent"),
    *_rows(Signal.SBE_VOLATILE, "gpu_ecc_correct_total", "count"),
    *_rows(Signal.DBE_VOLATILE, "gpu_ecc_uncorrect_total", "count"),
    *_rows(Signal.PCIE_REPLAYS, "pcie_replay_count", "count"),
)
