"""Environment metrics: inlet air from whoever reads a server's sensors, coolant under the names that sites map to.

Inlet: ipmi_exporter, idrac_exporter, the Redfish exporters (jenningsloy318, SAP), node_exporter's hwmon. Of several
that a node has, the earlier wins. There is no common Prometheus name for coolant; the canonical ones follow Redfish's
CoolantConnector, and a site says with an expression how its own metrics become them.
"""

from collections.abc import Sequence

from healthsvc.config import CoolingName, EnvironmentSettings
from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue.rows import EnvironmentRow, Merge
from healthsvc.telemetry.identity.labels import HOST_LABELS

_DEFAULTS = EnvironmentSettings()
# The metric of each exporter of inlet temperatures, and its label that names the sensor. Names of the sensor at the
# cold side differ by vendor: "Inlet Temp" (Dell), "01-Inlet Ambient" (HPE), "Front Panel", "Sys Amb".
_INLETS = (
    ("ipmi_temperature_celsius", "name"),
    ("idrac_sensors_temperature", "name"),
    ("redfish_chassis_temperature_celsius", "sensor"),
    ("redfish_temperature_Celsius", "name"),
    ("redfish_temperature_celsius", "sensor"),
)
HWMON, HWMON_NAMES = "node_hwmon_temp_celsius", "node_hwmon_sensor_label"
_HWMON_RANK = 100
MAPPED: dict[CoolingName, Signal] = {
    "inlet_temperature_celsius": Signal.INLET,
    "coolant_supply_temperature_celsius": Signal.COOLANT_SUPPLY,
    "coolant_flow_liters_per_minute": Signal.COOLANT_FLOW,
    "coolant_rated_flow_liters_per_minute": Signal.RATED_COOLANT_FLOW,
}
# Two readings of one loop: the lower flow is the careful one; a rating is what was written last.
_MERGE: dict[Signal, Merge] = {Signal.COOLANT_FLOW: "min", Signal.RATED_COOLANT_FLOW: "last"}


def _quoted(pattern: str) -> str:
    inside = f"(?i).*{pattern}.*"
    return inside.replace("\\", "\\\\").replace('"', '\\"')


def node_labels(settings: EnvironmentSettings) -> tuple[str, ...]:
    """Labels that name a node: the site's own, then the usual ones."""
    return (*settings.node_labels, *HOST_LABELS) if settings.node_labels else HOST_LABELS


def metric_rows(settings: EnvironmentSettings = _DEFAULTS) -> tuple[EnvironmentRow, ...]:
    """One row a metric that is asked for by its name: inlet sensors, and coolant under the canonical names."""
    inlets = tuple(
        EnvironmentRow(
            Signal.INLET,
            metric,
            "node",
            node_labels(settings),
            matcher=f'{label}=~"{_quoted(settings.inlet_sensor)}"',
            rank=rank,
        )
        for rank, (metric, label) in enumerate(_INLETS)
    )
    coolants = tuple(
        EnvironmentRow(signal, name, "cooling_loop", settings.loop_labels, merge=_MERGE.get(signal, "max"))
        for name, signal in MAPPED.items()
        if signal is not Signal.INLET
    )
    return inlets + coolants


def hwmon_row(settings: EnvironmentSettings) -> tuple[EnvironmentRow, str]:
    """node_exporter's temperatures of the sensors that a second metric calls inlets: the row, and its expression."""
    names = f'{HWMON_NAMES}{{label=~"{_quoted(settings.inlet_sensor)}"}}'
    expression = f"{HWMON} * on (instance, chip, sensor) group_left (label) {names}"
    return EnvironmentRow(Signal.INLET, HWMON, "node", node_labels(settings), rank=_HWMON_RANK), expression


def mapped_row(name: CoolingName, settings: EnvironmentSettings, present: Sequence[str]) -> EnvironmentRow:
    """The row that a site's expression fills; it goes before every other. present: labels of what came.

    The places are those whose labels came: of coolant loops, else racks, else nodes; of air nodes, else racks.
    """
    signal = MAPPED[name]
    by_layer = {
        "cooling_loop": settings.loop_labels,
        "rack": settings.rack_labels,
        "node": node_labels(settings),
    }
    order = ("node", "rack") if signal is Signal.INLET else ("cooling_loop", "rack", "node")
    layer = next((layer for layer in order if set(by_layer[layer]) & set(present)), order[0])
    return EnvironmentRow(signal, name, layer, by_layer[layer], merge=_MERGE.get(signal, "max"), rank=-1)


ROWS = metric_rows()
