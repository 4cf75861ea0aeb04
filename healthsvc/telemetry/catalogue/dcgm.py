"""NVIDIA dcgm-exporter: classic field names (exporter <= 4.8.4) and the canonical signals they carry.

Source: DCGM field identifiers (dcgm_fields.h) and dcgm-exporter's default-counters.csv. The violation and clock event
counters are nanoseconds, whatever the help text of older exporters says. The exporter uses the name that the operator
typed into its CSV, so both spellings of a renamed field may be present.
"""

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue.rows import Row

ROWS = (
    Row(Signal.GPU_TEMPERATURE, "DCGM_FI_DEV_GPU_TEMP"),
    Row(Signal.MEMORY_TEMPERATURE, "DCGM_FI_DEV_MEMORY_TEMP"),
    Row(Signal.POWER, "DCGM_FI_DEV_POWER_USAGE"),
    Row(Signal.ENERGY, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", scale=1e-3),  # mJ
    Row(Signal.SM_CLOCK, "DCGM_FI_DEV_SM_CLOCK", scale=1e6),  # MHz
    Row(Signal.GPU_UTILIZATION, "DCGM_FI_DEV_GPU_UTIL", scale=1e-2),  # percent
    Row(Signal.POWER_LIMIT, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", merge="last"),
    Row(Signal.POWER_LIMIT, "DCGM_FI_DEV_POWER_MGMT_LIMIT", merge="last"),
    Row(Signal.GPU_MAX_OPERATING_LIMIT, "DCGM_FI_DEV_GPU_MAX_OP_TEMP", merge="min"),
    Row(Signal.GPU_SLOWDOWN_LIMIT, "DCGM_FI_DEV_SLOWDOWN_TEMP", merge="min"),
    Row(Signal.MEMORY_MAX_OPERATING_LIMIT, "DCGM_FI_DEV_MEM_MAX_OP_TEMP", merge="min"),
    Row(Signal.THERMAL_THROTTLE, "DCGM_FI_DEV_THERMAL_VIOLATION", scale=1e-9),  # ns
    Row(Signal.SOFTWARE_THERMAL_THROTTLE, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", scale=1e-9),
    Row(Signal.HARDWARE_THERMAL_THROTTLE, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", scale=1e-9),
    Row(Signal.POWER_BRAKE_THROTTLE, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", scale=1e-9),
    Row(Signal.CLOCK_EVENT_REASONS, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", merge="last"),
    Row(Signal.CLOCK_EVENT_REASONS, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", merge="last"),
    # The last XID, held until the exporter restarts; a new code is a new series where err_code is a label.
    Row(Signal.XID, "DCGM_FI_DEV_XID_ERRORS", merge="last"),
    Row(Signal.SBE_VOLATILE, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    Row(Signal.DBE_VOLATILE, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    Row(Signal.SBE_AGGREGATE, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
    Row(Signal.DBE_AGGREGATE, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
    Row(Signal.RETIRED_PAGES_DBE, "DCGM_FI_DEV_RETIRED_DBE"),
    Row(Signal.RETIRED_PAGES_PENDING, "DCGM_FI_DEV_RETIRED_PENDING"),
    Row(Signal.CORRECTABLE_REMAPS, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    Row(Signal.UNCORRECTABLE_REMAPS, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    Row(Signal.REMAP_FAILURE, "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    Row(Signal.REMAP_PENDING, "DCGM_FI_DEV_ROW_REMAP_PENDING"),
    Row(Signal.BANKS_LOW, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW"),
    Row(Signal.BANKS_NONE, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE"),
    Row(Signal.PCIE_REPLAYS, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
)
