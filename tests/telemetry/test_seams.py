"""A live read of one minute knows from the one before it what cannot follow."""

import numpy as np
import pytest

from healthsvc.fleet import Signal
from healthsvc.telemetry.framing.read_memory import ReadMemory
from tests.telemetry.framed import GPU, OTHER, grid, line, of, samples

TEMPERATURE, ENERGY = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def minute_by_minute(metric: str, signal: Signal, values: list[float], *, apart_s: float = 60.0) -> list[float | None]:
    """The line that reads of one column each give."""
    memory, found = ReadMemory(), []
    for k, value in enumerate(values, 1):
        at_s = k * apart_s
        raw = grid({metric: samples((of(), [(at_s, value)]))}, np.array([at_s]), apart_s, memory=memory)
        assert sum(raw.rejected.values()) == (line(raw, signal)[0] is None)
        found += line(raw, signal)
    return found


def test_a_reading_that_no_die_can_have_after_the_last_one_is_left_out() -> None:
    found = minute_by_minute(TEMPERATURE, Signal.GPU_TEMPERATURE, [45, 46, 140, 47, 48])
    assert found == [45, 46, None, 47, 48]


def test_what_is_seen_twice_is_a_step() -> None:
    found = minute_by_minute(TEMPERATURE, Signal.GPU_TEMPERATURE, [20, 21, 92, 91, 90, 20, 21])
    assert found == [20, 21, None, 91, 90, None, 21]


def test_full_load_on_an_idle_board_is_no_jump() -> None:
    assert minute_by_minute(TEMPERATURE, Signal.GPU_TEMPERATURE, [30, 85, 86, 35]) == [30, 85, 86, 35]


def test_after_a_while_anything_can_follow() -> None:
    assert minute_by_minute(TEMPERATURE, Signal.GPU_TEMPERATURE, [20, 95], apart_s=600.0) == [20, 95]


def test_an_energy_counter_that_leaps_for_one_reading_adds_nothing() -> None:
    joules = [1e6 + 39_000 * k for k in range(5)]
    joules[2] = 9e8
    found = minute_by_minute(ENERGY, Signal.ENERGY, [1e3 * value for value in joules])
    assert found[2] is None
    assert [value for value in found if value is not None] == pytest.approx([*joules[:2], *joules[3:]])


def test_a_restarted_counter_is_believed_at_once() -> None:
    assert None not in minute_by_minute(ENERGY, Signal.ENERGY, [5e9, 5.04e9, 2e3, 4e7])


def test_a_read_that_continues_no_other_starts_afresh() -> None:
    memory = ReadMemory()
    for at_s, value in ((60.0, 20.0), (600.0, 140.0)):
        raw = grid({TEMPERATURE: samples((of(), [(at_s, value)]))}, np.array([at_s]), memory=memory)
        assert line(raw, Signal.GPU_TEMPERATURE) == [value]


def test_what_a_later_sample_of_the_same_read_confirms_is_a_step() -> None:
    memory = ReadMemory()
    grid({TEMPERATURE: samples((of(), [(60.0, 20.0)]))}, np.array([60.0]), memory=memory)
    answers = {TEMPERATURE: samples((of(), [(120.0, 92.0), (180.0, 91.0)]))}
    raw = grid(answers, np.array([120.0, 180.0]), memory=memory)
    assert line(raw, Signal.GPU_TEMPERATURE) == [92, 91]


def test_what_the_read_before_knew_of_a_gpu_stays_its_own_when_others_join() -> None:
    memory, first = ReadMemory(), "GPU-00000001-0000-0000-0000-000000000000"
    for at_s, devices in ((60.0, (GPU,)), (120.0, (first, GPU, OTHER))):
        values = {GPU: 20.0 if at_s == 60.0 else 140.0, first: 95.0, OTHER: 90.0}
        told = samples(*((of(device), [(at_s, values[device])]) for device in devices))
        raw = grid({TEMPERATURE: told}, np.array([at_s]), memory=memory)
    assert [line(raw, Signal.GPU_TEMPERATURE, row) for row in range(3)] == [[95.0], [None], [90.0]]
