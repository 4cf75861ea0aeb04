"""nvidia_gpu_exporter (utkuozdemir): nvidia-smi's query fields in base units, and NVML's energy and XIDs.

Blind to what nvidia-smi's default backend cannot ask: energy and XIDs come from the NVML backend only.
Sources: the exporter's METRICS.md and its integration tests' expositions (GeForce, L40S, H100, H200, MIG).
"""

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue.rows import NVIDIA_SMI, Counts, Merge, Row


def _row(signal: Signal, name: str, unit: str, merge: Merge = "max", code_label: str = "", counts: Counts = "") -> Row:
    return Row(signal, f"nvidia_smi_{name}", unit, merge, NVIDIA_SMI, code_label=code_label, counts=counts)


_THROTTLED = "clocks_event_reasons_counters_"
_ERRORS = "ecc_errors_"
ROWS = (
    _row(Signal.GPU_TEMPERATURE, "temperature_gpu", "celsius"),
    _row(Signal.MEMORY_TEMPERATURE, "temperature_memory", "celsius"),
    _row(Signal.GPU_TEMPERATURE_MARGIN, "temperature_gpu_tlimit", "celsius", "min"),
    _row(Signal.POWER, "power_draw_watts", "watts"),
    _row(Signal.ENERGY, "energy_joules_total", "joules"),
    _row(Signal.SM_CLOCK, "clocks_current_sm_clock_hz", "hertz"),
    _row(Signal.GPU_UTILIZATION, "utilization_gpu_ratio", "ratio"),
    _row(Signal.POWER_LIMIT, "enforced_power_limit_watts", "watts", "last"),
    _row(Signal.POWER_LIMIT, "power_limit_watts", "watts", "last"),
    _row(Signal.SOFTWARE_THERMAL_THROTTLE, _THROTTLED + "sw_thermal_slowdown_seconds", "seconds"),
    _row(Signal.HARDWARE_THERMAL_THROTTLE, _THROTTLED + "hw_thermal_slowdown_seconds", "seconds"),
    _row(Signal.POWER_BRAKE_THROTTLE, _THROTTLED + "hw_power_brake_slowdown_seconds", "seconds"),
    _row(Signal.CLOCK_EVENT_REASONS, "clocks_event_reasons_active", "bitmask", "last"),
    _row(Signal.CLOCK_EVENT_REASONS, "clocks_throttle_reasons_active", "bitmask", "last"),
    _row(Signal.XID, "xid_errors_total", "code", "last", code_label="xid", counts="total"),
    _row(Signal.SBE_VOLATILE, _ERRORS + "corrected_volatile_total", "count"),
    _row(Signal.DBE_VOLATILE, _ERRORS + "uncorrected_volatile_total", "count"),
    _row(Signal.SBE_AGGREGATE, _ERRORS + "corrected_aggregate_total", "count"),
    _row(Signal.DBE_AGGREGATE, _ERRORS + "uncorrected_aggregate_total", "count"),
    _row(Signal.RETIRED_PAGES_SBE, "retired_pages_single_bit_ecc_count", "count"),
    _row(Signal.RETIRED_PAGES_DBE, "retired_pages_double_bit_count", "count"),
    _row(Signal.RETIRED_PAGES_PENDING, "retired_pages_pending", "bool"),
    _row(Signal.CORRECTABLE_REMAPS, "remapped_rows_correctable", "count"),
    _row(Signal.UNCORRECTABLE_REMAPS, "remapped_rows_uncorrectable", "count"),
    _row(Signal.REMAP_FAILURE, "remapped_rows_failure", "bool"),
    _row(Signal.REMAP_PENDING, "remapped_rows_pending", "bool"),
    _row(Signal.BANKS_LOW, "remapped_rows_histogram_low", "count"),
    _row(Signal.BANKS_NONE, "remapped_rows_histogram_none", "count"),
)
