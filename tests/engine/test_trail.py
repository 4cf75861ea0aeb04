"""The trail is joining and cutting, done in place, and nothing that was handed out changes."""

import numpy as np

from healthsvc.engine.digest import join_columns
from healthsvc.engine.trail import Trail
from healthsvc.fleet import FleetWindow, Signal
from tests.histories import make_gpus

GPUS, KEEP = make_gpus(5), 8


def block(first: int, width: int, signals: tuple[Signal, ...], rng: np.random.Generator) -> FleetWindow:
    values = {signal: rng.normal(size=(len(GPUS), width)).astype(np.float32) for signal in signals}
    return FleetWindow(GPUS, (first + np.arange(float(width))) * 60.0, values)


def assert_same(one: FleetWindow, other: FleetWindow) -> None:
    np.testing.assert_array_equal(one.times_s, other.times_s)
    assert one.values.keys() == other.values.keys()
    for signal in one.values:
        np.testing.assert_array_equal(one.values[signal], other.values[signal])


def test_a_trail_is_the_newest_columns_of_everything_appended_and_old_windows_stay() -> None:
    rng = np.random.default_rng(1)
    joined = block(0, 3, (Signal.POWER,), rng)
    trail, at = Trail(joined, KEEP), 3
    handed_out: list[tuple[FleetWindow, FleetWindow]] = []
    signals = ((Signal.POWER,), (Signal.POWER, Signal.XID), (Signal.XID,))
    for width in (1, 1, 2, 1, 5, 1, 12, 1, 1, 1, 3, 1):
        after = block(at, width, signals[at % 3], rng)
        joined, at = join_columns(joined, after).columns(slice(-KEEP, None)), at + width
        handed_out.append((trail.append(after), joined))
    for window, wanted in handed_out:
        assert_same(window, wanted)
