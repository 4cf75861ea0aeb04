"""NVIDIA dcgm-exporter in its three generations, and the canonical signals its fields carry.

Classic names up to exporter 4.8.4; DCGM 4.6 renamed most fields and left their units; exporter 4.9 with DCGM 4.7 added
fields in base units under names of their own. The exporter uses the name that the operator typed into its CSV, so all
spellings may be present at once. The oldest exporters (1.x) and the option --use-old-namespace write dcgm_* names.
The violation and clock event counters are nanoseconds, whatever the help text of older exporters says.

Sources: dcgm_fields.h and its deprecated aliases, go-dcgm's base_unit_fields_test.go, dcgm-exporter's
default-counters.csv and expcollector.go.
"""

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue.rows import CLASSIC, DCGM_46, DCGM_49, EXPORTER_OWN, Merge, Row

_FIELD = "DCGM_FI_DEV_"


def _row(signal: Signal, name: str, unit: str, since: str = CLASSIC, merge: Merge = "max") -> Row:
    return Row(signal, _FIELD + name, unit, merge, since)


_TEMPERATURES = (
    _row(Signal.GPU_TEMPERATURE, "GPU_TEMP", "celsius"),
    _row(Signal.GPU_TEMPERATURE, "GPU_TEMP_CELSIUS", "celsius", DCGM_46),
    _row(Signal.MEMORY_TEMPERATURE, "MEMORY_TEMP", "celsius"),
    _row(Signal.MEMORY_TEMPERATURE, "MEMORY_TEMP_CELSIUS", "celsius", DCGM_46),
    _row(Signal.GPU_TEMPERATURE_MARGIN, "GPU_TEMP_LIMIT", "celsius", merge="min"),
    _row(Signal.GPU_TEMPERATURE_MARGIN, "GPU_TEMP_MARGIN_CELSIUS", "celsius", DCGM_46, "min"),
    _row(Signal.GPU_MAX_OPERATING_LIMIT, "GPU_MAX_OP_TEMP", "celsius", merge="min"),
    _row(Signal.GPU_MAX_OPERATING_LIMIT, "GPU_MAX_OP_TEMP_CELSIUS", "celsius", DCGM_46, "min"),
    _row(Signal.GPU_SLOWDOWN_LIMIT, "SLOWDOWN_TEMP", "celsius", merge="min"),
    _row(Signal.GPU_SLOWDOWN_LIMIT, "GPU_TEMP_SLOWDOWN_CELSIUS", "celsius", DCGM_46, "min"),
    _row(Signal.GPU_SHUTDOWN_LIMIT, "SHUTDOWN_TEMP", "celsius", merge="min"),
    _row(Signal.GPU_SHUTDOWN_LIMIT, "GPU_TEMP_SHUTDOWN_CELSIUS", "celsius", DCGM_46, "min"),
    _row(Signal.MEMORY_MAX_OPERATING_LIMIT, "MEM_MAX_OP_TEMP", "celsius", merge="min"),
    _row(Signal.MEMORY_MAX_OPERATING_LIMIT, "MEMORY_MAX_OP_TEMP_CELSIUS", "celsius", DCGM_46, "min"),
)
_LOAD = (
    _row(Signal.POWER, "POWER_USAGE", "watts"),
    _row(Signal.POWER, "BOARD_POWER_WATTS", "watts", DCGM_46),
    _row(Signal.ENERGY, "TOTAL_ENERGY_CONSUMPTION", "millijoules"),
    _row(Signal.ENERGY, "GPU_ENERGY_JOULES_TOTAL", "joules", DCGM_49),
    _row(Signal.SM_CLOCK, "SM_CLOCK", "megahertz"),
    _row(Signal.SM_CLOCK, "SM_CLOCK_HERTZ", "hertz", DCGM_49),
    _row(Signal.GPU_UTILIZATION, "GPU_UTIL", "percent"),
    _row(Signal.GPU_UTILIZATION, "GPU_UTIL_RATIO", "ratio", DCGM_46),  # percent until 4.7: its values tell
    _row(Signal.POWER_LIMIT, "ENFORCED_POWER_LIMIT", "watts", merge="last"),
    _row(Signal.POWER_LIMIT, "BOARD_POWER_LIMIT_ENFORCED_WATTS", "watts", DCGM_46, "last"),
    _row(Signal.POWER_LIMIT, "POWER_MGMT_LIMIT", "watts", merge="last"),
    _row(Signal.POWER_LIMIT, "BOARD_POWER_LIMIT_REQUESTED_WATTS", "watts", DCGM_46, "last"),
)
_EVENT_TIME = "CLOCKS_EVENT_REASON_"
_THROTTLING = (
    _row(Signal.THERMAL_THROTTLE, "THERMAL_VIOLATION", "nanoseconds"),
    _row(Signal.THERMAL_THROTTLE, "GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "seconds", DCGM_49),
    _row(Signal.SOFTWARE_THERMAL_THROTTLE, _EVENT_TIME + "SW_THERM_SLOWDOWN_NS", "nanoseconds"),
    _row(Signal.HARDWARE_THERMAL_THROTTLE, _EVENT_TIME + "HW_THERM_SLOWDOWN_NS", "nanoseconds"),
    _row(Signal.POWER_BRAKE_THROTTLE, _EVENT_TIME + "HW_POWER_BRAKE_SLOWDOWN_NS", "nanoseconds"),
    _row(Signal.CLOCK_EVENT_REASONS, "CLOCKS_EVENT_REASONS", "bitmask", merge="last"),
    _row(Signal.CLOCK_EVENT_REASONS, "CLOCK_THROTTLE_REASONS", "bitmask", merge="last"),
)
# The exporter's own counts come first: they know repeats. The gauge holds the last XID until the exporter restarts; a
# new code is a new series where err_code is a label.
_XIDS = (
    Row(Signal.XID, "DCGM_EXP_XID_ERRORS_TOTAL", "code", "last", EXPORTER_OWN, code_label="xid", counts="total"),
    Row(Signal.XID, "DCGM_EXP_XID_ERRORS_COUNT", "code", "last", EXPORTER_OWN, code_label="xid", counts="window"),
    _row(Signal.XID, "XID_ERRORS", "code", merge="last"),
    _row(Signal.XID, "XID_ERROR", "code", DCGM_46, "last"),
)
_MEMORY = (
    _row(Signal.SBE_VOLATILE, "ECC_SBE_VOL_TOTAL", "count"),
    _row(Signal.DBE_VOLATILE, "ECC_DBE_VOL_TOTAL", "count"),
    _row(Signal.SBE_AGGREGATE, "ECC_SBE_AGG_TOTAL", "count"),
    _row(Signal.DBE_AGGREGATE, "ECC_DBE_AGG_TOTAL", "count"),
    _row(Signal.RETIRED_PAGES_SBE, "RETIRED_SBE", "count"),
    _row(Signal.RETIRED_PAGES_SBE, "PAGE_RETIRED_SBE_TOTAL", "count", DCGM_46),
    _row(Signal.RETIRED_PAGES_DBE, "RETIRED_DBE", "count"),
    _row(Signal.RETIRED_PAGES_DBE, "PAGE_RETIRED_DBE_TOTAL", "count", DCGM_46),
    _row(Signal.RETIRED_PAGES_PENDING, "RETIRED_PENDING", "bool"),
    _row(Signal.RETIRED_PAGES_PENDING, "PAGE_RETIRED_PENDING", "bool", DCGM_46),
    _row(Signal.CORRECTABLE_REMAPS, "CORRECTABLE_REMAPPED_ROWS", "count"),
    _row(Signal.CORRECTABLE_REMAPS, "ROW_REMAP_CORRECTABLE_TOTAL", "count", DCGM_46),
    _row(Signal.UNCORRECTABLE_REMAPS, "UNCORRECTABLE_REMAPPED_ROWS", "count"),
    _row(Signal.UNCORRECTABLE_REMAPS, "ROW_REMAP_UNCORRECTABLE_TOTAL", "count", DCGM_46),
    _row(Signal.REMAP_FAILURE, "ROW_REMAP_FAILURE", "bool"),
    _row(Signal.REMAP_FAILURE, "ROW_REMAP_FAILED", "bool", DCGM_46),
    _row(Signal.REMAP_PENDING, "ROW_REMAP_PENDING", "bool"),
    _row(Signal.BANKS_LOW, "BANKS_REMAP_ROWS_AVAIL_LOW", "count"),
    _row(Signal.BANKS_LOW, "BANK_REMAP_AVAIL_LOW", "count", DCGM_46),
    _row(Signal.BANKS_NONE, "BANKS_REMAP_ROWS_AVAIL_NONE", "count"),
    _row(Signal.BANKS_NONE, "BANK_REMAP_AVAIL_NONE", "count", DCGM_46),
    _row(Signal.SRAM_THRESHOLD, "THRESHOLD_SRM", "bool"),
    _row(Signal.SRAM_THRESHOLD, "SRAM_EXCEEDED", "bool", DCGM_46),
    _row(Signal.UNREPAIRABLE, "MEMORY_UNREPAIRABLE_FLAG", "bool"),
    _row(Signal.UNREPAIRABLE, "MEMORY_UNREPAIRABLE", "bool", DCGM_46),
    _row(Signal.PCIE_REPLAYS, "PCIE_REPLAY_COUNTER", "count"),
    _row(Signal.PCIE_REPLAYS, "PCIE_REPLAY_TOTAL", "count", DCGM_46),
)
# The names of exporter 1.x and of --use-old-namespace.
_OLD_NAMESPACE = (
    Row(Signal.GPU_TEMPERATURE, "dcgm_gpu_temp", "celsius"),
    Row(Signal.MEMORY_TEMPERATURE, "dcgm_memory_temp", "celsius"),
    Row(Signal.POWER, "dcgm_power_usage", "watts"),
    Row(Signal.ENERGY, "dcgm_total_energy_consumption", "millijoules"),
    Row(Signal.SM_CLOCK, "dcgm_sm_clock", "megahertz"),
    Row(Signal.GPU_UTILIZATION, "dcgm_gpu_utilization", "percent"),
    Row(Signal.THERMAL_THROTTLE, "dcgm_thermal_violation", "nanoseconds"),
    Row(Signal.XID, "dcgm_xid_errors", "code", "last"),
    Row(Signal.SBE_VOLATILE, "dcgm_ecc_sbe_volatile_total", "count"),
    Row(Signal.DBE_VOLATILE, "dcgm_ecc_dbe_volatile_total", "count"),
    Row(Signal.SBE_AGGREGATE, "dcgm_ecc_sbe_aggregate_total", "count"),
    Row(Signal.DBE_AGGREGATE, "dcgm_ecc_dbe_aggregate_total", "count"),
    Row(Signal.RETIRED_PAGES_SBE, "dcgm_retired_pages_sbe", "count"),
    Row(Signal.RETIRED_PAGES_DBE, "dcgm_retired_pages_dbe", "count"),
    Row(Signal.RETIRED_PAGES_PENDING, "dcgm_retired_pages_pending", "bool"),
    Row(Signal.PCIE_REPLAYS, "dcgm_pcie_replay_counter", "count"),
)
ROWS = (*_TEMPERATURES, *_LOAD, *_THROTTLING, *_XIDS, *_MEMORY, *_OLD_NAMESPACE)

# Metrics that are there for a reason and yet not read, and why.
NOT_READ = {
    "DCGM_EXP_CLOCK_EVENTS_COUNT": "counts samples of the last five minutes: one short event would look like five",
    "DCGM_EXP_CLOCK_EVENTS_TOTAL": "counts how often throttling began, not how long it lasted",
    "DCGM_EXP_GPU_HEALTH_STATUS": "a verdict of DCGM's own thresholds, not a measurement",
}
