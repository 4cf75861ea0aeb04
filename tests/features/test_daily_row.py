"""A day of summaries as one ledger row: resistance at the accuracy it is used at, counts to the last digit."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from healthsvc.features.daily import DAILY_FEATURES, DailyFeature, daily_row, definitions, inlet, steady
from healthsvc.features.windows import Summaries, summarise
from healthsvc.fleet import DAY_S, DailyLedger, FleetWindow, Placement, Signal, build_topology
from tests.histories import NOW_S, flat_window, make_gpus

DAY = round(NOW_S / DAY_S) - 1  # the day that ends at NOW_S
STEP_S = 60.0
COLUMNS = round(DAY_S / STEP_S)


def a_day(
    resistance: NDArray[np.float64],
    seed: int = 0,
    swing_celsius: float = 5.0,
    base_celsius: float = 25.0,
    least_load: float = 0.55,
) -> tuple[FleetWindow, NDArray[np.float32]]:
    """One node under hourly changing load and an inlet that swings with the day; and that inlet [gpu, time].

    Temperatures are integers, floored, as sensors report them.
    """
    rng = np.random.default_rng(seed)
    gpus = len(resistance)
    hours = np.arange(COLUMNS) / 60
    load = np.repeat(rng.uniform(least_load, 1.0, (gpus, 24)), 60, axis=1)
    power = 690 * load + rng.normal(0, 5, (gpus, COLUMNS))
    inlet = base_celsius + swing_celsius * np.sin(2 * np.pi * hours / 24)
    temperature = np.floor(inlet + resistance[:, None] * power + rng.uniform(-0.3, 0.3, power.shape))
    window = flat_window(gpus, COLUMNS, extra={Signal.POWER_LIMIT: 700.0})
    values = dict(window.values)
    values[Signal.GPU_TEMPERATURE] = temperature.astype(np.float32)
    values[Signal.POWER] = power.astype(np.float32)
    return FleetWindow(window.gpus, window.times_s, values), np.tile(inlet, (gpus, 1)).astype(np.float32)


def row_of(window: FleetWindow, inlet: NDArray[np.float32] | None = None, unfinished: bool = False) -> DailyLedger:
    nowhere = np.full((len(window.gpus), len(window.times_s)), np.nan, np.float32)
    day = summarise(window, nowhere if inlet is None else inlet)
    return daily_row(day, build_topology(window.gpus), window.step_s, DAY, unfinished)


RESISTANCE = 0.07 * np.exp(np.random.default_rng(9).normal(0, 0.03, 8))


def test_log_resistance_is_within_one_percent_with_a_measured_inlet() -> None:
    window, inlet = a_day(RESISTANCE)
    found = row_of(window, inlet).get("gpu_log_resistance")[:, 0]
    np.testing.assert_allclose(found, np.log(RESISTANCE), atol=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_log_resistance_is_within_one_percent_without_an_inlet_sensor(seed: int) -> None:
    """The inlet swings by 10 degrees and is not measured; the pseudo-inlet follows it."""
    window, _ = a_day(RESISTANCE, seed, least_load=0.9)
    found = row_of(window).get("gpu_log_resistance")[:, 0]
    np.testing.assert_allclose(found, np.log(RESISTANCE), atol=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_under_a_wild_load_the_peer_ratio_stays_within_a_fifth_of_a_percent(seed: int) -> None:
    """The level that the node has in common is then off by up to 2 % of a day, and cancels in the ratio."""
    window, _ = a_day(RESISTANCE, seed)
    found = row_of(window).get("gpu_log_resistance")[:, 0] - np.log(RESISTANCE)
    np.testing.assert_allclose(found - np.median(found), 0.0, atol=0.002)
    np.testing.assert_allclose(found, 0.0, atol=0.03)


def test_the_pseudo_inlet_is_blind_to_the_level_but_not_to_a_change_of_resistance() -> None:
    before, _ = a_day(RESISTANCE, base_celsius=31.0)
    worn = RESISTANCE.copy()
    worn[3] *= 1.05
    after, _ = a_day(worn, base_celsius=31.0)
    change = row_of(after).get("gpu_log_resistance")[:, 0] - row_of(before).get("gpu_log_resistance")[:, 0]
    level = row_of(before).get("gpu_log_resistance")[:, 0] - np.log(RESISTANCE)
    assert level.mean() > 0.05  # six degrees of inlet are taken for resistance
    assert change[3] == pytest.approx(np.log(1.05), abs=0.01)
    np.testing.assert_allclose(np.delete(change, 3), 0.0, atol=0.01)


def lone(resistance: NDArray[np.float64]) -> FleetWindow:
    """The same day, each GPU on a node of its own."""
    window, _ = a_day(resistance, base_celsius=31.0, swing_celsius=3.0)
    return FleetWindow(make_gpus(len(resistance), per_node=1), window.times_s, window.values)


def test_gpus_without_enough_neighbours_take_the_inlet_of_their_rack() -> None:
    window = lone(RESISTANCE)
    nowhere = np.full((8, COLUMNS), np.nan, np.float32)
    day = summarise(window, nowhere)
    racked = build_topology(window.gpus, Placement({gpu.hostname: {"rack": "r1"} for gpu in window.gpus}))
    scatter = []
    for topology in (racked, build_topology(window.gpus)):
        found = inlet(day, np.asarray(steady(day)), topology)
        scatter.append(float(np.std(found[0])))
    assert scatter[0] > 1.0  # follows the swing of the day
    assert scatter[1] == 0.0  # nobody to follow


def test_a_gpu_alone_reads_its_inlet_off_its_idling() -> None:
    window = lone(RESISTANCE[:1])
    values = {s: v.copy() for s, v in window.values.items()}
    idle = np.arange(COLUMNS) >= 1200
    values[Signal.POWER][0, idle] = 75.0
    values[Signal.GPU_TEMPERATURE][0, idle] = np.floor(31.0 + RESISTANCE[0] * 75.0)
    rested = replace(window, values=values)
    nowhere = np.full((1, COLUMNS), np.nan, np.float32)
    found = daily_row(summarise(rested, nowhere), build_topology(window.gpus), STEP_S, DAY, unfinished=False)
    assumed = daily_row(summarise(window, nowhere), build_topology(window.gpus), STEP_S, DAY, unfinished=False)
    assert found.get("gpu_log_resistance")[0, 0] == pytest.approx(np.log(RESISTANCE[0]), abs=0.04)
    assert assumed.get("gpu_log_resistance")[0, 0] > np.log(RESISTANCE[0]) + 0.08


@pytest.mark.parametrize(
    ("reported", "margin", "limit"),
    [(87.0, 40.0, 87.0), (np.nan, 25.0, 85.0), (np.nan, 0.0, np.nan), (np.nan, np.nan, np.nan)],
)
def test_a_limit_that_is_not_reported_is_read_off_the_margin(reported: float, margin: float, limit: float) -> None:
    extra = {Signal.GPU_MAX_OPERATING_LIMIT: reported, Signal.GPU_TEMPERATURE_MARGIN: margin}
    found = row_of(flat_window(1, COLUMNS, extra=extra)).get("gpu_max_operating_limit_celsius")[0, 0]
    np.testing.assert_equal(found, np.float32(limit))


def test_the_share_of_windows_with_an_inlet_sensor_is_kept() -> None:
    window, measured = a_day(RESISTANCE[:3])
    measured = measured.copy()
    measured[1, : COLUMNS // 4] = np.nan
    measured[2] = np.nan
    found = row_of(window, measured).get("inlet_measured_ratio")[:, 0]
    np.testing.assert_allclose(found, [1.0, 0.75, 0.0])


def test_fewer_than_twenty_steady_windows_give_no_resistance() -> None:
    window, inlet = a_day(RESISTANCE[:2])
    values = {s: v.copy() for s, v in window.values.items()}
    values[Signal.POWER][0, 170:] = np.nan  # 17 windows at most
    row = row_of(replace(window, values=values), inlet)
    assert np.isnan(row.get("gpu_log_resistance")[0, 0])
    assert 0 < row.get("steady_windows")[0, 0] < 20
    assert not np.isnan(row.get("gpu_log_resistance")[1, 0])


def test_windows_of_throttling_idling_or_changing_load_are_not_steady() -> None:
    window, inlet = a_day(RESISTANCE[:4])
    values = {s: v.copy() for s, v in window.values.items()}
    values[Signal.SOFTWARE_THERMAL_THROTTLE][0] = 1.0
    values[Signal.POWER][1] = 100.0  # below 0.35 of the limit
    values[Signal.POWER][2] = np.where(np.arange(COLUMNS) % 2, 400.0, 600.0)
    steady = row_of(replace(window, values=values), inlet).get("steady_windows")[:, 0]
    assert steady[:3].tolist() == [0, 0, 0]
    assert steady[3] > 100


def test_counts_are_exact_at_fifteen_hundred_million_a_day() -> None:
    each = 1_041_667.0  # a minute: 1.5e9 a day, far beyond float32's 16,777,216
    window = flat_window(1, COLUMNS, extra={Signal.SBE_AGGREGATE: each})
    errors = row_of(window).get("sbe_errors")
    assert errors.dtype == np.float64
    assert errors[0, 0] == each * COLUMNS
    assert row_of(window).get("sbe_windows")[0, 0] == 144


def test_features_without_their_signals_are_nan_and_the_schema_is_whole() -> None:
    row = row_of(flat_window(1, COLUMNS))
    assert row.features.keys() == DAILY_FEATURES.keys()
    for name in ("memory_log_resistance", "dbe_errors", "uncorrectable_remaps_rows", "remap_failure_bool"):
        assert np.isnan(row.get(name)).all(), name
    assert row.get("sbe_errors")[0, 0] == 0  # observed, and none


def test_exposure_and_completeness_count_samples() -> None:
    window = flat_window(2, COLUMNS)
    values = {s: v.copy() for s, v in window.values.items()}
    for array in values.values():
        array[0, : COLUMNS // 4] = np.nan
    row = row_of(replace(window, values=values))
    assert row.exposure_h[:, 0].tolist() == [18, 24]
    assert row.completeness[:, 0].tolist() == [0.75, 1]


def test_an_unfinished_day_is_judged_by_what_has_passed_of_it() -> None:
    window = flat_window(1, 60)  # the hour after midnight
    later = replace(window, times_s=window.times_s + 3600)
    day = summarise(later, np.full((1, 60), np.nan, np.float32))
    row = daily_row(day, build_topology(window.gpus), STEP_S, DAY + 1, unfinished=True)
    assert row.unfinished
    assert row.completeness[0, 0] == 1
    finished = daily_row(day, build_topology(window.gpus), STEP_S, DAY + 1, unfinished=False)
    assert finished.completeness[0, 0] == pytest.approx(1 / 24)


def test_a_silent_gpu_has_no_exposure_and_no_features() -> None:
    window = flat_window(2, COLUMNS)
    values = {s: v.copy() for s, v in window.values.items()}
    for array in values.values():
        array[1] = np.nan
    row = row_of(replace(window, values=values))
    assert row.exposure_h[1, 0] == 0
    assert all(np.isnan(v[1, 0]) for v in row.features.values())


def test_a_changed_formula_or_signal_changes_the_definition() -> None:
    feature = DAILY_FEATURES["gpu_log_resistance"]
    known = definitions()["gpu_log_resistance"]
    assert feature.definition("gpu_log_resistance") == known
    assert replace(feature, version=feature.version + 1).definition("gpu_log_resistance") != known
    assert DailyFeature(feature.requires[:1]).definition("gpu_log_resistance") != known
    assert len(set(definitions().values())) == len(DAILY_FEATURES)


def test_a_day_without_windows_is_a_row_of_nan() -> None:
    gpus = make_gpus(2)
    some = summarise(flat_window(2, 20), np.full((2, 20), np.nan, np.float32))
    none = Summaries(gpus, np.zeros(0), {k: v[:, :0] for k, v in some.columns.items()})
    row = daily_row(none, build_topology(gpus), STEP_S, DAY, unfinished=False)
    assert all(np.isnan(v).all() for v in row.features.values())
    assert row.completeness[:, 0].tolist() == [0, 0]
