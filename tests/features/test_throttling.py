"""Throttling by kind from whatever source there is, and the episodes that it makes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.throttling import ThrottleKind, throttle_episodes, throttled_seconds
from healthsvc.fleet import OPEN, FleetWindow, Floats, Signal
from tests import naive_throttling
from tests.histories import NOW_S, as_maybe, make_gpus, make_window

SOFTWARE, HARDWARE = ThrottleKind.SOFTWARE_THERMAL, ThrottleKind.HARDWARE_THERMAL
HEAT, BRAKE = ThrottleKind.THERMAL, ThrottleKind.POWER_BRAKE
BIT = {"idle": 0x1, "power cap": 0x4, "slowdown": 0x8, SOFTWARE: 0x20, HARDWARE: 0x40, BRAKE: 0x80}
NAN = np.nan


def window_of(signals: Mapping[Signal, float | Floats], columns: int = 120, step_s: float = 60.0) -> FleetWindow:
    """One GPU; a number is a constant."""
    values = {s: np.broadcast_to(np.asarray(v, np.float32), (1, columns)) for s, v in signals.items()}
    return make_window(values, step_s=step_s)


def seconds(signals: Mapping[Signal, float]) -> dict[ThrottleKind, float]:
    """What a step of such constant readings says of each kind; kinds without a source are left out."""
    window = window_of(signals, 3)
    found = {kind: float(throttled_seconds(window, kind)[0, 0]) for kind in ThrottleKind}
    return {kind: value for kind, value in found.items() if not np.isnan(value)}


def test_each_kind_has_its_own_counter() -> None:
    counters = {
        Signal.SOFTWARE_THERMAL_THROTTLE: 5.0,
        Signal.HARDWARE_THERMAL_THROTTLE: 2.0,
        Signal.POWER_BRAKE_THROTTLE: 1.0,
        Signal.THERMAL_THROTTLE: 50.0,
        Signal.CLOCK_EVENT_REASONS: 0xE0,
    }
    assert seconds(counters) == {SOFTWARE: 5, HARDWARE: 2, HEAT: 7, BRAKE: 1}


def test_the_combined_counter_counts_as_software_for_it_cannot_tell() -> None:
    assert seconds({Signal.THERMAL_THROTTLE: 9.0}) == {SOFTWARE: 9, HEAT: 9}


def test_beside_a_hardware_counter_the_combined_one_counts_for_the_rest() -> None:
    found = seconds({Signal.THERMAL_THROTTLE: 9.0, Signal.HARDWARE_THERMAL_THROTTLE: 2.0})
    assert found == {SOFTWARE: 7, HARDWARE: 2, HEAT: 2}  # as the dose of verdicts: never more than is certain


@pytest.mark.parametrize(
    ("bits", "told"),
    [
        (BIT[SOFTWARE], {SOFTWARE, HEAT}),
        (BIT["slowdown"] | BIT[HARDWARE], {HARDWARE, HEAT}),
        (BIT["slowdown"] | BIT[BRAKE], {BRAKE}),
        (BIT["power cap"], set()),
        (BIT["slowdown"], set()),
        (BIT["idle"], set()),
    ],
)
def test_clock_event_bits_tell_the_kind_and_power_cap_and_slowdown_alone_are_none(
    bits: float, told: set[ThrottleKind]
) -> None:
    found = seconds({Signal.CLOCK_EVENT_REASONS: bits})
    assert found == {kind: 60.0 if kind in told else 0.0 for kind in ThrottleKind}


def test_the_best_source_is_chosen_for_each_gpu() -> None:
    window = make_window(
        {
            Signal.POWER_BRAKE_THROTTLE: [[3, NAN], [NAN, NAN], [NAN, NAN]],
            Signal.CLOCK_EVENT_REASONS: [[0x80, 0x80], [0x80, NAN], [NAN, NAN]],
        }
    )
    np.testing.assert_array_equal(throttled_seconds(window, BRAKE), [[3, NAN], [60, NAN], [NAN, NAN]])


def test_a_gpu_without_any_source_is_unknown_and_has_no_episode() -> None:
    window = window_of({Signal.GPU_TEMPERATURE: 60.0})
    assert np.isnan(throttled_seconds(window, HEAT)).all()
    assert len(throttle_episodes(window, HEAT)) == 0


def bout(at: slice, level: float = 20.0, columns: int = 180) -> NDArray[np.float64]:
    values = np.zeros(columns)
    values[at] = level
    return values


def test_an_episode_has_its_span_and_its_dose() -> None:
    found = throttle_episodes(window_of({Signal.SOFTWARE_THERMAL_THROTTLE: bout(slice(60, 90))}, 180), SOFTWARE)
    assert found.row.tolist() == [0]
    assert (NOW_S - found.start_s[0]) / 60 == 120  # the five minutes of which column 60 is the first
    assert (NOW_S - found.end_s[0]) / 60 == 90
    assert found.dose_s_per_hour[0] == pytest.approx(30 * 20 / 0.5)
    assert found.first_dose_ratio[0] == pytest.approx(5 * 20 / 300)


def test_an_episode_lasts_until_half_an_hour_is_clear() -> None:
    for clear, lasts in ((29, True), (35, False)):
        counter = bout(slice(60, 180 - clear))
        found = throttle_episodes(window_of({Signal.SOFTWARE_THERMAL_THROTTLE: counter}, 180), SOFTWARE)
        assert bool(found.end_s[0] == OPEN) is lasts


def test_flapping_ten_times_a_second_is_one_episode_by_counter_and_by_sampled_bits() -> None:
    # 0.1 s on, 0.1 s off for an hour: a counter gains 0.5 s a second, a sampled bit is up in every other sample.
    rng = np.random.default_rng(4)
    on = np.zeros(1440)
    on[240:960] = 1.0
    counter = throttle_episodes(window_of({Signal.SOFTWARE_THERMAL_THROTTLE: 2.5 * on}, 1440, 5.0), SOFTWARE)
    bits = BIT[SOFTWARE] * on * (rng.random(1440) < 0.5)
    sampled = throttle_episodes(window_of({Signal.CLOCK_EVENT_REASONS: bits}, 1440, 5.0), SOFTWARE)
    for found in (counter, sampled):
        assert len(found) == 1
        assert found.end_s[0] - found.start_s[0] == pytest.approx(3600, abs=300)
    assert counter.dose_s_per_hour[0] == pytest.approx(1800, rel=0.05)
    assert sampled.dose_s_per_hour[0] == pytest.approx(1800, rel=0.1)


def test_bouts_more_than_half_an_hour_apart_are_episodes_of_their_own() -> None:
    counter = bout(slice(20, 30)) + bout(slice(100, 110))
    found = throttle_episodes(window_of({Signal.SOFTWARE_THERMAL_THROTTLE: counter}, 180), SOFTWARE)
    assert len(found) == 2
    assert np.isfinite(found.end_s).all()


@given(
    seed=st.integers(0, 10_000),
    step_s=st.sampled_from([15.0, 60.0, 100.0]),
    end_s=st.floats(NOW_S, NOW_S + 600),
    density=st.sampled_from([0.002, 0.01, 0.05, 0.5]),
)
def test_episodes_are_those_of_the_slow_twin(seed: int, step_s: float, end_s: float, density: float) -> None:
    rng = np.random.default_rng(seed)
    counter = rng.uniform(0, step_s, (3, 150)) * (rng.random((3, 150)) < density)
    counter[rng.random((3, 150)) < 0.1] = NAN
    window = make_window({Signal.SOFTWARE_THERMAL_THROTTLE: counter}, step_s=step_s, end_s=end_s)
    found = throttle_episodes(window, SOFTWARE)
    given_s = window.get(Signal.SOFTWARE_THERMAL_THROTTLE)
    wanted = [
        (row, *episode)
        for row in range(3)
        for episode in naive_throttling.episodes(window.times_s.tolist(), as_maybe(given_s[row]))
    ]
    ours = zip(found.row, found.start_s, found.end_s, found.dose_s_per_hour, strict=True)
    assert [tuple(map(float, each)) for each in ours] == [pytest.approx(each) for each in wanted]


@given(seed=st.integers(0, 1000), more=st.floats(0.0, 40.0))
def test_more_throttling_never_makes_less_of_it(seed: int, more: float) -> None:
    rng = np.random.default_rng(seed)
    counter = 20.0 * (rng.random((1, 180)) < 0.03)
    hotter = counter + more * (rng.random((1, 180)) < 0.03)
    spans = []
    for values in (counter, hotter):
        found = throttle_episodes(make_window({Signal.SOFTWARE_THERMAL_THROTTLE: values}), SOFTWARE)
        end_s = np.minimum(found.end_s, NOW_S)
        spans.append([(s, e) for s, e in zip(found.start_s, end_s, strict=True)])
    assert all(any(s2 <= s and e <= e2 for s2, e2 in spans[1]) for s, e in spans[0])


# -- the heat wall ----------------------------------------------------------------------------------------------------

P100_SLOWDOWN_CELSIUS = 82.0


def p100() -> dict[Signal, Floats]:
    """The numbers that were written down of a Tesla P100's run, a sample every 5 s, here after half an hour of idling.

    Source: yilufeiyang888999/AIGC_Practical_Record, as quoted in xid-kernel-logs/CASE_STUDIES.md, 2.

    70 s from 50 to 79 C at 1328 MHz and 180 to 230 W; from then on 79 to 80 C, 1303, 1050 and 999 MHz, 110 to 170 W.
    Utilization is 99 to 100 % all the while.
    """
    rng = np.random.default_rng(0)
    idle, rise, wall = 360, 14, 360

    def joined(still: float, rising: Floats, pinned: Floats) -> Floats:
        return np.concatenate([np.full(idle, still), rising, pinned])[None]

    return {
        Signal.GPU_TEMPERATURE: joined(45, np.linspace(50, 79, rise), 79.0 + (rng.random(wall) < 0.5)),
        Signal.SM_CLOCK: joined(1328e6, np.full(rise, 1328e6), np.repeat([1303e6, 1050e6, 999e6], [6, 54, 300])),
        Signal.POWER: joined(35, np.linspace(180, 230, rise), rng.uniform(110, 170, wall)),
        Signal.GPU_UTILIZATION: joined(0, np.full(rise, 0.99), rng.uniform(0.99, 1.0, wall)),
        Signal.GPU_SLOWDOWN_LIMIT: np.full((1, idle + rise + wall), P100_SLOWDOWN_CELSIUS),
    }


def p100_window(values: Mapping[Signal, Floats]) -> FleetWindow:
    window = make_window(values, step_s=5.0)
    return replace(window, gpus=make_gpus(1, product="Tesla P100-PCIE-16GB"))


def test_the_temperature_wall_of_a_p100_is_one_episode_by_heat_and_no_power_brake() -> None:
    window = p100_window(p100())
    found = throttle_episodes(window, HEAT)
    assert (len(found), found.end_s[0]) == (1, OPEN)
    assert len(throttle_episodes(window, SOFTWARE)) == 1
    assert len(throttle_episodes(window, HARDWARE)) == len(throttle_episodes(window, BRAKE)) == 0
    began_s = window.times_s[360 + 14]
    assert began_s - 300 <= found.start_s[0] <= began_s + 60
    assert found.dose_s_per_hour[0] > 0.8 * 3600


@pytest.mark.parametrize(
    ("signal", "change"),
    [
        (Signal.POWER, lambda v: np.full_like(v, 230.0)),  # a power cap
        (Signal.SM_CLOCK, lambda v: np.full_like(v, 1328e6)),  # a lighter load
        (Signal.GPU_TEMPERATURE, lambda v: v - 12.0),  # far from the limit
        (Signal.GPU_UTILIZATION, lambda v: v * 0.9),  # it waits for something
    ],
)
def test_without_one_of_its_signs_it_is_no_heat_wall(signal: Signal, change: Callable[[Floats], Floats]) -> None:
    values = p100()
    window = p100_window({**values, signal: change(values[signal])})
    assert not (throttled_seconds(window, HEAT) > 0).any()


def test_without_a_known_limit_or_one_of_the_readings_a_heat_wall_is_unknown() -> None:
    for lacking in (Signal.GPU_SLOWDOWN_LIMIT, Signal.POWER):  # of a P100 we know no limit but the reported one
        values = p100()
        values[lacking] = np.full_like(values[lacking], NAN)
        assert np.isnan(throttled_seconds(p100_window(values), HEAT)).all()


@given(degrees=st.floats(0.0, 10.0))
def test_a_hotter_heat_wall_is_no_lesser_one(degrees: float) -> None:
    values = p100()
    hotter = {**values, Signal.GPU_TEMPERATURE: values[Signal.GPU_TEMPERATURE] + degrees}
    before, after = (throttled_seconds(p100_window(v), HEAT) for v in (values, hotter))
    assert (after >= before).all()


def test_who_has_a_counter_is_not_asked_for_signs() -> None:
    window = p100_window({**p100(), Signal.THERMAL_THROTTLE: np.zeros((1, 734))})
    assert not throttled_seconds(window, HEAT).any()


def test_a_sample_or_two_with_all_signs_are_a_load_that_comes_and_goes() -> None:
    for length, wanted in ((2, 0), (3, 3)):
        down = np.zeros(60, bool)
        down[20 : 20 + length] = down[40 : 40 + length] = True
        values = {
            Signal.GPU_TEMPERATURE: np.full(60, 85.0),
            Signal.SM_CLOCK: np.where(down, 1.2e9, 1.9e9),
            Signal.POWER: np.where(down, 400.0, 690.0),
            Signal.GPU_UTILIZATION: np.ones(60),
        }
        window = make_window({signal: row[None] for signal, row in values.items()})
        assert throttled_seconds(window, HEAT).sum() == 2 * wanted * 60


def test_power_capped_gpus_at_full_load_are_never_at_a_heat_wall() -> None:
    rng = np.random.default_rng(5)
    values = {
        Signal.GPU_TEMPERATURE: 84 + rng.normal(0, 0.5, (40, 120)),
        Signal.SM_CLOCK: 1.4e9 + rng.normal(0, 5e7, (40, 120)),
        Signal.POWER: 700 + rng.normal(0, 5, (40, 120)),
        Signal.GPU_UTILIZATION: np.ones((40, 120)),
    }
    window = make_window(values)
    assert len(throttle_episodes(window, HEAT)) == 0
    assert not np.isnan(throttled_seconds(window, HEAT)).any()  # and that is known
