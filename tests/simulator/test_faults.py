"""Each fault does what it says, and only to its targets."""

from typing import Any

import numpy as np
import pytest

from healthsvc.fleet import Signal
from healthsvc.simulator.faults import KINDS
from tests.simulator.runs import STEADY, run, same, scenario

Values = dict[Signal, np.ndarray]
FAULTS: dict[str, dict[str, Any]] = {
    "tim_drift": {"target": 3, "start_day": 1.0, "growth_percent_per_day": 10.0},
    "loop_flow_loss": {"target": "loop-1", "start_day": 1.0, "end_day": 1.25},
    "hbm_wear": {"target": 3, "start_day": 0.2, "days_to_failure": 1.5, "remaps": 4, "reset_after_hours": 1.0},
    "sudden_dbe": {"target": 3, "start_day": 1.0, "end_day": 1.5},
    "off_bus": {"target": 3, "start_day": 1.0, "end_day": 1.5},
    "constant_hot": {"target": 3, "start_day": 0.0, "excess_percent": 12.0},
    "workload_step": {"target": "node-001", "start_day": 1.0, "step_percent": 30.0},
    "node_fan_fault": {"target": "node-001", "start_day": 1.0, "remaining_ratio": 0.4},
    "recurrent_dbe": {"target": 3, "start_day": 1.0, "base_per_year": 5.0},
    "gsp_hang": {"target": 3, "start_day": 1.0, "end_day": 1.5},
    "power_cap_change": {"target": "node-001", "start_day": 1.0, "end_day": 1.5, "limit_watts": 500},
    "sbe_burst": {"target": 3, "start_day": 1.0, "hours": 2.0},
    "app_xids": {"target": "node-001", "start_day": 1.0, "hours": 3.0},
    "maintenance": {"target": "node-001", "start_day": 1.0, "end_day": 1.5},
    "decommission": {"target": "node-001", "start_day": 1.0},
}
WIDE = {"heat_wave", "power_brake"}  # these hit a whole fleet or a feed: test_heat_faults
TARGETS = {"gpu": [3], "node": list(range(8)), "cooling_loop": list(range(8))}


@pytest.fixture(scope="module")
def healthy() -> Values:
    return run(scenario(workload=STEADY))[1]


@pytest.fixture(scope="module")
def sick() -> dict[str, Values]:
    return {k: run(scenario({"kind": k, **f}, workload=STEADY))[1] for k, f in FAULTS.items()}


def rises(values: np.ndarray) -> np.ndarray:
    """Where a state or counter rises in GPU 3."""
    return np.flatnonzero(np.diff(values[3]) > 0) + 1


def test_every_kind_is_tried() -> None:
    assert FAULTS.keys() | WIDE == KINDS.keys()


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_touches_its_targets_and_nobody_else(kind: str, sick: dict[str, Values], healthy: Values) -> None:
    targets = TARGETS[KINDS[kind].targets[0]]
    others = [row for row in range(16) if row not in targets]
    assert same(sick[kind], healthy, others)
    assert not same(sick[kind], healthy, targets)


@pytest.mark.parametrize("kind", [k for k in FAULTS if FAULTS[k]["start_day"] >= 1.0])
def test_before_its_start_a_fault_changes_nothing(kind: str, sick: dict[str, Values], healthy: Values) -> None:
    for signal in (Signal.GPU_TEMPERATURE, Signal.POWER, Signal.XID, Signal.DBE_AGGREGATE):
        assert np.array_equal(sick[kind][signal][:, :1440], healthy[signal][:, :1440])


def test_tim_drift_raises_the_die_and_spares_the_memory(sick: dict[str, Values], healthy: Values) -> None:
    hotter = sick["tim_drift"][Signal.GPU_TEMPERATURE][3, -60:] - healthy[Signal.GPU_TEMPERATURE][3, -60:]
    assert 2 <= hotter.mean() <= 6
    assert np.array_equal(sick["tim_drift"][Signal.MEMORY_TEMPERATURE], healthy[Signal.MEMORY_TEMPERATURE])


def test_flow_loss_shows_in_the_flow_throttles_the_loop_and_is_repaired(sick: dict[str, Values]) -> None:
    values = sick["loop_flow_loss"]
    flow = values[Signal.COOLANT_FLOW] / values[Signal.RATED_COOLANT_FLOW]
    assert flow[0, 1440 + 30 : 1800].mean() == pytest.approx(0.25, abs=0.01)
    assert flow[0, 1440 + 10] == pytest.approx(0.625, abs=0.03)
    assert flow[0, 1800:].mean() == pytest.approx(1.0, abs=0.01)
    assert flow[1].mean() == pytest.approx(1.0, abs=0.01)
    throttle = np.diff(values[Signal.THERMAL_THROTTLE], axis=1)
    assert (throttle[:8, 1440 + 30 : 1790] > 0).mean() > 0.9
    assert throttle[:8, 1830:].max() == 0
    assert throttle[8:].max() == 0


def test_worn_memory_remaps_faster_and_faster_until_a_remap_fails(sick: dict[str, Values]) -> None:
    values = sick["hbm_wear"]
    remaps = rises(values[Signal.UNCORRECTABLE_REMAPS])
    assert len(remaps) == 3
    assert values[Signal.DBE_AGGREGATE][3, -1] == 4
    failure = rises(values[Signal.REMAP_FAILURE])
    assert failure.tolist() == [round(1.7 * 1440)]
    for column in remaps:
        assert values[Signal.XID][3, column : column + 3].tolist() == [48, 63, 94]
        assert values[Signal.REMAP_PENDING][3, column] == 1
        assert values[Signal.REMAP_PENDING][3, column + 61] == 0
        assert values[Signal.DBE_VOLATILE][3, column + 61] == 0
    assert values[Signal.XID][3, failure[0] : failure[0] + 2].tolist() == [48, 64]
    assert values[Signal.REMAP_FAILURE][3, -1] == 1


def test_a_sudden_error_is_pending_until_the_reset(sick: dict[str, Values]) -> None:
    values = sick["sudden_dbe"]
    assert rises(values[Signal.DBE_AGGREGATE]).tolist() == [1440]
    assert values[Signal.XID][3, 1440:1443].tolist() == [48, 63, 63]
    pending = np.flatnonzero(values[Signal.REMAP_PENDING][3])
    assert (pending[0], pending[-1]) == (1440, 2159)
    assert values[Signal.DBE_VOLATILE][3, -1] == 0
    assert values[Signal.DBE_AGGREGATE][3, -1] == 1


def test_a_gpu_off_the_bus_says_79_and_falls_silent_until_the_reboot(sick: dict[str, Values]) -> None:
    values = sick["off_bus"]
    assert values[Signal.XID][3, 1440] == 79
    silent = np.array([np.isnan(v[3]) for s, v in values.items() if len(v) == 16])
    assert (silent == silent[0]).all()
    assert np.flatnonzero(silent[0]).tolist() == list(range(1441, 2160))
    assert values[Signal.XID][3, 2160] == 0
    assert values[Signal.ENERGY][3, 2160] < values[Signal.ENERGY][3, 1440]


def test_decoys_are_warmer_but_do_not_throttle(sick: dict[str, Values], healthy: Values) -> None:
    hot = sick["constant_hot"][Signal.GPU_TEMPERATURE][3] - healthy[Signal.GPU_TEMPERATURE][3]
    assert 3 <= hot.mean() <= 7
    assert sick["constant_hot"][Signal.THERMAL_THROTTLE].max() == 0
    busier = sick["workload_step"][Signal.POWER][:8, 1440:] - healthy[Signal.POWER][:8, 1440:]
    assert busier.mean() > 5
    assert sick["workload_step"][Signal.THERMAL_THROTTLE].max() == 0


def test_the_worst_day_of_one_gpu_does_not_move_the_faults_of_another(sick: dict[str, Values]) -> None:
    wear, loss = {"kind": "hbm_wear", **FAULTS["hbm_wear"]}, {"kind": "off_bus", "target": 9, "start_day": 1.0}
    together = run(scenario(wear, loss, workload=STEADY))[1]
    assert same(together, sick["hbm_wear"], [3])
