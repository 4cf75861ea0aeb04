"""Data time: live it follows the wall clock, in replay it runs from a given moment at a given speed."""

import time
from threading import Event

import pytest

from healthsvc.engine.clock import LiveClock, ReplayClock


def test_live_time_is_a_whole_step_and_as_late_as_asked() -> None:
    clock = LiveClock(step_s=10.0, delay_s=30.0)
    first_s = clock.first_s()
    assert first_s % 10 == 0
    assert 30.0 <= time.time() - first_s < 41.0


def test_live_time_after_a_slow_cycle_skips_to_the_newest_step() -> None:
    clock = LiveClock(step_s=10.0, delay_s=0.0)
    behind_s = clock.first_s() - 300.0
    following_s = clock.next_s(behind_s, Event())
    assert following_s is not None
    assert following_s >= behind_s + 300.0
    assert following_s % 10 == 0


def test_live_time_waits_for_the_step_and_never_goes_back() -> None:
    clock = LiveClock(step_s=0.2, delay_s=0.0)
    first_s = clock.first_s()
    began_s = time.time()
    following_s = clock.next_s(first_s, Event())
    assert following_s == pytest.approx(first_s + 0.2)
    assert time.time() >= first_s + 0.2 - 1e-3
    assert time.time() - began_s < 2.0


@pytest.mark.parametrize("clock", [LiveClock(300.0, 0.0), ReplayClock(0.0, 0.001, 60.0)])
def test_a_stop_ends_the_wait_at_once(clock: LiveClock | ReplayClock) -> None:
    stop = Event()
    stop.set()
    began_s = time.monotonic()
    assert clock.next_s(clock.first_s(), stop) is None
    assert time.monotonic() - began_s < 1.0


def test_a_replay_goes_through_every_step_and_ends_with_the_recording() -> None:
    clock = ReplayClock(from_s=1030.0, speed=1e6, step_s=60.0, until_s=lambda: 1200.0)
    at_s: float | None = clock.first_s()
    heard = []
    while at_s is not None:
        heard.append(at_s)
        at_s = clock.next_s(at_s, Event())
    assert heard == [1020.0, 1080.0, 1140.0, 1200.0]


def test_a_replay_whose_end_is_not_known_yet_begins_and_ends_once_it_is() -> None:
    answers = iter([None, None, 180.0])
    clock = ReplayClock(from_s=0.0, speed=1e6, step_s=60.0, until_s=lambda: next(answers))
    heard: list[float] = []
    at_s: float | None = clock.first_s()
    while at_s is not None:
        heard.append(at_s)
        at_s = clock.next_s(at_s, Event())
    assert heard == [0.0, 60.0, 120.0, 180.0]


def test_a_replay_is_no_faster_than_asked() -> None:
    clock = ReplayClock(from_s=0.0, speed=300.0, step_s=60.0)
    at_s: float | None = clock.first_s()
    began_s = time.monotonic()
    for _ in range(2):
        assert at_s is not None
        at_s = clock.next_s(at_s, Event())
    assert at_s == 120.0
    assert time.monotonic() - began_s >= 0.39


def test_a_replay_that_fell_behind_skips_no_step() -> None:
    clock = ReplayClock(from_s=0.0, speed=1e5, step_s=60.0)
    first_s = clock.first_s()
    time.sleep(0.05)
    assert clock.next_s(first_s, Event()) == 60.0
