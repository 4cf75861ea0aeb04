"""OpenTelemetry's hardware conventions (hw.*) as Prometheus names them: dots become underscores, units are appended.

Errors are counted since the collector knows the GPU, so they are volatile. Blind to throttling, remapped rows and
XIDs, for which the conventions have no metric.
Source: OpenTelemetry semantic conventions, hardware: common, gpu and temperature; prometheus compatibility.
"""

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue.rows import OTEL, Row

_GPU = 'hw_type="gpu"'
_MEMORY = '(?i).*(memory|hbm).*"'

ROWS = (
    Row(
        Signal.GPU_TEMPERATURE,
        "hw_temperature_celsius",
        "celsius",
        since=OTEL,
        matcher=f'{_GPU},hw_sensor_location!~"{_MEMORY}',
    ),
    Row(
        Signal.MEMORY_TEMPERATURE,
        "hw_temperature_celsius",
        "celsius",
        since=OTEL,
        matcher=f'{_GPU},hw_sensor_location=~"{_MEMORY}',
    ),
    Row(Signal.POWER, "hw_power_watts", "watts", since=OTEL, matcher=_GPU),
    Row(Signal.ENERGY, "hw_energy_joules_total", "joules", since=OTEL, matcher=_GPU),
    # The busiest of the tasks that the conventions tell apart (general, encoder, decoder).
    Row(Signal.GPU_UTILIZATION, "hw_gpu_utilization_ratio", "ratio", since=OTEL),
    Row(
        Signal.SBE_VOLATILE,
        "hw_errors_total",
        "count",
        since=OTEL,
        matcher=f'{_GPU},error_type=~"corrected|correctable"',
    ),
    Row(
        Signal.DBE_VOLATILE,
        "hw_errors_total",
        "count",
        since=OTEL,
        matcher=f'{_GPU},error_type=~"uncorrected|uncorrectable"',
    ),
)
