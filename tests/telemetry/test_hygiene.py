"""What is no measurement becomes no sample, with a reason; what only looks odd stays."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue import GPU_ROWS
from healthsvc.telemetry.framing.hygiene import (
    BLANKS,
    keep_forward,
    reject_blanks,
    reject_implausible,
    reject_jumps,
)
from healthsvc.telemetry.source import REASONS
from tests import naive

T = Signal.GPU_TEMPERATURE


def jumps(values: list[float], signal: Signal = T, step_s: float = 30.0, counts: list[int] | None = None) -> list[int]:
    """Positions of the readings that are rejected."""
    times = np.arange(len(values), dtype=np.float64) * step_s
    rejected: Counter[str] = Counter()
    left = reject_jumps(np.array(values, np.float64), times, np.array(counts or [len(values)]), signal, rejected)
    gone = np.flatnonzero(np.isnan(left) & ~np.isnan(values)).tolist()
    assert rejected["impossible_jump"] == len(gone)
    return gone


@pytest.mark.parametrize("blank", BLANKS)
def test_a_blank_is_no_sample(blank: float) -> None:
    rejected: Counter[str] = Counter()
    np.testing.assert_array_equal(reject_blanks(np.array([1.0, blank]), rejected), [1.0, np.nan])
    assert +rejected == {"blank": 1}


def test_every_spelling_of_the_int64_blank_is_known() -> None:
    seen = np.array([float(0x7FFFFFFFFFFFFFF0 + k) for k in range(4)] + [9.2233720368547758e18, 9223372036854776000.0])
    assert np.isnan(reject_blanks(seen, Counter())).all()


def test_neighbours_of_a_blank_are_legal_counters() -> None:
    near = np.array([2.0**47 - 1, 2.0**47 + 4, 2147483631.0, 2147483636.0, 2.0**63 - 1024, 5e17])
    np.testing.assert_array_equal(reject_blanks(near, Counter()), near)


def test_infinite_and_missing_numbers_are_no_samples() -> None:
    rejected: Counter[str] = Counter()
    cleaned = reject_blanks(np.array([np.inf, 4.0, -np.inf, np.nan]), rejected)
    np.testing.assert_array_equal(cleaned, [np.nan, 4, np.nan, np.nan])
    assert rejected["not_a_number"] == 3


@pytest.mark.parametrize("degrees", [345.0, 82505.0, 644245923.0, -273.0, 150.1])
def test_what_no_hardware_can_read_is_out_of_range(degrees: float) -> None:
    rejected: Counter[str] = Counter()
    np.testing.assert_array_equal(reject_implausible(np.array([45.0, degrees]), T, rejected), [45, np.nan])
    assert rejected["out_of_range"] == 1


@pytest.mark.parametrize("signal", [Signal.MEMORY_TEMPERATURE, Signal.GPU_SLOWDOWN_LIMIT, Signal.POWER_LIMIT])
def test_zero_from_a_board_without_the_sensor_is_no_sample(signal: Signal) -> None:
    rejected: Counter[str] = Counter()
    np.testing.assert_array_equal(reject_implausible(np.array([0.0, 70.0]), signal, rejected), [np.nan, 70])
    assert (rejected["no_sensor"], rejected["out_of_range"]) == (1, 0)


def test_a_margin_beyond_its_limit_is_a_measurement() -> None:
    np.testing.assert_array_equal(reject_implausible(np.array([-5.0]), Signal.GPU_TEMPERATURE_MARGIN, Counter()), [-5])


def test_every_reason_is_one_of_the_closed_words() -> None:
    rejected: Counter[str] = Counter()
    reject_blanks(np.array([2.0**63, np.nan]), rejected)
    reject_implausible(np.array([0.0, 500.0]), Signal.MEMORY_TEMPERATURE, rejected)
    reject_jumps(np.array([40.0, 140.0, 41.0]), np.arange(3, dtype=np.float64) * 30.0, np.array([3]), T, rejected)
    keep_forward(np.array([5.0, 5.0, 4.0, 99.0, np.nan]), np.array([5]), 50.0, rejected)
    assert set(rejected) <= set(REASONS)
    assert min(rejected.values()) > 0


def test_a_reading_far_from_both_neighbours_is_rejected() -> None:
    assert jumps([45, 46, 140, 45, 46]) == [2]
    assert jumps([95, 96, 20, 95, 96]) == [2]


def test_a_reading_that_was_scraped_twice_is_rejected_twice() -> None:
    assert jumps([45, 45, 140, 140, 46, 46], step_s=15.0) == [2, 3]


def test_full_load_on_an_idle_board_is_a_step_and_stays() -> None:
    assert jumps([30, 30, 85, 86, 87]) == []
    assert jumps([87, 87, 28, 28]) == []


def test_the_newest_reading_is_judged_against_one_that_is_confirmed() -> None:
    assert jumps([45, 46, 45, 140]) == [3]
    assert jumps([45, 140]) == []


def test_series_are_not_compared_with_each_other() -> None:
    assert jumps([20, 21, 90, 91], counts=[2, 2]) == []


def test_readings_far_apart_in_time_are_not_compared() -> None:
    assert jumps([25, 95, 25], step_s=3600.0) == []


def test_power_and_clocks_may_step_anywhere() -> None:
    assert jumps([60, 690, 60], Signal.POWER) == []
    assert jumps([3e8, 1.98e9, 3e8], Signal.SM_CLOCK) == []


def test_an_energy_counter_that_leaps_and_falls_back_never_leapt() -> None:
    energy = [1e9 + 15_000.0 * k for k in range(6)]
    assert jumps([*energy[:3], 5e11, *energy[3:]], Signal.ENERGY) == [3]
    assert jumps([*energy[:3], 5.0, *energy[3:]], Signal.ENERGY) == [3]


def test_a_reset_counter_is_kept() -> None:
    assert jumps([1e9, 1e9 + 2e4, 3.0, 2e4, 4e4], Signal.ENERGY) == []
    assert jumps([7, 8, 0, 0, 1], Signal.DBE_AGGREGATE) == []


def test_a_count_for_life_that_falls_and_returns_never_fell() -> None:
    assert jumps([500, 500, 0, 500, 501], Signal.SBE_AGGREGATE) == [2]
    assert jumps([500, 500, 0, 500, 501], Signal.SBE_VOLATILE) == []


@given(
    st.lists(st.lists(st.one_of(st.integers(0, 20).map(float), st.just(np.nan), st.just(99.0)), max_size=6), max_size=4)
)
def test_only_samples_that_come_after_all_earlier_ones_are_kept(series: list[list[float]]) -> None:
    rejected: Counter[str] = Counter()
    times = np.array([t for each in series for t in each], np.float64)
    kept = keep_forward(times, np.array([len(each) for each in series], np.int64), 50.0, rejected)
    wanted = [verdict for each in series for verdict in naive.forward(each, 50.0)]
    assert (np.ones(len(times), bool) if kept is None else kept).tolist() == [verdict == "" for verdict in wanted]
    assert +rejected == Counter(verdict for verdict in wanted if verdict)


def test_plausible_values_pass_untouched() -> None:
    for row in GPU_ROWS:
        values = np.array([1.0, 1.0])
        assert reject_implausible(values, row.signal, Counter()) is values, row.metric
