"""Ten-minute summaries: which windows they cover, and which signal speaks for which."""

from dataclasses import replace

import numpy as np
import pytest

from healthsvc.features.windows import Summaries, inlet_by_gpu, preferred, summarise, thermal_throttle_seconds
from healthsvc.fleet import FleetWindow, Placement, PlaceSeries, Signal, build_topology
from healthsvc.telemetry.framing.grid import increments
from tests.histories import NOW_S, flat_window, make_gpus, make_window

NAN = np.nan


def summary(window: FleetWindow, inlet: float = NAN) -> Summaries:
    return summarise(window, np.full((len(window.gpus), len(window.times_s)), inlet, np.float32))


def shifted(window: FleetWindow, by_s: float) -> FleetWindow:
    return replace(window, times_s=window.times_s + by_s)


@pytest.mark.parametrize(
    ("columns", "by_s", "ends"),
    [
        (20, 0, [-600, 0]),
        (20, 60, [0]),
        (21, 60, [-600, 0]),
        (20, 540, [0]),
        (21, -60, [-600]),
        (30, -60, [-1200, -600]),
    ],
)
def test_only_whole_windows_on_ten_minute_marks_are_summarised(columns: int, by_s: float, ends: list[float]) -> None:
    """`columns` minutes that end `by_s` after a mark."""
    day = summary(shifted(flat_window(2, columns), by_s))
    assert (day.ends_s - NOW_S).tolist() == ends


def test_a_window_summarises_its_own_ten_columns() -> None:
    temperature = np.arange(25.0)[None, :]
    day = summary(make_window({Signal.GPU_TEMPERATURE: temperature}))
    assert day.ends_s.tolist() == [NOW_S - 600, NOW_S]
    assert day.columns["gpu_temperature_celsius"].tolist() == [[9.5, 19.5]]
    assert day.columns["samples"].tolist() == [[10, 10]]


def test_a_window_shorter_than_ten_minutes_leaves_no_summary() -> None:
    assert len(summary(flat_window(2, 9)).ends_s) == 0


def test_the_energy_counter_beats_the_power_gauge() -> None:
    day = summary(flat_window(1, 10, extra={Signal.POWER: 500.0, Signal.ENERGY: 400.0 * 60}))
    assert day.columns["power_watts"].tolist() == [[400]]
    gauge = summary(flat_window(1, 10, extra={Signal.POWER: 500.0}))
    assert gauge.columns["power_watts"].tolist() == [[500]]


@pytest.mark.parametrize("gone", [slice(3, 6), slice(7, 13), slice(0, 4), slice(8, 20)])
def test_missed_energy_samples_leave_the_mean_power_as_it_was(gone: slice) -> None:
    """What was used during a gap lands on the sample that ends it; it must not count as used in one step."""
    raw = 1e9 + 400.0 * 60 * np.arange(31.0)
    raw[1:][gone] = NAN
    energy, _ = increments(raw[None, 1:], raw[:1])
    power = summary(make_window({Signal.ENERGY: energy})).columns["power_watts"][0]
    assert all(np.isnan(p) or p == pytest.approx(400, rel=1e-6) for p in power)
    assert np.isnan(power).sum() == (gone == slice(8, 20))  # a window without a sample has no power


def test_what_nobody_reports_is_nan() -> None:
    day = summary(flat_window(1, 10))
    for name in ("memory_temperature_celsius", "dbe_errors", "remap_failure_bool", "hardware_throttle_s"):
        assert np.isnan(day.columns[name]).all(), name


def test_counts_keep_their_last_digit() -> None:
    """17,700 errors a second are 1.06e6 a minute; a window holds more than float32 can count."""
    day = summary(flat_window(1, 10, extra={Signal.SBE_AGGREGATE: 16_777_214.0}))
    assert day.columns["sbe_errors"].dtype == np.float64
    assert day.columns["sbe_errors"][0, 0] == 167_772_140


HEAT = {Signal.SOFTWARE_THERMAL_THROTTLE: 3.0, Signal.HARDWARE_THERMAL_THROTTLE: 4.0}


@pytest.mark.parametrize(
    ("signals", "seconds"),
    [
        (HEAT, 7.0),
        ({Signal.SOFTWARE_THERMAL_THROTTLE: 3.0, Signal.THERMAL_THROTTLE: 9.0}, 3.0),
        ({Signal.HARDWARE_THERMAL_THROTTLE: 4.0, Signal.CLOCK_EVENT_REASONS: 0x20}, 4.0),
        ({Signal.THERMAL_THROTTLE: 9.0, Signal.CLOCK_EVENT_REASONS: 0x20}, 9.0),
        ({Signal.CLOCK_EVENT_REASONS: 0x20}, 60.0),
        ({Signal.CLOCK_EVENT_REASONS: 0x40}, 60.0),
        ({Signal.CLOCK_EVENT_REASONS: 0x64}, 60.0),
        ({Signal.CLOCK_EVENT_REASONS: 0x04}, 0.0),  # a power cap is normal at full load
        ({Signal.CLOCK_EVENT_REASONS: 0x80}, 0.0),  # a power brake is not heat
        ({Signal.SOFTWARE_THERMAL_THROTTLE: 500.0}, 60.0),  # an increment over a gap
        ({}, NAN),
    ],
)
def test_throttled_seconds_come_from_the_best_source(signals: dict[Signal, float], seconds: float) -> None:
    window = make_window({s: np.full((1, 3), v) for s, v in {Signal.POWER: 1.0, **signals}.items()})
    np.testing.assert_array_equal(thermal_throttle_seconds(window), np.full((1, 3), seconds))


def test_each_gpu_has_its_own_best_source() -> None:
    software = np.array([[5.0, NAN], [NAN, NAN]])
    bits = np.array([[0.0, 0.0], [0x20, 0.0]])
    window = make_window({Signal.SOFTWARE_THERMAL_THROTTLE: software, Signal.CLOCK_EVENT_REASONS: bits})
    np.testing.assert_array_equal(thermal_throttle_seconds(window), [[5, NAN], [60, 0]])


def test_a_preferred_signal_is_never_mixed_with_its_stand_in() -> None:
    window = make_window(
        {Signal.SBE_AGGREGATE: [[1.0, NAN], [NAN, NAN]], Signal.SBE_VOLATILE: [[7.0, 7.0], [8.0, NAN]]}
    )
    chosen = preferred(window, Signal.SBE_AGGREGATE, Signal.SBE_VOLATILE)
    np.testing.assert_array_equal(chosen, [[1, NAN], [8, NAN]])


def test_coolant_supply_beats_the_inlet_sensor_where_it_is_measured() -> None:
    gpus = make_gpus(3, per_node=1)
    loops = Placement({"node-00": {"cooling_loop": "a"}, "node-01": {"cooling_loop": "b"}})
    topology = build_topology(gpus, loops)
    environment = {
        Signal.INLET: PlaceSeries("node", ("node-01", "node-00"), np.array([[22.0], [21.0]])),
        Signal.COOLANT_SUPPLY: PlaceSeries("cooling_loop", ("a",), np.array([[17.0]])),
    }
    np.testing.assert_array_equal(inlet_by_gpu(environment, topology, gpus, 1)[:, 0], [17, 22, NAN])


def test_later_summaries_replace_equal_windows_and_follow_the_gpus() -> None:
    first = summary(flat_window(2, 20))
    again = summary(flat_window(2, 10, extra={Signal.GPU_TEMPERATURE: 70.0}))
    joined = first.joined(again)
    assert joined.columns["gpu_temperature_celsius"].tolist() == [[60, 70], [60, 70]]
    assert joined.within(NOW_S - 600, NOW_S).ends_s.tolist() == [NOW_S]
    taken = joined.take(make_gpus(2), np.array([1, -1]))
    assert taken.columns["samples"][0].tolist() == [10, 10]
    assert np.isnan(taken.columns["samples"][1]).all()
