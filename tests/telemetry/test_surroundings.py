"""Inlet air and coolant of a real server, by metric and by expression; and GPUs that are moved and claimed twice."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from healthsvc.config import CoolingName, EnvironmentSettings, PrometheusSettings
from healthsvc.fleet import Placement, Signal, Workload
from healthsvc.telemetry.catalogue.environment import ROWS, mapped_row
from healthsvc.telemetry.catalogue.rows import predicate
from healthsvc.telemetry.framing.grid import uniform_times
from healthsvc.telemetry.prometheus import PrometheusSource
from healthsvc.telemetry.source import RawGrid
from tests import servers
from tests.servers import Series, Server

START_S = 1_700_006_400
MINUTES = 60
TIMES_S = uniform_times(START_S - 60, START_S + (MINUTES - 1) * 60, 60.0)
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "redfish-thermal-power"
SETTINGS = EnvironmentSettings.model_validate(
    {
        "mapping": {
            "coolant_supply_temperature_celsius": "cdu_supply_millicelsius / 1000",
            "coolant_flow_liters_per_minute": "cdu_flow_m3h * 1000 / 60",
        },
        "topology_labels": {"rack": "rack"},
    }
)


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def minutes(value: float, first: int = 0, last: int = MINUTES) -> list[tuple[float, float]]:
    return [(START_S + 60 * k, value) for k in range(first, last)]


def temperature(number: int, host: str, value: float, first: int = 0, last: int = MINUTES, **more: str) -> Series:
    labels = {"UUID": f"GPU-{uuid(number)}", "gpu": str(number), "Hostname": host, "instance": f"{host}:9400", **more}
    return Series("DCGM_FI_DEV_GPU_TEMP", labels, minutes(value, first, last))


def site() -> list[Series]:
    hwmon = {"instance": "10.0.0.1:9100", "chip": "c0"}
    return [
        temperature(1, "node1", 41, rack="r1"),
        temperature(2, "node2", 42, 0, 30),  # carried from node2 to node3
        temperature(2, "node3", 62, 30),
        temperature(3, "node1", 43, rack="r1"),  # claimed by two hosts
        temperature(3, "node9", 83),
        temperature(4, "node1", 44, 0, 20, GPU_I_ID="1", rack="r1"),
        temperature(4, "node1", 44, 0, 40, GPU_I_ID="2", rack="r1"),
        temperature(4, "node1", 44, 40, MINUTES, rack="r1"),
        temperature(5, "node2", 45, exported_pod="train-0", exported_namespace="team", pod="dcgm-exporter-x7k2p"),
        Series(
            "DCGM_FI_DEV_GPU_TEMP", {"UUID": uuid(1), "Hostname": "node1", "gpu": "1"}, minutes(40)
        ),  # GPU- left out
        Series("DCGM_FI_DEV_GPU_TEMP", {"UUID": "", "Hostname": "node1"}, minutes(99)),
        Series("node_hwmon_temp_celsius", {**hwmon, "sensor": "temp1"}, minutes(23)),
        Series("node_hwmon_temp_celsius", {**hwmon, "sensor": "temp2"}, minutes(77)),
        Series("node_hwmon_sensor_label", {**hwmon, "sensor": "temp1", "label": "Front Panel"}, minutes(1)),
        Series("node_hwmon_sensor_label", {**hwmon, "sensor": "temp2", "label": "CPU"}, minutes(1)),
        Series("node_uname_info", {"instance": "10.0.0.1:9100", "nodename": "node1"}, minutes(1)),
        Series("idrac_sensors_temperature", {"instance": "node2-bmc", "name": "System Board Inlet Temp"}, minutes(21)),
        Series("idrac_sensors_temperature", {"instance": "node2-bmc", "name": "CPU1 Temp"}, minutes(66)),
        Series("cdu_supply_millicelsius", {"cdu": "c1", "side": "secondary"}, minutes(31_500)),
        Series("cdu_supply_millicelsius", {"cdu": "c1", "side": "primary"}, minutes(40_000)),
        Series("cdu_flow_m3h", {"cdu": "c1"}, minutes(3)),
    ]


@pytest.fixture(
    scope="module", params=[pytest.param(n, marks=pytest.mark.servers) for n in ("prometheus", "victoria_metrics")]
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    needed = ("prometheus", "promtool") if request.param == "prometheus" else ("victoria-metrics",)
    if reason := servers.missing(*needed):
        pytest.skip(reason)
    with getattr(servers, request.param)(tmp_path_factory.mktemp("site"), site()) as server:
        yield server


def source(server: Server, environment: EnvironmentSettings = SETTINGS, **more: object) -> PrometheusSource:
    settings = PrometheusSettings.model_validate({"url": server.url, "attempts": 1, **more})
    return PrometheusSource(settings, environment=environment)


@pytest.fixture(scope="module")
def grid(server: Server) -> RawGrid:
    return source(server).read(TIMES_S)


def readings(raw: RawGrid, number: int) -> list[float]:
    row = [gpu.device_id for gpu in raw.gpus].index(f"GPU-{uuid(number)}")
    found: list[float] = raw.values[Signal.GPU_TEMPERATURE][row].tolist()
    return found


def test_a_device_in_two_spellings_is_one_and_an_empty_one_is_none(grid: RawGrid) -> None:
    assert [gpu.device_id for gpu in grid.gpus] == [f"GPU-{uuid(k)}" for k in (1, 2, 3, 4, 5)]
    assert readings(grid, 1) == [41.0] * MINUTES


def test_both_spellings_are_asked_for_where_a_query_is_split(server: Server, grid: RawGrid) -> None:
    split = source(server, shard_gpus=1).read(TIMES_S)
    np.testing.assert_array_equal(split.values[Signal.GPU_TEMPERATURE], grid.values[Signal.GPU_TEMPERATURE])
    assert split.gpus == grid.gpus
    assert split.sightings == grid.sightings


def test_a_carried_gpu_is_told_of_with_the_minute(grid: RawGrid) -> None:
    told = [(s.at_s, s.gpu.hostname) for s in grid.sightings if s.gpu.device_id == f"GPU-{uuid(2)}"]
    assert told == [(START_S, "node2"), (START_S + 30 * 60, "node3")]
    assert readings(grid, 2) == [42.0] * 30 + [62.0] * 30


def test_a_uuid_that_two_hosts_claim_is_read_from_one_of_them(grid: RawGrid) -> None:
    assert readings(grid, 3) == [43.0] * MINUTES
    assert grid.rejected[Signal.GPU_TEMPERATURE, "duplicate_device"] == MINUTES
    assert any("claimed by two hosts" in warning and "node1 and node9" in warning for warning in grid.warnings)
    assert not grid.incomplete


def test_mig_instances_fold_into_their_gpu_and_their_changes_are_told(grid: RawGrid) -> None:
    told = [(s.at_s, s.instances) for s in grid.sightings if s.gpu.device_id == f"GPU-{uuid(4)}"]
    assert told == [
        (START_S, frozenset({"1", "2"})),
        (START_S + 20 * 60, frozenset({"2"})),
        (START_S + 40 * 60, frozenset()),
    ]
    assert not grid.partitions
    assert readings(grid, 4) == [44.0] * MINUTES


def test_the_pod_of_a_gpu_is_read_with_it(grid: RawGrid) -> None:
    assert grid.workloads == {f"GPU-{uuid(5)}": Workload("team", "train-0")}


def test_inlets_of_several_exporters_come_together_under_their_nodes(grid: RawGrid) -> None:
    inlet = grid.environment[Signal.INLET]
    assert (inlet.layer, inlet.names) == ("node", ("node1", "node2-bmc"))
    np.testing.assert_array_equal(inlet.values[:, 5], [23, 21])


def test_a_sites_own_metrics_become_coolant(grid: RawGrid) -> None:
    supply, flow = grid.environment[Signal.COOLANT_SUPPLY], grid.environment[Signal.COOLANT_FLOW]
    assert (supply.layer, supply.names, flow.names) == ("cooling_loop", ("c1",), ("c1",))
    np.testing.assert_array_equal(supply.values[0], np.full(MINUTES, 31.5))
    np.testing.assert_array_equal(flow.values[0], np.full(MINUTES, 50.0))


def test_labels_tell_where_hosts_stand(server: Server) -> None:
    reader = source(server)
    assert reader.placement() is None
    reader.discover(float(TIMES_S[0]), float(TIMES_S[-1]))
    assert reader.placement() == Placement({"node1": {"rack": "r1"}})


def test_an_expression_that_no_server_takes_is_told_and_harms_nothing(server: Server) -> None:
    broken = EnvironmentSettings(mapping={"coolant_flow_liters_per_minute": "sum by (cdu"})
    raw = source(server, broken).read(TIMES_S)
    assert Signal.COOLANT_FLOW not in raw.environment
    assert any("environment.mapping.coolant_flow_liters_per_minute" in warning for warning in raw.warnings)
    assert not raw.incomplete


def test_a_single_column_is_evaluated_too(server: Server) -> None:
    raw = source(server).read(TIMES_S[-1:])
    np.testing.assert_array_equal(raw.environment[Signal.COOLANT_SUPPLY].values, [[31.5]])


@pytest.mark.parametrize(
    ("name", "labels", "layer"),
    [
        ("coolant_supply_temperature_celsius", ("cdu",), "cooling_loop"),
        ("coolant_supply_temperature_celsius", ("rack", "side"), "rack"),
        ("coolant_flow_liters_per_minute", ("hostname",), "node"),
        ("inlet_temperature_celsius", ("rack",), "rack"),
        ("inlet_temperature_celsius", (), "node"),
    ],
)
def test_a_mapped_signal_belongs_to_the_places_that_its_labels_name(
    name: CoolingName, labels: tuple[str, ...], layer: str
) -> None:
    assert mapped_row(name, SETTINGS, labels).layer == layer


def test_the_inlet_sensors_of_real_servers_are_recognised_and_no_others() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no {SHARED}")
    text = "".join(path.read_text() for path in sorted(SHARED.glob("*thermal*.json")))
    names = set(re.findall(r'"(?:Name|DeviceName)": "([^"]+)"', text))
    assert len(names) > 20
    meets = predicate(next(row for row in ROWS if row.metric == "ipmi_temperature_celsius").matcher)
    assert {name for name in names if meets({"name": name})} == {"01-Inlet Ambient"}


@pytest.mark.parametrize("sensor", ["Inlet Temp", "System Board Inlet Temp", "FP Ambient", "Front Panel 1", "SYS AMB"])
def test_vendors_names_of_the_cold_side_are_recognised(sensor: str) -> None:
    for row in ROWS:
        if row.signal is Signal.INLET:
            label = row.matcher.partition("=")[0]
            assert predicate(row.matcher)({label: sensor})
            assert not predicate(row.matcher)({label: "Exhaust Temp"})
