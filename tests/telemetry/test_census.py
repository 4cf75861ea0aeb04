"""What a server tells beside samples: exporters, drivers, and since when each metric is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.config import PrometheusSettings
from healthsvc.fleet import DAY_S
from healthsvc.telemetry.catalogue.rows import AMD, CLASSIC, DCGM_49
from healthsvc.telemetry.prometheus import PrometheusSource
from healthsvc.telemetry.recorded import RecordedSource
from healthsvc.telemetry.server.census import Exporter, Inspectable, exporters, find_first_seen
from tests import servers
from tests.servers import Series

START_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
OLD = "GPU-00000001-0000-4000-8000-000000000001"
NEW = "GPU-00000001-0000-4000-8000-000000000002"


@given(
    first_day=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 399), min_size=1),
    reach_days=st.sampled_from([30, 400]),
)
def test_the_first_day_of_every_metric_is_found(first_day: dict[str, int], reach_days: int) -> None:
    asked: list[tuple[float, float]] = []

    def names(early_s: float, late_s: float) -> frozenset[str]:
        asked.append((early_s, late_s))
        assert late_s - early_s <= reach_days * DAY_S
        return frozenset(name for name, day in first_day.items() if day * DAY_S < late_s)

    found = find_first_seen(names, first_day, 0.0, 400 * DAY_S, reach_days * DAY_S)
    assert found.keys() == first_day.keys()
    for name, day in first_day.items():
        assert day - 1 <= found[name] / DAY_S <= day
    assert len(asked) < 100


def test_the_newest_names_and_the_driver_of_each_gpu_are_told() -> None:
    told = exporters(
        [
            ("DCGM_FI_DEV_GPU_TEMP", {"UUID": OLD, "DCGM_FI_DRIVER_VERSION": "550.90.07"}),
            ("DCGM_FI_DEV_GPU_TEMP", {"UUID": NEW}),
            ("DCGM_FI_DEV_SM_CLOCK_HERTZ", {"UUID": NEW, "DCGM_FI_SYSTEM_DRIVER_VERSION": "590.48.01"}),
            ("gpu_package_power", {"gpu_id": "0", "serial_number": "69225", "gpu_partition_id": "0"}),
            ("up", {"job": "dcgm"}),
        ]
    )
    assert told == {
        OLD: Exporter(CLASSIC, "550.90.07"),
        NEW: Exporter(DCGM_49, "590.48.01"),
        "69225": Exporter(AMD, ""),
    }


def fleet() -> list[Series]:
    """One GPU for ten days; another, on a newer exporter, for the last two."""
    old = {"UUID": OLD, "Hostname": "node-a", "DCGM_FI_DRIVER_VERSION": "550.90.07"}
    new = {"UUID": NEW, "hostname": "node-b", "DCGM_FI_SYSTEM_DRIVER_VERSION": "590.48.01"}
    minutes = [START_S + 60.0 * k for k in range(0, 10 * 1440, 5)]
    late = [at_s for at_s in minutes if at_s > START_S + 8 * DAY_S]
    return [
        Series("DCGM_FI_DEV_GPU_TEMP", {**old, "pod": "a"}, [(at_s, 50.0) for at_s in minutes]),
        Series("DCGM_FI_DEV_GPU_TEMP", {**old, "pod": "b"}, [(at_s, 50.0) for at_s in minutes]),
        Series("DCGM_FI_DEV_SM_CLOCK_HERTZ", new, [(at_s, 1.9e9) for at_s in late]),
    ]


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["prometheus", "victoria_metrics"])
def test_a_real_server_tells_exporters_drivers_and_first_days(kind: str, tmp_path: Path) -> None:
    program = {"prometheus": ("prometheus", "promtool"), "victoria_metrics": ("victoria-metrics",)}[kind]
    if reason := servers.missing(*program):
        pytest.skip(reason)
    end_s = START_S + 10 * DAY_S
    with getattr(servers, kind)(tmp_path, fleet()) as server:
        source = PrometheusSource(PrometheusSettings(url=server.url))
        about = source.about()
        census = source.census(end_s - 7200, end_s)
        first = source.first_seen(["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK_HERTZ", "none"], START_S, end_s)
    assert about.title.startswith({"prometheus": "Prometheus", "victoria_metrics": "VictoriaMetrics"}[kind])
    assert abs(about.ahead_s) < 5
    assert census == {OLD: Exporter(CLASSIC, "550.90.07"), NEW: Exporter(DCGM_49, "590.48.01")}
    assert first["DCGM_FI_DEV_GPU_TEMP"] == START_S
    assert first["DCGM_FI_DEV_SM_CLOCK_HERTZ"] <= START_S + 8 * DAY_S
    assert "none" not in first


def test_a_recording_tells_samples_only() -> None:
    assert not issubclass(RecordedSource, Inspectable)
    assert issubclass(PrometheusSource, Inspectable)
