"""Environment metrics: inlet air from ipmi_exporter, coolant under the names that sites map their CDUs to.

There is no common Prometheus name for coolant; the names here follow Redfish's CoolantConnector.
"""

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue.rows import EnvironmentRow
from healthsvc.telemetry.identity import HOST_LABELS

LOOP_LABELS = ("loop", "cooling_loop")

ROWS = (
    EnvironmentRow(
        Signal.INLET,
        "ipmi_temperature_celsius",
        "node",
        HOST_LABELS,
        matcher='name=~"(?i).*(inlet|ambient|intake).*"',  # sensor names differ by vendor
    ),
    EnvironmentRow(Signal.COOLANT_SUPPLY, "coolant_supply_temperature_celsius", "cooling_loop", LOOP_LABELS),
    EnvironmentRow(Signal.COOLANT_FLOW, "coolant_flow_liters_per_minute", "cooling_loop", LOOP_LABELS, merge="min"),
    EnvironmentRow(
        Signal.RATED_COOLANT_FLOW, "coolant_rated_flow_liters_per_minute", "cooling_loop", LOOP_LABELS, merge="last"
    ),
)
