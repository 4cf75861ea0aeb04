"""GPUs that are lost, hung, taken away, or merely complain about their applications."""

import numpy as np
import pytest

from healthsvc.fleet import Signal
from tests.simulator.runs import STEADY, run, scenario

Values = dict[Signal, np.ndarray]
CALM = {"application_xids_per_day": 0.0, "pcie_replays_per_day": 0.0}
LOSS = {"kind": "off_bus", "target": 3, "start_day": 3.0, "end_day": 3.5}
FALTERING = {**LOSS, "precursor_hours": 48.0, "gaps": 40, "replays": 400}


def coarse(fault: dict[str, object], days: int = 4) -> Values:
    """At 300 s: a day is 288 columns."""
    return run(scenario(fault, days=days, step_s=300, workload=STEADY, errors=CALM))[1]


@pytest.fixture(scope="module")
def faltering() -> Values:
    return coarse(FALTERING)


def test_before_it_is_lost_a_gpu_misses_samples_and_replays_more_and_more(faltering: Values) -> None:
    silent = np.isnan(faltering[Signal.POWER][3])
    before = silent[: 3 * 288]
    assert not before[:288].any()
    assert 10 <= before.sum() <= 40
    assert before[432 + 144 :].sum() > before[288 : 432 + 144].sum()
    replays = np.nan_to_num(np.diff(faltering[Signal.PCIE_REPLAYS][3, : 3 * 288]))
    assert replays[432 + 144 :].sum() > 1.5 * replays[288 : 432 + 144].sum() > 0


def test_the_missed_samples_are_single_so_that_none_is_a_loss(faltering: Values) -> None:
    silent = np.flatnonzero(np.isnan(faltering[Signal.POWER][3, : 3 * 288]))
    assert (np.diff(silent) >= 3).all()


def test_without_precursor_hours_nothing_foretells_the_loss() -> None:
    values = coarse(LOSS)
    assert not np.isnan(values[Signal.POWER][3, : 3 * 288 + 1]).any()
    assert not values[Signal.PCIE_REPLAYS].max() > 0


def test_a_gpu_that_came_back_may_fall_off_again_for_good() -> None:
    silent = np.isnan(coarse({**LOSS, "start_day": 1.0, "end_day": 1.5, "again_after_days": 1.0})[Signal.POWER][3])
    assert np.flatnonzero(np.diff(silent.astype(int))).tolist() == [288, 431, 720]
    assert silent[-1]


def test_a_hung_gpu_stays_visible_and_does_nothing_until_the_reboot() -> None:
    values = coarse({"kind": "gsp_hang", "target": 3, "start_day": 1.0, "end_day": 1.5}, days=2)
    assert not np.isnan(values[Signal.POWER][3]).any()
    assert values[Signal.XID][3, 288:290].tolist() == [119, 120]
    assert not values[Signal.GPU_UTILIZATION][3, 288:432].any()
    assert values[Signal.POWER][3, 288:432].max() < 100
    assert (values[Signal.GPU_UTILIZATION][3, 432:] > 0.9).all()
    assert values[Signal.XID][3, 432] == 0
    assert (values[Signal.GPU_UTILIZATION][[2, 4]] > 0.9).all()


def test_a_storm_of_application_xids_is_of_applications_only_and_ends() -> None:
    values = coarse({"kind": "app_xids", "target": "node-001", "start_day": 1.0, "hours": 3.0}, days=2)
    codes = values[Signal.XID][:8]
    changed = np.flatnonzero((np.diff(codes, axis=1) != 0).any(axis=0)) + 1
    assert set(np.unique(codes)) <= {0, 13, 31, 43, 45}
    assert 288 <= changed[0] <= changed[-1] <= 288 + 37
    assert (codes[:, -1] > 0).all()


def test_a_node_in_maintenance_idles_vanishes_whole_and_comes_back_with_new_counters() -> None:
    work = {"kind": "maintenance", "target": "node-001", "start_day": 1.0, "end_day": 1.5, "drain_hours": 2.0}
    values = coarse(work, days=2)
    assert not values[Signal.GPU_UTILIZATION][:8, 288:312].any()
    silent = np.isnan(values[Signal.POWER][:8])
    assert (np.flatnonzero(silent.all(axis=0)) == np.arange(312, 432)).all()
    assert np.array_equal(np.isnan(values[Signal.INLET][0]), silent[0])
    assert not np.isnan(values[Signal.INLET][1]).any()
    assert (values[Signal.ENERGY][:8, 432] < values[Signal.ENERGY][:8, 311]).all()
    assert not np.isnan(values[Signal.POWER][8:]).any()


def test_a_decommissioned_node_never_comes_back() -> None:
    silent = np.isnan(coarse({"kind": "decommission", "target": "node-001", "start_day": 1.0}, days=2)[Signal.POWER])
    assert silent[:8, 288:].all()
    assert not silent[:8, :288].any()
    assert not silent[8:].any()
