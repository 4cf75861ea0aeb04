"""The canonical signals: one name, one base unit, one kind each, whatever the exporter called them.

Vendors and exporter generations end in `healthsvc.telemetry.catalogue`; everything behind it speaks these names only.
"""

from enum import StrEnum
from typing import Literal

Kind = Literal["gauge", "counter", "state"]


class Signal(StrEnum):
    """A canonical signal; the value ends in its base unit (celsius, watts, seconds, ratio 0-1, counts)."""

    GPU_TEMPERATURE = "gpu_temperature_celsius"
    MEMORY_TEMPERATURE = "memory_temperature_celsius"
    POWER = "power_watts"
    ENERGY = "energy_joules"
    SM_CLOCK = "sm_clock_hertz"
    GPU_UTILIZATION = "gpu_utilization_ratio"
    POWER_LIMIT = "power_limit_watts"
    GPU_MAX_OPERATING_LIMIT = "gpu_max_operating_limit_celsius"
    GPU_SLOWDOWN_LIMIT = "gpu_slowdown_limit_celsius"
    GPU_SHUTDOWN_LIMIT = "gpu_shutdown_limit_celsius"
    MEMORY_MAX_OPERATING_LIMIT = "memory_max_operating_limit_celsius"
    GPU_TEMPERATURE_MARGIN = "gpu_temperature_margin_celsius"  # T.Limit: signed, falls as the GPU heats
    THERMAL_THROTTLE = "thermal_throttle_seconds"
    SOFTWARE_THERMAL_THROTTLE = "software_thermal_throttle_seconds"
    HARDWARE_THERMAL_THROTTLE = "hardware_thermal_throttle_seconds"
    POWER_BRAKE_THROTTLE = "power_brake_throttle_seconds"
    CLOCK_EVENT_REASONS = "clock_event_reasons_bitmask"
    XID = "xid_code"
    SBE_VOLATILE = "sbe_volatile_errors"
    DBE_VOLATILE = "dbe_volatile_errors"
    SBE_AGGREGATE = "sbe_aggregate_errors"
    DBE_AGGREGATE = "dbe_aggregate_errors"
    RETIRED_PAGES_SBE = "retired_pages_sbe_pages"
    RETIRED_PAGES_DBE = "retired_pages_dbe_pages"
    RETIRED_PAGES_PENDING = "retired_pages_pending_bool"
    CORRECTABLE_REMAPS = "correctable_remaps_rows"
    UNCORRECTABLE_REMAPS = "uncorrectable_remaps_rows"
    REMAP_FAILURE = "remap_failure_bool"
    REMAP_PENDING = "remap_pending_bool"
    BANKS_LOW = "banks_with_low_spares_banks"
    BANKS_NONE = "banks_without_spares_banks"
    SRAM_THRESHOLD = "sram_threshold_exceeded_bool"
    UNREPAIRABLE = "memory_unrepairable_bool"
    PCIE_REPLAYS = "pcie_replays_errors"
    DRIVER_RELOADS = "driver_reloads_restarts"  # derived: the energy counter restarts with the driver

    # Environment: one series a place (a node, a cooling loop), not a GPU.
    INLET = "inlet_celsius"
    COOLANT_SUPPLY = "coolant_supply_celsius"
    COOLANT_FLOW = "coolant_flow_liters_per_minute"
    RATED_COOLANT_FLOW = "rated_coolant_flow_liters_per_minute"

    @property
    def kind(self) -> Kind:
        """`counter` increments are differenced from raw values; `state` holds its last value; the rest are gauges."""
        if self in COUNTERS:
            return "counter"
        return "state" if self in STATES else "gauge"


# Remapped rows and retired pages persist in the InfoROM: they are totals, so they are differenced like counters.
COUNTERS = frozenset(
    {
        Signal.ENERGY,
        Signal.THERMAL_THROTTLE,
        Signal.SOFTWARE_THERMAL_THROTTLE,
        Signal.HARDWARE_THERMAL_THROTTLE,
        Signal.POWER_BRAKE_THROTTLE,
        Signal.SBE_VOLATILE,
        Signal.DBE_VOLATILE,
        Signal.SBE_AGGREGATE,
        Signal.DBE_AGGREGATE,
        Signal.RETIRED_PAGES_SBE,
        Signal.RETIRED_PAGES_DBE,
        Signal.CORRECTABLE_REMAPS,
        Signal.UNCORRECTABLE_REMAPS,
        Signal.PCIE_REPLAYS,
    }
)
STATES = frozenset(
    {
        Signal.XID,
        Signal.CLOCK_EVENT_REASONS,
        Signal.RETIRED_PAGES_PENDING,
        Signal.REMAP_FAILURE,
        Signal.REMAP_PENDING,
        Signal.BANKS_LOW,
        Signal.BANKS_NONE,
        Signal.SRAM_THRESHOLD,
        Signal.UNREPAIRABLE,
        Signal.POWER_LIMIT,
        Signal.GPU_MAX_OPERATING_LIMIT,
        Signal.GPU_SLOWDOWN_LIMIT,
        Signal.GPU_SHUTDOWN_LIMIT,
        Signal.MEMORY_MAX_OPERATING_LIMIT,
    }
)
ENVIRONMENT = frozenset({Signal.INLET, Signal.COOLANT_SUPPLY, Signal.COOLANT_FLOW, Signal.RATED_COOLANT_FLOW})
GPU_SIGNALS = tuple(s for s in Signal if s not in ENVIRONMENT)

# Any of these proves that the GPU answered; a GPU is lost when all of them stop while its node stays.
LIVENESS = frozenset({Signal.GPU_TEMPERATURE, Signal.POWER, Signal.ENERGY, Signal.SM_CLOCK, Signal.GPU_UTILIZATION})

# Throttle time that means heat. A power cap is normal at full load and is not among them (clock event bit 2).
THERMAL_THROTTLE_SOURCES = (
    Signal.SOFTWARE_THERMAL_THROTTLE,
    Signal.HARDWARE_THERMAL_THROTTLE,
    Signal.THERMAL_THROTTLE,
)
