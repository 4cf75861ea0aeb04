"""The source against real servers that hold real blocks."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from healthsvc.config import PrometheusSettings
from healthsvc.fleet import Signal
from healthsvc.telemetry.framing.grid import frame, uniform_times
from healthsvc.telemetry.prometheus import PrometheusSource
from healthsvc.telemetry.source import RawGrid
from tests import servers
from tests.servers import Series, Server

pytestmark = pytest.mark.servers

START_S = 1_700_006_400  # a whole hour
STEP_S = 60.0
GPUS = 8
MINUTES = 6 * 60
TIMES_S = uniform_times(START_S - STEP_S, START_S + (MINUTES - 1) * STEP_S, STEP_S)


def uuid(number: int) -> str:
    return f"GPU-{number * 2:x}{number:07x}-0000-0000-0000-000000000000"


def labels(number: int, **more: str) -> dict[str, str]:
    node = f"node{number // 4}"
    identity = {"UUID": uuid(number), "gpu": str(number % 4), "Hostname": node, "modelName": "NVIDIA H100 80GB HBM3"}
    return {**identity, "pci_bus_id": f"00000000:{number:02X}:00.0", "job": "dcgm", "instance": f"{node}:9400", **more}


def every_minute(first: int, last: int, value: float, slope: float = 0.0) -> list[tuple[float, float]]:
    return [(START_S + 60 * k, value + slope * (k - first)) for k in range(first, last)]


def fleet() -> list[Series]:
    """Eight GPUs over six hours, with everything about labels and values that can go wrong."""
    series = []
    for n in range(GPUS):
        gap = range(100, 110) if n == 1 else range(0)
        temperature = [s for s in every_minute(0, MINUTES, 40 + n, 0.01) if (s[0] - START_S) // 60 not in gap]
        series.append(Series("DCGM_FI_DEV_GPU_TEMP", labels(n), temperature))
        series.append(Series("DCGM_FI_DEV_SM_CLOCK", labels(n), every_minute(0, MINUTES, 1980)))
        energy = every_minute(0, MINUTES, 1e12 + n, 42_000_000)
        series.append(Series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels(n), energy))
    # The same reading once for each of three pods.
    for pod in "abc":
        power = every_minute(0, MINUTES, 650.5)
        series.append(Series("DCGM_FI_DEV_POWER_USAGE", labels(0, pod=pod), power))
    # 60 errors in six hours, one every six minutes, while the pod changes every hour.
    for hour in range(6):
        errors = [(START_S + 60.0 * k, float((k + 1) // 6)) for k in range(60 * hour, 60 * (hour + 1))]
        series.append(Series("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", labels(2, pod=f"job-{hour}"), errors))
    # Each XID is a series of its own; here the old one is still stored beside the new one for a while.
    early = [(t - 20, v) for t, v in every_minute(0, 100, 79)]
    series.append(Series("DCGM_FI_DEV_XID_ERRORS", labels(3, err_code="79"), early))
    late = [(t - 5, v) for t, v in every_minute(90, MINUTES, 48)]
    series.append(Series("DCGM_FI_DEV_XID_ERRORS", labels(3, err_code="48"), late))
    # Blanks, and a counter that passes one of them on its way.
    violation = every_minute(0, MINUTES, 2.0**47 - 1e10, 1e9)
    series.append(Series("DCGM_FI_DEV_THERMAL_VIOLATION", labels(4), violation))
    for metric, legal, blank in (("SLOWDOWN_TEMP", 90, 9.223372036854775794e18), ("POWER_USAGE", 300.5, 2.0**47)):
        samples = every_minute(0, MINUTES, legal)
        samples[7] = (samples[7][0], blank)
        series.append(Series(f"DCGM_FI_DEV_{metric}", labels(4), samples))
    series.append(Series("DCGM_FI_DEV_MEMORY_TEMP", labels(4), every_minute(0, MINUTES, 0)))
    series.append(Series("DCGM_FI_DEV_MEMORY_TEMP", labels(5), every_minute(0, MINUTES, 71)))
    # Another exporter, and series of no GPU.
    inlet = {"name": "Inlet Temp", "job": "ipmi", "instance": "node0:9290"}
    series.append(Series("ipmi_temperature_celsius", inlet, every_minute(0, MINUTES, 24)))
    series.append(Series("ipmi_temperature_celsius", {**inlet, "name": "CPU1"}, every_minute(0, MINUTES, 88)))
    for name, value in (("flow", 30.0), ("rated_flow", 60.0)):
        metric = f"coolant_{name}_liters_per_minute"
        series.append(Series(metric, {"loop": "L1", "job": "cdu"}, every_minute(0, MINUTES, value)))
    switch = {"nvswitch": "0", "nvlink": "3", "Hostname": "node0", "job": "dcgm"}
    series.append(Series("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", switch, every_minute(0, MINUTES, 5)))
    # Renamed in the middle: the newest name counts.
    moved = [("old", 0, 100), ("new", 100, MINUTES)]
    for host, first, last in moved:
        series.append(Series("DCGM_FI_DEV_GPU_UTIL", labels(9, Hostname=host), every_minute(first, last, 50)))
    return series


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if reason := servers.missing("prometheus", "promtool"):
        pytest.skip(reason)
    with servers.prometheus(tmp_path_factory.mktemp("fleet"), fleet()) as server:
        yield server


@pytest.fixture(scope="module")
def victoria_metrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if reason := servers.missing("victoria-metrics"):
        pytest.skip(reason)
    with servers.victoria_metrics(tmp_path_factory.mktemp("fleet_vm"), fleet()) as server:
        yield server


def source(server: Server, **settings: object) -> PrometheusSource:
    return PrometheusSource(PrometheusSettings.model_validate({"url": server.url, "attempts": 1, **settings}))


def row(grid: RawGrid, number: int) -> int:
    return [gpu.device_id for gpu in grid.gpus].index(uuid(number))


@pytest.fixture(scope="module")
def grid(prometheus: Server) -> RawGrid:
    return source(prometheus).read(TIMES_S)


def test_both_servers_give_the_same_grid(grid: RawGrid, victoria_metrics: Server) -> None:
    other = source(victoria_metrics).read(TIMES_S)
    assert other.gpus == grid.gpus
    assert other.values.keys() == grid.values.keys()
    for signal, values in grid.values.items():
        np.testing.assert_array_equal(other.values[signal], values, signal.value)
    assert other.environment.keys() == grid.environment.keys()


def test_gauges_and_counters_arrive_in_base_units(grid: RawGrid) -> None:
    np.testing.assert_allclose(grid.values[Signal.GPU_TEMPERATURE][row(grid, 0), :3], [40, 40.01, 40.02])
    assert grid.values[Signal.SM_CLOCK][row(grid, 0), 0] == 1.98e9
    assert np.diff(grid.values[Signal.ENERGY][row(grid, 0)]) == pytest.approx(42_000)
    assert grid.samples > 8 * 3 * MINUTES
    assert grid.warnings == ()


def test_identity_comes_from_the_labels(grid: RawGrid) -> None:
    gpu = grid.gpus[row(grid, 5)]
    assert (gpu.hostname, gpu.index, gpu.slot) == ("node1", "1", "00000000:05:00.0")
    assert gpu.product == "NVIDIA H100 80GB HBM3"


def test_a_gap_stays_a_gap(grid: RawGrid) -> None:
    missing = np.flatnonzero(np.isnan(grid.values[Signal.GPU_TEMPERATURE][row(grid, 1)]))
    np.testing.assert_array_equal(missing, np.arange(100, 110))


def test_pods_do_not_multiply_a_reading(grid: RawGrid) -> None:
    np.testing.assert_array_equal(grid.values[Signal.POWER][row(grid, 0),], 650.5)


def test_a_change_of_pod_loses_no_increment(grid: RawGrid) -> None:
    window, _ = frame(grid)
    assert np.nansum(window.get(Signal.SBE_VOLATILE)[row(grid, 2)]) == 60


def test_the_newest_xid_series_wins(grid: RawGrid) -> None:
    codes = grid.values[Signal.XID][row(grid, 3)]
    assert codes[89] == 79
    assert set(codes[90:]) == {48}


def test_blanks_are_no_samples_and_large_counters_are(grid: RawGrid) -> None:
    throttled = grid.values[Signal.THERMAL_THROTTLE][row(grid, 4)]
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(throttled)), [10])
    assert np.diff(throttled)[20:] == pytest.approx(1)
    for signal in (Signal.GPU_SLOWDOWN_LIMIT, Signal.POWER):
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(grid.values[signal][row(grid, 4)])), [7])
    assert np.isnan(grid.values[Signal.MEMORY_TEMPERATURE][row(grid, 4)]).all()
    assert grid.values[Signal.MEMORY_TEMPERATURE][row(grid, 5), 0] == 71


def test_series_of_no_gpu_are_ignored(grid: RawGrid) -> None:
    assert Signal.PCIE_REPLAYS not in grid.values


def test_places_are_read_beside_the_gpus(prometheus: Server) -> None:
    environment = source(prometheus, selector='job="dcgm"').read(TIMES_S).environment
    assert environment[Signal.INLET].names == ("node0",)
    assert environment[Signal.INLET].values[0, 0] == 24
    assert environment[Signal.COOLANT_FLOW].layer == "cooling_loop"
    assert environment[Signal.RATED_COOLANT_FLOW].values[0, 0] == 60


def test_the_selector_narrows_every_query(prometheus: Server) -> None:
    assert source(prometheus, selector='job="nobody"').read(TIMES_S).gpus == ()
    assert {g.hostname for g in source(prometheus, selector='Hostname="node1"').discover(START_S, TIMES_S[-1])} == {
        "node1"
    }


@pytest.mark.parametrize("split", [{"shard_gpus": 1}, {"shard_gpus": 3}, {"samples_a_query": 10_000, "shard_gpus": 9}])
def test_a_split_read_equals_a_whole_one(prometheus: Server, grid: RawGrid, split: dict[str, int]) -> None:
    parts = source(prometheus, **split).read(TIMES_S)
    assert parts.gpus == grid.gpus
    assert parts.values.keys() == grid.values.keys()
    for signal, values in grid.values.items():
        np.testing.assert_array_equal(parts.values[signal], values, signal.value)


def test_two_joining_windows_equal_one(prometheus: Server, grid: RawGrid) -> None:
    reader = source(prometheus)
    halves = [reader.read(part, grid.gpus) for part in (TIMES_S[:200], TIMES_S[200:])]
    joined = np.concatenate([half.values[Signal.ENERGY] for half in halves], axis=1)
    np.testing.assert_array_equal(joined, grid.values[Signal.ENERGY])


def test_some_gpus_are_read_in_the_order_given(prometheus: Server, grid: RawGrid) -> None:
    chosen = [grid.gpus[row(grid, 6)], grid.gpus[row(grid, 1)]]
    part = source(prometheus).read(TIMES_S, chosen)
    assert part.gpus == tuple(chosen)
    whole = grid.values[Signal.GPU_TEMPERATURE][[row(grid, 6), row(grid, 1)]]
    np.testing.assert_array_equal(part.values[Signal.GPU_TEMPERATURE], whole)


@pytest.mark.parametrize("which", ["prometheus", "victoria_metrics"])
def test_the_newest_labels_win(which: str, request: pytest.FixtureRequest) -> None:
    found = source(request.getfixturevalue(which)).discover(START_S, TIMES_S[-1])
    assert len({gpu.device_id for gpu in found}) == len(found) == GPUS + 1
    assert next(gpu for gpu in found if gpu.device_id == uuid(9)).hostname == "new"


@pytest.mark.parametrize("which", ["prometheus", "victoria_metrics"])
def test_the_span_is_known_to_five_minutes(which: str, request: pytest.FixtureRequest) -> None:
    span = source(request.getfixturevalue(which)).span()
    assert span is not None
    assert START_S <= span[0] <= START_S + 300
    assert span[1] - (START_S + 60 * (MINUTES - 1)) == pytest.approx(0, abs=300)


def test_an_empty_server_has_no_gpus(prometheus_server: Server) -> None:
    empty = source(prometheus_server)
    assert empty.discover(START_S, TIMES_S[-1]) == ()
    assert empty.span() is None
    assert empty.read(TIMES_S).values == {}


def test_a_query_too_large_for_the_server_is_halved(tmp_path: Path, grid: RawGrid) -> None:
    if reason := servers.missing("prometheus", "promtool"):
        pytest.skip(reason)
    with servers.prometheus(tmp_path / "small", fleet(), flags=["--query.max-samples=700"]) as server:
        part = source(server).read(TIMES_S[:120], grid.gpus)
    np.testing.assert_array_equal(part.values[Signal.ENERGY], grid.values[Signal.ENERGY][:, :120])
