"""Samples are believed until the next one is due, and no longer; what an exporter only repeats is not believed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.fleet import Signal
from healthsvc.telemetry.framing.freshness import FROZEN_S, frozen, held_for, hold, intervals
from healthsvc.telemetry.framing.read_memory import ReadMemory
from tests import naive
from tests.telemetry.framed import GPU, OTHER, Pairs, grid, line, of, samples
from tests.telemetry.scrapes import devices_of

TEMPERATURE, POWER, ENERGY = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def every(interval_s: float, until_s: float, value: float = 50.0, without: tuple[float, float] = (0, 0)) -> Pairs:
    times = np.arange(1, until_s // interval_s + 1) * interval_s
    return [(t, value) for t in times if not without[0] < t <= without[1]]


def minutes(count: int) -> np.ndarray:
    return np.arange(1.0, count + 1) * 60.0


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 9).map(float)), min_size=1, max_size=12),
    st.sampled_from([0, 90, 150, 375]),
)
def test_a_line_is_held_as_its_twin_says(values: list[float | None], for_s: float) -> None:
    found = np.array([[np.nan if v is None else v for v in values]])
    hold(found, minutes(len(values)), np.array([float(for_s)]), None)
    assert [None if np.isnan(v) else v for v in found[0]] == naive.held(values, 60.0, for_s)


def test_the_interval_is_the_usual_one_of_a_target() -> None:
    pairs = every(15, 3000, without=(600, 1200))
    answers = samples((of(), pairs), (of(OTHER), every(120, 3000)), (of("GPU-c"), [(1.0, 2.0)]))
    found = intervals(answers.times_s, answers.counts)
    np.testing.assert_array_equal(found, [15, 120, np.nan])


def test_only_what_is_slower_than_the_grid_is_held_and_never_for_long() -> None:
    np.testing.assert_array_equal(held_for(np.array([15, 60, 120, 3600, np.nan]), 60.0), [0, 0, 150, 375, 0])


@pytest.mark.parametrize("interval_s", [5.0, 15.0, 30.0, 60.0, 90.0, 120.0, 300.0])
def test_no_interval_makes_gaps(interval_s: float) -> None:
    raw = grid({TEMPERATURE: samples((of(), every(interval_s, 3600)))}, minutes(60))
    first = int(np.ceil(interval_s / 60)) - 1
    assert line(raw, Signal.GPU_TEMPERATURE)[first:] == [50.0] * (60 - first)


def test_targets_of_many_intervals_frame_alike_in_one_fleet() -> None:
    series = [(of(device), every(interval_s, 3600)) for device, interval_s in ((GPU, 5.0), (OTHER, 60.0))]
    raw = grid({TEMPERATURE: samples(*series)}, minutes(60))
    np.testing.assert_array_equal(raw.values[Signal.GPU_TEMPERATURE][0], raw.values[Signal.GPU_TEMPERATURE][1])


def test_a_gap_longer_than_the_interval_stays_a_gap() -> None:
    raw = grid({TEMPERATURE: samples((of(), every(120, 3600, without=(1200, 2400))))}, minutes(60))
    found = line(raw, Signal.GPU_TEMPERATURE)
    assert [k for k, value in enumerate(found, 1) if value is None] == [1, *range(23, 42)]


def test_a_missed_scrape_of_a_fast_target_stays_a_gap() -> None:
    raw = grid({TEMPERATURE: samples((of(), every(60, 600, without=(240, 300))))}, minutes(10))
    assert line(raw, Signal.GPU_TEMPERATURE)[4] is None


def test_counters_are_not_held() -> None:
    pairs = [(t, 1e9 + 6.5e5 * t) for t, _ in every(120, 1200)]
    found = line(grid({ENERGY: samples((of(), pairs))}, minutes(20)), Signal.ENERGY)
    assert [value is None for value in found] == [True, False] * 10


def test_a_slow_target_has_no_gap_between_two_reads() -> None:
    memory, pairs, found = ReadMemory(), every(120, 3600), []
    for first in range(0, 60, 5):
        part = minutes(60)[first : first + 5]
        inside = [pair for pair in pairs if part[0] - 60 < pair[0] <= part[-1]]
        found += line(grid({TEMPERATURE: samples((of(), inside))}, part, memory=memory), Signal.GPU_TEMPERATURE)
    assert found[15:] == [50.0] * 45


def standstill(
    stands_s: tuple[float, float], watts: float = 80.0, step_s: float = 30.0
) -> dict[str, tuple[dict[str, str], Pairs]]:
    """An hour of an energy counter that stands still for a while."""
    times = np.arange(1, 3600 // step_s + 1) * step_s
    ran_s = times - np.clip(times - stands_s[0], 0, stands_s[1] - stands_s[0])
    energy = [(float(t), 1e9 + 8e4 * float(ran)) for t, ran in zip(times, ran_s, strict=True)]
    return {
        ENERGY: (of(), energy),
        POWER: (of(), [(float(t), watts) for t in times]),
        TEMPERATURE: (of(), [(float(t), 40.0) for t in times]),
    }


def test_an_energy_counter_that_stands_still_unmasks_a_frozen_exporter() -> None:
    raw = grid({metric: samples(one) for metric, one in standstill((1200, 2700)).items()}, minutes(60))
    for signal in (Signal.GPU_TEMPERATURE, Signal.POWER, Signal.ENERGY):
        found = line(raw, signal)
        assert [k for k, value in enumerate(found, 1) if value is None] == list(range(21, 46))
    assert raw.rejected[(Signal.GPU_TEMPERATURE, "frozen")] == 25


@pytest.mark.parametrize(
    ("stands_s", "watts"), [((1200, 1700), 80.0), ((1200, 2700), 0.0)], ids=["for a short while", "without power"]
)
def test_a_board_may_rest(stands_s: tuple[float, float], watts: float) -> None:
    raw = grid({metric: samples(one) for metric, one in standstill(stands_s, watts).items()}, minutes(60))
    assert None not in line(raw, Signal.GPU_TEMPERATURE)
    assert not raw.rejected


def test_values_that_each_scrape_repeats_are_not_frozen() -> None:
    # The exporter collects every 30 s and is scraped every 5 s.
    series = {
        metric: (labels, [(t - late, v) for t, v in pairs for late in (25, 20, 15, 10, 5, 0)])
        for metric, (labels, pairs) in standstill((3600, 3600)).items()
    }
    assert not grid({metric: samples(one) for metric, one in series.items()}, minutes(60)).rejected


def test_a_freeze_is_noticed_by_reads_of_a_minute_too() -> None:
    memory, series, found = ReadMemory(), standstill((1200, 2700)), []
    for minute in minutes(60):
        answers = {
            metric: samples((labels, [pair for pair in pairs if minute - 60 < pair[0] <= minute]))
            for metric, (labels, pairs) in series.items()
        }
        found += line(grid(answers, np.array([minute]), memory=memory), Signal.GPU_TEMPERATURE)
    missing = [k for k, value in enumerate(found, 1) if value is None]
    assert missing == list(range(30, 46))


MOMENTS = st.lists(
    st.tuples(st.sampled_from([1.0, 1.0, 1.0, 2.0, None]), st.sampled_from([300.0, 300.0, 2.0, None])), max_size=40
)


@given(st.lists(MOMENTS, min_size=1, max_size=3), st.integers(1, 39))
def test_a_standstill_is_found_as_its_twin_says_and_carried_on(
    told: list[list[tuple[float | None, float | None]]], cut: int
) -> None:
    width = max(len(each) for each in told)
    blank: list[tuple[float | None, float | None]] = [(None, None)]
    rows = [each + blank * (width - len(each)) for each in told]
    energy, power = (
        np.array([[np.nan if pair[part] is None else pair[part] for pair in each] for each in rows], np.float64)
        for part in (0, 1)
    )
    times = 200.0 * np.arange(1.0, width + 1)
    found, last, since_s = frozen(energy, power, times, None)
    for row, each in enumerate(rows):
        wanted = naive.stood_still([e for e, _ in each], [p for _, p in each], times.tolist(), FROZEN_S, 3.0)
        assert found[row].tolist() == wanted
    if cut < width:
        _, *end = frozen(energy[:, :cut], power[:, :cut], times[:cut], None)
        _, last_again, since_again = frozen(energy[:, cut:], power[:, cut:], times[cut:], (end[0], end[1]))
        np.testing.assert_array_equal(last_again, last)
        np.testing.assert_array_equal(since_again, since_s)


def test_a_counter_that_stands_still_without_power_readings_is_not_frozen() -> None:
    series = standstill((1200, 2700))
    labels, pairs = series[POWER]
    series[POWER] = (labels, [pair for pair in pairs if not 1200 < pair[0] <= 2760])
    raw = grid({metric: samples(one) for metric, one in series.items()}, minutes(60))
    assert None not in line(raw, Signal.GPU_TEMPERATURE)


def live(
    series: dict[str, list[tuple[str, Pairs]]], fleet: dict[str, set[int]], columns: int = 40
) -> dict[str, list[float | None]]:
    """The temperature of every device in reads of one column each. fleet: in which columns each is part of it."""
    memory: ReadMemory = ReadMemory()
    found: dict[str, list[float | None]] = {device: [] for device in fleet}
    for k in range(1, columns + 1):
        at_s = 60.0 * k
        here = [device for device, when in fleet.items() if k in when]
        gpus = devices_of({"": samples(*((of(device), []) for device in here))})
        answers = {}
        for metric, each in series.items():
            inside = [(of(device), [p for p in pairs if at_s - 60 < p[0] <= at_s]) for device, pairs in each]
            if any(pairs for _, pairs in inside):
                answers[metric] = samples(*((labels, pairs) for labels, pairs in inside if pairs))
        raw = grid(answers, np.array([at_s]), memory=memory, gpus=gpus)
        for row, gpu in enumerate(gpus):
            found[gpu.device_id] += line(raw, Signal.GPU_TEMPERATURE, row)
    return found


ALWAYS = set(range(1, 41))


def test_a_column_in_which_no_gpu_has_a_sample_is_held_like_any_other() -> None:
    found = live({TEMPERATURE: [(GPU, every(120, 2400))]}, {GPU: ALWAYS})[GPU]
    assert found[9:] == [50.0] * 31  # five samples tell the interval


def test_a_signal_of_which_nothing_is_left_to_hold_is_absent() -> None:
    memory = ReadMemory()
    for k in range(1, 41):
        answers = {TEMPERATURE: samples((of(), [(60.0 * k, 50.0)]))} if k <= 20 and k % 2 == 0 else {}
        gpus = devices_of({"": samples((of(), []))})
        raw = grid(answers, np.array([60.0 * k]), memory=memory, gpus=gpus)
        assert (Signal.GPU_TEMPERATURE in raw.values) == (k in {2, 4, 6, 8, *range(10, 23)})


def test_who_joins_makes_no_gap_for_the_slow() -> None:
    joins = set(range(21, 41))
    series = {TEMPERATURE: [(GPU, every(120, 2400)), (OTHER, [(60.0 * k, 40.0) for k in joins])]}
    found = live(series, {GPU: ALWAYS, OTHER: joins})
    assert found[GPU][9:] == [50.0] * 31
    assert found[OTHER] == [40.0] * 20


def test_a_slow_gpu_that_is_part_of_the_fleet_in_every_other_column_only_is_known_all_the_same() -> None:
    sometimes = set(range(2, 21, 2)) | set(range(20, 41))
    series = {TEMPERATURE: [(GPU, every(120, 2400)), (OTHER, every(60, 2400, 40.0))]}
    assert live(series, {OTHER: ALWAYS, GPU: sometimes})[GPU][10:] == [50.0] * 20


def test_a_frozen_exporter_is_found_although_others_come_and_go() -> None:
    stands = [(60.0 * k, 1e9 + min(k, 5) * 1.8e7) for k in range(1, 41)]
    steady: dict[str, list[tuple[str, Pairs]]] = {
        POWER: [(GPU, every(60, 2400, 300.0))],
        TEMPERATURE: [(GPU, every(60, 2400))],
        ENERGY: [(GPU, stands)],
    }
    for guest in (GPU[:-1] + "1", "GPU-00000001-0000-0000-0000-000000000000", OTHER):  # behind it and before it
        found = live(steady, {GPU: ALWAYS, guest: {*range(12, 20), *range(28, 36)}})[GPU]
        assert [k for k, value in enumerate(found, 1) if value is None] == list(range(15, 41))
