"""The name says the unit, the values prove it; a contradiction is told and never guessed silently."""

from itertools import accumulate, chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.fleet import Signal
from healthsvc.fleet.survey import Reading
from healthsvc.telemetry.framing.read_memory import ReadMemory
from healthsvc.telemetry.framing.units import UNITS, prove_slope, slopes, split_share
from healthsvc.telemetry.source import RawGrid
from tests import naive
from tests.telemetry.framed import GPU, OTHER, Pairs, grid, line, of, samples

TIMES = np.arange(1.0, 11) * 60.0
RATIO = "DCGM_FI_DEV_GPU_UTIL_RATIO"


def every_minute(values: list[float]) -> Pairs:
    return [(60.0 * (k + 1), value) for k, value in enumerate(values)]


def reading(raw: RawGrid, metric: str, unit: str) -> Reading:
    return next(each for each in raw.readings if each.metric == metric and each.unit == unit)


def repeated(scrape_s: float, until_s: float, per_s: float, collect_s: float = 30.0) -> Pairs:
    """A counter that an exporter collects more seldom than it is scraped."""
    times = np.arange(1, until_s // scrape_s + 1) * scrape_s
    return [(float(t), 1e9 + per_s * float(t // collect_s * collect_s)) for t in times]


def framed(metric: str, values: list[float], memory: ReadMemory | None = None) -> RawGrid:
    return grid({metric: samples((of(), every_minute(values)))}, TIMES, memory=memory)


@given(
    st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25, 0.5, 40.0, 2.0, None]), max_size=6), min_size=1, max_size=4),
    st.booleans(),
)
def test_silent_samples_go_with_their_neighbours(series: list[list[float | None]], default: bool) -> None:
    values = np.array([np.nan if v is None else v for each in series for v in each], np.float64)
    own = np.repeat(np.arange(len(series)), [len(each) for each in series])
    found = split_share(values, own, np.full(len(series), default))
    wanted = [verdict for each in series for verdict in naive.percentages(each, default)]
    assert found.tolist() == wanted


def test_a_percentage_called_a_ratio_is_read_as_one_and_told() -> None:
    raw = framed(RATIO, [91, 0, 1, 40])
    assert line(raw, Signal.GPU_UTILIZATION)[:4] == [0.91, 0.0, 0.01, 0.4]
    told = reading(raw, RATIO, "percent")
    assert told.conflict
    assert told.why == "the name says ratio, but its values exceed 1; read as percent"


def test_a_ratio_is_a_ratio() -> None:
    raw = framed(RATIO, [0.91, 0, 1, 0.4])
    assert line(raw, Signal.GPU_UTILIZATION)[:4] == [0.91, 0.0, 1.0, 0.4]
    assert not reading(raw, RATIO, "ratio").conflict


def test_an_upgrade_in_the_middle_of_a_series_changes_the_unit_there() -> None:
    raw = framed(RATIO, [91, 0, 40, 0.5, 0, 0.25])
    assert line(raw, Signal.GPU_UTILIZATION)[:6] == [0.91, 0.0, 0.4, 0.5, 0.0, 0.25]
    assert {each.unit for each in raw.readings} == {"percent", "ratio"}


def test_an_idle_neighbour_on_the_host_goes_with_the_busy_one() -> None:
    answers = samples((of(GPU), every_minute([91, 90])), (of(OTHER, gpu="1"), every_minute([1, 1])))
    assert line(grid({RATIO: answers}, TIMES), Signal.GPU_UTILIZATION, 1)[:2] == [0.01, 0.01]


def test_hosts_of_one_fleet_may_differ() -> None:
    answers = samples((of(GPU), every_minute([91, 90])), (of(OTHER, Hostname="node-b"), every_minute([1, 0.5])))
    raw = grid({RATIO: answers}, TIMES)
    assert line(raw, Signal.GPU_UTILIZATION, 1)[:2] == [1.0, 0.5]
    assert [(each.unit, each.conflict, each.gpus) for each in raw.readings] == [
        ("percent", True, 1),
        ("ratio", False, 1),
    ]


def test_what_one_read_proved_the_next_one_knows() -> None:
    memory = ReadMemory()
    framed(RATIO, [91], memory=memory)
    assert line(framed(RATIO, [1], memory=memory), Signal.GPU_UTILIZATION)[0] == 0.01
    framed(RATIO, [0.5], memory=memory)
    assert line(framed(RATIO, [1], memory=memory), Signal.GPU_UTILIZATION)[0] == 1.0


@pytest.mark.parametrize(
    ("metric", "value", "unit", "conflict"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", 1980.0, "megahertz", False),
        ("DCGM_FI_DEV_SM_CLOCK", 1.98e9, "hertz", True),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.98e9, "hertz", False),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1980.0, "megahertz", True),
    ],
)
def test_a_clock_is_what_its_size_says(metric: str, value: float, unit: str, conflict: bool) -> None:
    raw = framed(metric, [value, 0, value])
    assert line(raw, Signal.SM_CLOCK)[:3] == [1.98e9, 0.0, 1.98e9]
    assert reading(raw, metric, unit).conflict is conflict


@pytest.mark.parametrize(
    ("metric", "per_joule", "unit", "conflict"),
    [
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3, "millijoules", False),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1.0, "joules", True),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1.0, "joules", False),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1e3, "millijoules", True),
    ],
)
@pytest.mark.parametrize("watts", [12.0, 650.0, 1400.0])
def test_energy_is_what_its_slope_says(metric: str, per_joule: float, unit: str, conflict: bool, watts: float) -> None:
    raw = framed(metric, [per_joule * (1e6 + watts * 60 * k) for k in range(5)])
    assert np.diff(raw.values[Signal.ENERGY][0, :5]) == pytest.approx(watts * 60)
    told = reading(raw, metric, unit)
    assert told.conflict is conflict
    assert "W" in told.why


def test_one_wrong_reading_proves_nothing() -> None:
    values = [1e3 * (1e6 + 650 * 60 * k) for k in range(8)]
    values[3] = 6.4e14
    raw = framed("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", values)
    assert not reading(raw, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "millijoules").conflict
    assert raw.rejected == {(Signal.ENERGY, "impossible_jump"): 1}


def test_a_throttle_counter_is_nanoseconds_unless_its_name_says_seconds_and_nothing_disproves_it() -> None:
    full = [1e9 * 60 * k for k in range(5)]
    assert np.diff(
        framed("DCGM_FI_DEV_THERMAL_VIOLATION", full).values[Signal.THERMAL_THROTTLE][0, :5]
    ) == pytest.approx(60)
    seconds = "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL"
    raw = framed(seconds, [0.5 * 60 * k for k in range(5)])
    assert np.diff(raw.values[Signal.THERMAL_THROTTLE][0, :5]) == pytest.approx(30)
    raw = framed(seconds, full)
    assert np.diff(raw.values[Signal.THERMAL_THROTTLE][0, :5]) == pytest.approx(60)
    assert reading(raw, seconds, "nanoseconds").conflict


@given(st.floats(3.5, 2900), st.sampled_from(["joules", "millijoules", "microjoules"]))
def test_no_board_can_be_mistaken_for_another_unit(watts: float, unit: str) -> None:
    assert prove_slope("energy", watts / UNITS[unit].factor).unit is UNITS[unit]


def test_a_counter_that_stands_still_has_no_slope() -> None:
    minutes = np.array([0.0, 60, 120, 0, 120])
    found = slopes(np.array([5.0, 5, 5, 1, 241]), minutes, np.array([3, 2, 0]))
    np.testing.assert_array_equal(found, [np.nan, 2.0, np.nan])


ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


@pytest.mark.parametrize("scrape_s", [5.0, 10.0, 15.0, 30.0])
@pytest.mark.parametrize("watts", [12.0, 120.0, 600.0, 1000.0, 1400.0])
@pytest.mark.parametrize("columns", [1, 2, 3, 10])
def test_a_counter_that_each_scrape_repeats_keeps_its_unit(scrape_s: float, watts: float, columns: int) -> None:
    memory, joules, pairs = ReadMemory(), [], repeated(scrape_s, 1800.0, 1e3 * watts)
    for first in range(0, 30, columns):
        times = np.arange(first + 1.0, first + columns + 1) * 60.0
        inside = [pair for pair in pairs if times[0] - 60 < pair[0] <= times[-1]]
        raw = grid({ENERGY: samples((of(), inside))}, times, memory=memory)
        assert [(each.unit, each.conflict) for each in raw.readings] == [("millijoules", False)]
        joules += raw.values[Signal.ENERGY][0].tolist()
    assert np.diff(joules) == pytest.approx(watts * 60)


@pytest.mark.parametrize("scrape_s", [5.0, 10.0])
def test_a_throttle_counter_that_each_scrape_repeats_keeps_its_unit(scrape_s: float) -> None:
    metric, times = "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", np.arange(1.0, 31) * 60.0
    for per_s, unit in ((0.9e6, "seconds"), (1e9, "nanoseconds")):  # the first is too slow for nanoseconds
        raw = grid({metric: samples((of(), repeated(scrape_s, 1800.0, per_s)))}, times)
        assert [each.unit for each in raw.readings] == [unit]


def test_what_rises_for_less_than_two_minutes_tells_no_slope() -> None:
    times = np.array([0.0, 60, 119, 0, 60, 120])
    np.testing.assert_array_equal(slopes(times, times, np.array([3, 3])), [np.nan, 1.0])


def test_a_slope_never_spans_a_restart() -> None:
    # Up to 1,000 a minute, then anew from 0, past where it began.
    values = np.array([100.0, 1100, 2100, 3100, 0, 1000, 2000, 3000])
    assert slopes(values, np.arange(8.0) * 60.0, np.array([8])) == pytest.approx([1000 / 60])


def test_a_read_too_short_to_prove_a_unit_goes_with_the_one_that_proved_it() -> None:
    memory = ReadMemory()
    joules = [1e6 + 650.0 * 60 * k for k in range(12)]
    framed(ENERGY, joules[:10], memory=memory)
    raw = grid({ENERGY: samples((of(), [(660.0, joules[10])]))}, np.array([660.0]), memory=memory)
    assert line(raw, Signal.ENERGY) == [joules[10]]
    assert reading(raw, ENERGY, "joules").conflict


def test_what_no_board_draws_proves_no_unit() -> None:
    for slope in (2.9, 3.1e9):
        assert prove_slope("energy", slope).unit is None


@given(st.lists(st.lists(st.tuples(st.integers(1, 90), st.integers(-5, 50)), max_size=12), max_size=3))
def test_a_slope_lies_between_the_slowest_and_the_fastest_rise_of_any_two_minutes(
    series: list[list[tuple[int, int]]],
) -> None:
    times = [list(accumulate(float(apart) for apart, _ in each)) for each in series]
    values = [list(accumulate(float(rise) for _, rise in each)) for each in series]
    counts = np.array([len(each) for each in series], np.int64)
    found = slopes(np.array([*chain(*values)], np.float64), np.array([*chain(*times)], np.float64), counts)
    for slope, value, time in zip(found, values, times, strict=True):
        possible = naive.rises(value, time, 120.0)
        if np.isnan(slope):
            continue
        assert min(possible) - 1e-9 <= slope <= max(possible) + 1e-9
