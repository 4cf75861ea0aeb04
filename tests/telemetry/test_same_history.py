"""One true history, told by exporters that change names, units, pods and replicas on the way: the same numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from healthsvc.fleet import COUNTERS, FleetWindow, Signal
from healthsvc.telemetry.framing.grid import CounterCarry, frame
from healthsvc.telemetry.framing.merge import merge_samples
from healthsvc.telemetry.framing.read_memory import ReadMemory
from tests import naive
from tests.telemetry.framed import GPU, Pairs, grid, of, samples

STEP_S = 60.0
D = "DCGM_FI_DEV_"
GAUGES = (Signal.GPU_TEMPERATURE, Signal.POWER, Signal.SM_CLOCK, Signal.GPU_UTILIZATION)
# signal -> (metric, value per base unit) of the three generations. 4.6 calls a percentage a ratio.
NAMES: dict[Signal, tuple[tuple[str, float], ...]] = {
    Signal.GPU_TEMPERATURE: ((D + "GPU_TEMP", 1), (D + "GPU_TEMP_CELSIUS", 1), (D + "GPU_TEMP_CELSIUS", 1)),
    Signal.POWER: ((D + "POWER_USAGE", 1), (D + "BOARD_POWER_WATTS", 1), (D + "BOARD_POWER_WATTS", 1)),
    Signal.SM_CLOCK: ((D + "SM_CLOCK", 1e-6), (D + "SM_CLOCK", 1e-6), (D + "SM_CLOCK_HERTZ", 1)),
    Signal.GPU_UTILIZATION: ((D + "GPU_UTIL", 100), (D + "GPU_UTIL_RATIO", 100), (D + "GPU_UTIL_RATIO", 1)),
    Signal.ENERGY: (
        (D + "TOTAL_ENERGY_CONSUMPTION", 1e3),
        (D + "TOTAL_ENERGY_CONSUMPTION", 1e3),
        (D + "GPU_ENERGY_JOULES_TOTAL", 1),
    ),
    Signal.THERMAL_THROTTLE: (
        (D + "THERMAL_VIOLATION", 1e9),
        (D + "THERMAL_VIOLATION", 1e9),
        (D + "GPU_THERMAL_THROTTLE_SECONDS_TOTAL", 1),
    ),
    Signal.SBE_VOLATILE: ((D + "ECC_SBE_VOL_TOTAL", 1),) * 3,
    Signal.SBE_AGGREGATE: ((D + "ECC_SBE_AGG_TOTAL", 1),) * 3,
    Signal.CORRECTABLE_REMAPS: (
        (D + "CORRECTABLE_REMAPPED_ROWS", 1),
        (D + "ROW_REMAP_CORRECTABLE_TOTAL", 1),
        (D + "ROW_REMAP_CORRECTABLE_TOTAL", 1),
    ),
}
RESTART = (Signal.ENERGY, Signal.THERMAL_THROTTLE, Signal.SBE_VOLATILE)  # with the driver


@dataclass(frozen=True)
class Story:
    """What happened to the labels of a GPU, by column."""

    upgrades: tuple[int, int]
    pods: tuple[int, ...]  # where the pod changes
    replicas: int
    reloads: tuple[int, ...]
    missing: frozenset[int]
    late_s: tuple[float, ...]  # of each replica


def truth(columns: int, reloads: Sequence[int], seed: int) -> Mapping[Signal, np.ndarray]:
    """Values of every signal in base units [time]; counters as they stand, restarts included."""
    rng = np.random.default_rng(seed)
    values: dict[Signal, np.ndarray] = {
        Signal.GPU_TEMPERATURE: rng.integers(40, 85, columns).astype(float),
        Signal.POWER: rng.integers(60_000, 690_000, columns) / 1000,
        Signal.SM_CLOCK: rng.integers(300, 1980, columns) * 1e6,
        Signal.GPU_UTILIZATION: rng.choice([0, *range(2, 100)], columns) / 100,  # 1 and 100 % are told apart by others
    }
    gained = {
        Signal.ENERGY: np.round(values[Signal.POWER] * STEP_S, 3),
        Signal.THERMAL_THROTTLE: rng.choice([0, 3.5, 60.0], columns),
        Signal.SBE_VOLATILE: rng.integers(0, 5, columns).astype(float),
        Signal.SBE_AGGREGATE: rng.integers(0, 5, columns).astype(float),
        Signal.CORRECTABLE_REMAPS: (rng.random(columns) < 0.05).astype(float),
    }
    for signal, increments in gained.items():
        stands, now = [], 3.0 if signal is Signal.CORRECTABLE_REMAPS else 1e6
        for k, increment in enumerate(increments):
            now = increment if k in reloads and signal in RESTART else now + increment
            stands.append(now)
        values[signal] = np.array(stands)
    return values


def told(values: Mapping[Signal, np.ndarray], story: Story) -> Mapping[str, Sequence[tuple[dict[str, str], Pairs]]]:
    """The series that a server would hold, by metric."""
    found: dict[str, dict[tuple[int, int], list[tuple[float, float]]]] = {}
    columns = len(values[Signal.POWER])
    for signal, names in NAMES.items():
        for k in range(columns):
            if k in story.missing:
                continue
            generation, pod = sum(k >= u for u in story.upgrades), sum(k >= p for p in story.pods)
            metric, scale = names[generation]
            value = values[signal][k] * scale
            value = round(value, 3) if scale != 1 else value
            for replica in range(story.replicas):
                at = (k + 1) * STEP_S - story.late_s[replica]
                found.setdefault(metric, {}).setdefault((replica, pod), []).append((at, value))
    return {
        metric: [(of(GPU, replica=str(r), pod=f"job-{p}", Hostname="n"), pairs) for (r, p), pairs in series.items()]
        for metric, series in found.items()
    }


def framed(
    series: Mapping[str, Sequence[tuple[dict[str, str], Pairs]]], times_s: np.ndarray, cuts: Sequence[int]
) -> list[FleetWindow]:
    """The windows of consecutive reads."""
    memory, carry, windows = ReadMemory(), CounterCarry(), []
    gpus = grid({metric: samples(*each) for metric, each in series.items()}, times_s).gpus
    edges = [0, *cuts, len(times_s)]
    for first, last in pairwise(edges):
        part = times_s[first:last]
        answers = {
            metric: samples(
                *((labels, [p for p in pairs if part[0] - STEP_S < p[0] <= part[-1]]) for labels, pairs in each)
            )
            for metric, each in series.items()
        }
        window, carry = frame(grid(answers, part, STEP_S, memory=memory, gpus=gpus), carry)
        windows.append(window)
    return windows


def joined(windows: Sequence[FleetWindow], signal: Signal) -> np.ndarray:
    return np.concatenate([window.get(signal)[0].astype(np.float64) for window in windows])


@st.composite
def stories(draw: st.DrawFn, columns: int) -> Story:
    replicas = draw(st.integers(1, 3))
    place = st.integers(1, columns - 1)
    upgrades = sorted(draw(st.tuples(place, place)))
    return Story(
        (upgrades[0], upgrades[1]),
        tuple(sorted(draw(st.sets(place, max_size=5)))),
        replicas,
        tuple(sorted(draw(st.sets(place, max_size=3)))),
        frozenset(draw(st.sets(place, max_size=8))),
        tuple(draw(st.lists(st.floats(0, 59), min_size=replicas, max_size=replicas))),
    )


COLUMNS = 24


@settings(max_examples=80, deadline=None)
@given(stories(COLUMNS), st.integers(0, 10_000), st.sets(st.integers(1, COLUMNS - 1), max_size=2))
def test_any_telling_of_one_history_gives_the_same_numbers(story: Story, seed: int, cuts: set[int]) -> None:
    values = truth(COLUMNS, story.reloads, seed)
    times_s = np.arange(1.0, COLUMNS + 1) * STEP_S
    plain = Story((COLUMNS, COLUMNS), (), 1, (), frozenset(), (0.0,))
    clean = framed(told(values, plain), times_s, ())
    other = framed(told(values, story), times_s, sorted(cuts))
    missing = np.isin(np.arange(COLUMNS), list(story.missing))
    assume(not (missing[2:] & missing[:-2] & ~missing[1:-1]).any())  # every other sample is half the interval
    for signal in NAMES:
        wanted, found = joined(clean, signal), joined(other, signal)
        np.testing.assert_array_equal(np.isnan(found), missing, signal.value)
        if signal not in COUNTERS:
            np.testing.assert_allclose(found[~missing], wanted[~missing], rtol=1e-6, err_msg=signal.value)
            continue
        seen = [None if gone else float(value) for gone, value in zip(missing, values[signal], strict=True)]
        expected, _ = naive.increments(seen, None)
        for k in np.flatnonzero(~missing).tolist():
            assert found[k] == pytest.approx(expected[k], rel=1e-5, abs=1e-3), (signal, k)
        if not missing.any():
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3, err_msg=signal.value)


def test_hourly_pod_changes_lose_no_error() -> None:
    # Six hours, an error every six minutes, a pod an hour: a rate per series makes 54.9 of the 60.
    series = []
    for hour in range(6):
        minutes = range(60 * hour, 60 * (hour + 1))
        series.append((of(pod=f"job-{hour}"), [(60.0 * (k + 1), float((k + 1) // 6)) for k in minutes]))
    window, _ = frame(grid({D + "ECC_SBE_VOL_TOTAL": samples(*series)}, np.arange(1.0, 361) * 60))
    assert np.nansum(window.get(Signal.SBE_VOLATILE)) == 60


def test_an_upgrade_leaves_no_step_in_any_counter() -> None:
    values = truth(COLUMNS, (), 5)
    story = Story((8, 16), (), 1, (), frozenset(), (0.0,))
    windows = framed(told(values, story), np.arange(1.0, COLUMNS + 1) * STEP_S, ())
    for signal in (Signal.ENERGY, Signal.THERMAL_THROTTLE, Signal.CORRECTABLE_REMAPS):
        np.testing.assert_allclose(joined(windows, signal)[1:], np.diff(values[signal]), rtol=1e-5, atol=1e-3)
    assert np.nansum(joined(windows, Signal.DRIVER_RELOADS)) == 0


VALUES = st.one_of(st.none(), st.integers(0, 9).map(float))
SERIES = st.lists(st.tuples(st.integers(0, 420).map(float), VALUES), max_size=9, unique_by=lambda pair: pair[0]).map(
    sorted
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), SERIES), max_size=5), st.sampled_from(["max", "min", "last"]))
def test_merging_agrees_with_its_twin(series: list[tuple[int, list[tuple[float, float | None]]]], how: str) -> None:
    times_s = np.arange(1.0, 7) * 60
    pairs = [pair for _, each in series for pair in each]
    out = np.full((2, len(times_s)), np.nan)
    rows = np.array([row for row, _ in series], np.intp)
    merge_samples(
        out,
        np.array([np.nan if v is None else v for _, v in pairs]),
        np.array([t for t, _ in pairs]),
        np.array([len(each) for _, each in series], np.int64),
        rows,
        slice(0, 6),
        times_s,
        60.0,
        how,  # type: ignore[arg-type]
        True,
    )
    for row in range(2):
        wanted = naive.merged([each for own, each in series if own == row], times_s.tolist(), 60.0, how)
        assert [None if np.isnan(v) else v for v in out[row]] == wanted
