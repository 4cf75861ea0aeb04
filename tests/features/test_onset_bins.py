"""The sample that onsets are learned from: who is in it, what is known of them, and that its shares are honest."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from healthsvc.features.onset_bins import (
    BUSY_FACTOR,
    BinGrid,
    bins_of_day,
    covariates,
    grid_of_day,
    grid_of_recent,
    sample_bins,
    throttles,
)
from healthsvc.features.pseudo_inlet import pseudo_inlet
from healthsvc.features.rings import ring_counts
from healthsvc.features.windows import flow_by_gpu, inlet_by_gpu, summarise
from healthsvc.fleet import (
    ONSET_COVARIATES,
    DailyLedger,
    FleetHistory,
    Floats,
    GpuId,
    OnsetBins,
    Placement,
    PlaceSeries,
    Signal,
    Topology,
    build_topology,
)
from healthsvc.fleet.onset_bins import INLET_MEASURED, INLET_PSEUDO, INLET_UNKNOWN
from tests import naive_onset_bins as naive
from tests.histories import NOW_S, as_float, as_maybe, make_daily, make_gpus, make_history, make_window, random_floats

NAN = np.nan
AT = {name: k for k, name in enumerate(ONSET_COVARIATES)}


def make_grid(throttled: ArrayLike, **given: ArrayLike) -> BinGrid:
    """A grid that ends at NOW_S; GPUs at 80 of 90 degrees, 600 of 700 W, air of 25 degrees, unless told otherwise."""
    ratio = np.asarray(throttled, np.float32)
    gpus, bins = ratio.shape
    level = {"temperature_celsius": 80.0, "power_watts": 600.0, "inlet_celsius": 25.0, "flow_ratio": NAN}
    planes: dict[str, Floats] = {name: np.full(ratio.shape, value, np.float32) for name, value in level.items()}
    planes |= {"limit_celsius": np.full(gpus, 90, np.float32), "power_limit_watts": np.full(gpus, 700, np.float32)}
    planes |= {name: np.asarray(values, np.float32) for name, values in given.items()}
    source = np.where(np.isnan(planes["inlet_celsius"]), INLET_UNKNOWN, INLET_MEASURED).astype(np.int8)
    ends = NOW_S + 600.0 * np.arange(1.0 - bins, 1.0)
    return BinGrid(ends_s=ends, throttled_ratio=ratio, inlet_source=source, **planes)


def rows_of(grid: BinGrid, rows: NDArray[np.intp]) -> BinGrid:
    """The same bins for a permutation or subset of the GPUs."""
    return replace(grid, **{f.name: getattr(grid, f.name)[rows] for f in fields(grid) if f.name != "ends_s"})


def told(bins: OnsetBins, gpus: Sequence[GpuId]) -> dict[tuple[str, float], tuple[object, ...]]:
    """The rows by device and time, for comparing whatever their order."""
    return {
        (gpus[row].device_id, start): (bool(onset), float(share), int(source), x.tobytes())
        for row, start, onset, share, source, x in zip(
            bins.row.tolist(), bins.start_s.tolist(), bins.onset, bins.share, bins.inlet_source, bins.x, strict=True
        )
    }


def random_fleet(rng: np.random.Generator, gpus: int, bins: int) -> tuple[BinGrid, Topology, tuple[GpuId, ...]]:
    """Nodes of four, racks of two nodes, loops of two racks; one in twenty bins throttled, some bins not observed."""
    ids = make_gpus(gpus, per_node=4)
    hosts = sorted({gpu.hostname for gpu in ids})
    place = Placement(
        {host: {"rack": f"r{k // 2:03d}", "cooling_loop": f"l{k // 4:03d}"} for k, host in enumerate(hosts)}
    )
    throttled = np.where(rng.random((gpus, bins)) < 0.05, rng.random((gpus, bins)), 0.0)
    throttled[rng.random((gpus, bins)) < 0.05] = NAN
    grid = make_grid(throttled, temperature_celsius=80 + random_floats(rng, (gpus, bins)))
    return grid, build_topology(ids, place), ids


# -- what is known at the end of a bin ---------------------------------------------------------------------------------


def test_the_covariates_are_those_of_the_end_of_the_bin() -> None:
    """Worked out by hand: two GPUs of a node, one on another node of the same loop."""
    gpus = make_gpus(3, per_node=2)
    places = {"node-00": {"cooling_loop": "a"}, "node-01": {"cooling_loop": "a"}}
    topology = build_topology(gpus, Placement(places))
    grid = make_grid(
        [[0.0, 0.0], [0.0, 0.5], [0.02, 0.01]],
        temperature_celsius=[[70.0, 72.0], [88.0, 91.0], [60.0, NAN]],
        power_watts=[[350, 420], [700, 700], [0, 70]],
        inlet_celsius=[[25, 26.5], [25, 26.5], [NAN, NAN]],
        flow_ratio=[[0.75, 0.5], [NAN, 1.0], [NAN, NAN]],
    )
    x = covariates(grid, topology)
    assert x.dtype == np.float32
    one, two = np.log(2.0), 0.0
    wanted: dict[str, list[list[float]]] = {
        "margin_celsius": [[20, 18], [2, -1], [30, NAN]],
        "power_ratio": [[0.5, 0.6], [1, 1], [0, 0.1]],
        "power_change_ratio": [[NAN, 0.1], [NAN, 0], [NAN, 0.1]],
        "inlet_celsius": [[0, 1.5], [0, 1.5], [NAN, NAN]],
        "inlet_change_celsius": [[NAN, 1.5], [NAN, 1.5], [NAN, NAN]],
        "flow_deficit_ratio": [[0.25, 0.5], [0, 0], [0, 0]],
        "node_neighbours_log": [[0, one], [0, 0], [0, 0]],
        "rack_neighbours_log": [[0, 0], [0, 0], [0, 0]],
        "cooling_loop_neighbours_log": [[one, two], [one, two], [0, one]],  # one percent is not more than one percent
    }
    assert tuple(wanted) == ONSET_COVARIATES
    for name, values in wanted.items():
        np.testing.assert_allclose(x[:, :, AT[name]], values, atol=1e-6, err_msg=name)


def test_a_sensor_that_falls_silent_is_no_change_of_the_air() -> None:
    grid = make_grid(np.zeros((1, 3)), inlet_celsius=[[20, 30, 31]])
    grid = replace(grid, inlet_source=np.array([[INLET_MEASURED, INLET_PSEUDO, INLET_PSEUDO]], np.int8))
    change = covariates(grid, build_topology(make_gpus(1)))[0, :, AT["inlet_change_celsius"]]
    np.testing.assert_array_equal(change, [NAN, NAN, 1])


def test_the_air_of_a_gpu_that_was_not_there_before_has_not_changed_for_it() -> None:
    """Its node's inlet was measured all the time; what a newcomer is told must not hang on who looked before."""
    grid = make_grid([[NAN, 0, 0]], inlet_celsius=[[20, 21, 23]])
    change = covariates(grid, build_topology(make_gpus(1)))[0, :, AT["inlet_change_celsius"]]
    np.testing.assert_array_equal(change, [NAN, NAN, 2])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lacks=st.sets(st.sampled_from(["node", "rack", "cooling_loop"])))
def test_the_rings_of_neighbours_are_those_of_the_slow_twin(seed: int, lacks: set[str]) -> None:
    """Whatever stands across whatever, and whoever stands nobody knows where."""
    rng = np.random.default_rng(seed)
    gpus, layers = int(rng.integers(1, 14)), ("node", "rack", "cooling_loop")
    groups = {layer: rng.integers(-1, 4, gpus).astype(np.int32) for layer in layers if layer not in lacks}
    topology = Topology(groups, {layer: tuple("abcd") for layer in groups})
    flags = rng.random((gpus, 3)) < 0.4
    found = ring_counts(flags, topology)
    places = [topology.group(layer, gpus).tolist() for layer in layers]
    for at in range(3):
        wanted = naive.rings(flags[:, at].tolist(), *places)
        assert [count[:, at].tolist() for count in found] == wanted


# -- the pseudo-inlet --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_pseudo_inlet_is_that_of_the_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(1, 20))
    node = rng.integers(-1, 4, gpus).astype(np.int32)
    temperature = np.round(60 + 5 * random_floats(rng, (gpus, 2))).astype(np.float32)  # whole degrees: ties
    power = np.round(500 + 50 * random_floats(rng, (gpus, 2))).astype(np.float32)
    log_r = (np.log(0.07) + 0.1 * random_floats(rng, (gpus,))).astype(np.float32)
    found = pseudo_inlet(temperature, power, log_r, node)
    resistance = as_maybe(np.exp(log_r))
    for at in range(2):
        wanted = naive.pseudo_inlet(as_maybe(temperature[:, at]), as_maybe(power[:, at]), resistance, node.tolist())
        np.testing.assert_allclose(found[:, at], [as_float(v) for v in wanted], atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(hotter=st.floats(0, 40), row=st.integers(0, 3))
def test_a_hotter_gpu_has_less_room_and_does_not_warm_its_own_air(hotter: float, row: int) -> None:
    """Hotter is never safer, and its own heat is not read as weather: only the others may feel it."""
    temperature = np.array([[70.0], [71.0], [69.0], [74.0]], np.float32)
    raised = temperature.copy()
    raised[row] += np.float32(hotter)
    power, log_r, node = np.full((4, 1), 600.0), np.full(4, np.log(0.07)), np.zeros(4, np.int32)
    before, after = (pseudo_inlet(t, power, log_r, node) for t in (temperature, raised))
    others = np.arange(4) != row
    assert after[row] == before[row]
    assert (after[others] >= before[others]).all()
    topology = build_topology(make_gpus(4))
    cool, hot = (
        covariates(make_grid(np.zeros((4, 1)), temperature_celsius=t), topology) for t in (temperature, raised)
    )
    assert hot[row, 0, AT["margin_celsius"]] <= cool[row, 0, AT["margin_celsius"]]
    np.testing.assert_array_equal(hot[others], cool[others])


def test_warmer_air_moves_the_pseudo_inlet_by_as_much() -> None:
    temperature, power = np.full((8, 2), 70.0, np.float32), np.full((8, 2), 600.0, np.float32)
    temperature[:, 1] += 4
    found = pseudo_inlet(temperature, power, np.full(8, np.log(0.07)), np.zeros(8, np.int32))
    np.testing.assert_allclose(found[:, 1] - found[:, 0], 4, atol=1e-5)


# -- the sample --------------------------------------------------------------------------------------------------------


def test_an_onset_is_more_than_one_percent_after_half_an_hour_without() -> None:
    """By hand: bins of one GPU each; what is kept is (bin, onset)."""
    ratios = {
        (0, 0, 0, 0, 0.02): [(1, False), (2, False), (3, False), (4, True)],
        (0, 0.5, 0, 0, 0, 0.5): [(1, True), (5, True)],
        (0.5, 0, 0, 0, 0): [(4, False)],
        (0, 0, 0.01, 0, 0): [(1, False), (2, False), (3, False), (4, False)],
        (0, NAN, 0, 0, NAN): [(3, False)],
        (NAN, 0, 0.5, 0.5, 0.5): [(2, True)],
        (NAN, NAN, NAN): [],
        (0.0,): [],
    }
    for ratio, wanted in ratios.items():
        grid = make_grid(np.array([ratio]))
        bins = sample_bins(grid, build_topology(make_gpus(1)), make_gpus(1))
        at = np.searchsorted(grid.ends_s - 600.0, bins.start_s)
        assert list(zip(at.tolist(), bins.onset.tolist(), strict=True)) == wanted, ratio
        assert [t for t, _ in wanted] == naive.at_risk([None if np.isnan(r) else r for r in ratio])
        np.testing.assert_array_equal(bins.share, 1)


def test_a_row_tells_of_the_bin_before_its_own() -> None:
    rng = np.random.default_rng(5)
    grid, topology, gpus = random_fleet(rng, 16, 20)
    bins = sample_bins(grid, topology, gpus)
    x = covariates(grid, topology)
    at = np.searchsorted(grid.ends_s, bins.start_s)
    np.testing.assert_array_equal(grid.ends_s[at], bins.start_s)
    np.testing.assert_array_equal(bins.x, x[bins.row, at])
    np.testing.assert_array_equal(bins.inlet_source, grid.inlet_source[bins.row, at])
    np.testing.assert_array_equal(bins.onset, throttles(grid)[bins.row, at + 1])
    each = [[t - 1 for t in naive.at_risk(as_maybe(ratio))] for ratio in grid.throttled_ratio]
    assert sorted(zip(bins.row.tolist(), at.tolist(), strict=True)) == [(i, t) for i, ts in enumerate(each) for t in ts]


def test_the_same_history_gives_the_same_rows_in_whatever_order() -> None:
    rng = np.random.default_rng(1)
    grid, topology, gpus = random_fleet(rng, 64, 60)
    order = rng.permutation(64)
    mixed = tuple(gpus[i] for i in order)
    bins = sample_bins(grid, topology, gpus, controls=20)
    again = sample_bins(rows_of(grid, order), topology.take(order), mixed, controls=20)
    assert 0 < np.sum(~bins.onset) < len(sample_bins(grid, topology, gpus)) / 2
    assert told(again, mixed) == told(bins, gpus)


def test_a_part_of_the_fleet_keeps_what_the_whole_keeps() -> None:
    """Loops shared with nobody: a part differs by its share alone, and a larger share keeps all that a smaller does."""
    grid, topology, gpus = random_fleet(np.random.default_rng(2), 64, 60)
    whole = told(sample_bins(grid, topology, gpus, controls=100), gpus)
    parts: dict[tuple[str, float], tuple[object, ...]] = {}
    for rows in (np.arange(32), np.arange(32, 64)):
        ids = tuple(gpus[i] for i in rows)
        parts |= told(sample_bins(rows_of(grid, rows), topology.take(rows), ids, controls=100), ids)
    assert whole.keys() < parts.keys()
    for key, (onset, share, source, x) in whole.items():
        assert parts[key][0] == onset
        assert parts[key][1] > share  # type: ignore[operator]
        assert parts[key][2:] == (source, x)


def test_every_onset_is_kept_and_the_share_of_the_others_is_honest() -> None:
    """Those kept stand for all: 1 / share of each adds up to how many there were, with and without neighbours."""
    grid, topology, gpus = random_fleet(np.random.default_rng(3), 2000, 144)
    everything = sample_bins(grid, topology, gpus, controls=10**9)
    some = sample_bins(grid, topology, gpus, controls=10_000)
    np.testing.assert_array_equal(everything.share, 1)
    assert some.onset.sum() == everything.onset.sum() > 1000
    neighbour_columns = [AT[name] for name in ONSET_COVARIATES if name.endswith("neighbours_log")]
    for busy in (False, True):
        true, kept = (np.any(b.x[:, neighbour_columns] > 0, axis=1) == busy for b in (everything, some))
        count = np.sum(true & ~everything.onset)
        stands_for = np.sum(1.0 / some.share[kept & ~some.onset], dtype=np.float64)
        assert stands_for == pytest.approx(count, rel=0.05)
        assert len(set(some.share[kept].tolist())) == 1  # onsets have the share of a control like them
        assert np.sum(kept & ~some.onset) == pytest.approx(10_000, rel=0.05)


def test_bins_with_a_neighbour_that_throttles_are_kept_ten_times_as_often_while_they_are_few() -> None:
    gpus = make_gpus(800, per_node=4)
    throttled = np.zeros((800, 100))
    throttled[::100, 50] = 0.5  # in eight nodes one GPU, once
    grid, topology = make_grid(throttled), build_topology(gpus)
    quiet, busy = np.unique(sample_bins(grid, topology, gpus, controls=2000).share)
    assert quiet == pytest.approx(2000 / (800 * 99 - 8 - 8 * 3 - 3 * 8), rel=1e-6)  # onsets, busy, and not at risk
    assert busy == pytest.approx(BUSY_FACTOR * quiet, rel=1e-6)
    everything = sample_bins(grid, topology, gpus, controls=40_000)
    assert set(everything.share.tolist()) == {np.float32(40_000 / (800 * 99 - 56)), 1.0}


def test_which_controls_are_kept_does_not_hang_on_the_gpu_or_the_hour() -> None:
    """Bins are kept as if drawn: each GPU's and each hour's count is binomial, none is favoured."""
    gpus = make_gpus(500)
    grid = make_grid(np.zeros((500, 145)))
    kept = sample_bins(grid, build_topology(gpus), gpus, controls=7200)
    share = float(kept.share[0])
    by_gpu = np.bincount(kept.row, minlength=500)
    by_bin = np.bincount(((kept.start_s - grid.ends_s[0]) / 600.0).astype(int), minlength=144)
    for count, of in ((by_gpu, 144), (by_bin, 500)):
        deviation = (count - of * share) / np.sqrt(of * share * (1 - share))
        assert 0.8 < deviation.std() < 1.2
        assert np.abs(deviation).max() < 5


# -- from a day, and from the recent window ----------------------------------------------------------------------------


def telemetry(rng: np.random.Generator, gpus: int, columns: int) -> dict[Signal, Floats]:
    """Everything a grid reads, with gaps; the energy counter of every other GPU."""
    shape = (gpus, columns)
    power = 600 + 40 * random_floats(rng, shape)
    energy = np.where((np.arange(gpus) % 2 == 0)[:, None], 60 * power, NAN)
    return {
        Signal.GPU_TEMPERATURE: np.round(75 + 5 * random_floats(rng, shape)),
        Signal.POWER: power,
        Signal.ENERGY: energy,
        Signal.POWER_LIMIT: np.full(shape, 700.0),
        Signal.GPU_MAX_OPERATING_LIMIT: np.broadcast_to(np.where(np.arange(gpus) % 3, 87.0, NAN)[:, None], shape),
        Signal.SOFTWARE_THERMAL_THROTTLE: np.where(rng.random(shape) < 0.05, 20.0, 0.0),
    }


def places(rng: np.random.Generator, topology: Topology, columns: int) -> dict[Signal, PlaceSeries]:
    """An inlet at the first node only, and the flow of the first loop."""
    nodes, loops = topology.names["node"][:1], topology.names["cooling_loop"][:1]
    return {
        Signal.INLET: PlaceSeries("node", nodes, (25 + random_floats(rng, (1, columns))).astype(np.float32)),
        Signal.COOLANT_FLOW: PlaceSeries("cooling_loop", loops, np.full((1, columns), 45.0, np.float32)),
        Signal.RATED_COOLANT_FLOW: PlaceSeries("cooling_loop", loops, np.full((1, columns), 60.0, np.float32)),
    }


def known_history(rng: np.random.Generator, columns: int = 120, gpus: int = 24) -> FleetHistory:
    window = make_window(telemetry(rng, gpus, columns), per_node=8)
    log_r = np.repeat(np.log(0.075) + 0.02 * rng.normal(size=(gpus, 1)), 14, axis=1).astype(np.float32)
    history = make_history(window, make_daily(window.gpus, 14, {"gpu_log_resistance": log_r}))
    loops = {"node-00": "a", "node-01": "b", "node-02": "b"}
    topology = build_topology(window.gpus, Placement({host: {"cooling_loop": loop} for host, loop in loops.items()}))
    return replace(history, topology=topology, environment=places(rng, topology, columns))


def test_the_recent_window_gives_the_grid_of_the_day_where_both_see() -> None:
    """Now is on a ten-minute mark: the newest bins are the ledger's newest summaries."""
    history = known_history(np.random.default_rng(7))
    columns = len(history.recent.times_s)
    places_of = history.environment, history.topology, history.gpus, columns
    day = summarise(history.recent, inlet_by_gpu(*places_of), flow_by_gpu(*places_of))
    whole = grid_of_day(day, history.daily.get("gpu_log_resistance")[:, -1], history.topology)
    recent = grid_of_recent(history, 4)
    np.testing.assert_array_equal(recent.ends_s, whole.ends_s[-4:])
    for field in fields(BinGrid):
        one, other = getattr(recent, field.name), getattr(whole, field.name)
        np.testing.assert_allclose(
            one, other[:, -4:] if one.ndim == 2 else other[-len(one) :], 1e-6, err_msg=field.name
        )
    sources = [set(np.unique(recent.inlet_source[8 * node : 8 * node + 8]).tolist()) for node in range(3)]
    assert sources == [{INLET_MEASURED}, {INLET_PSEUDO}, {INLET_PSEUDO}]
    np.testing.assert_array_equal(recent.flow_ratio[:, -1], [0.75] * 8 + [NAN] * 16)
    assert np.isfinite(recent.power_watts).all()


def test_a_recent_window_shorter_than_asked_for_is_not_observed_before() -> None:
    history = known_history(np.random.default_rng(8), columns=25)
    grid = grid_of_recent(history, 4)
    assert grid.ends_s.tolist() == [NOW_S - 1800, NOW_S - 1200, NOW_S - 600, NOW_S]
    assert np.isnan(grid.temperature_celsius[:, 0]).all()
    assert np.isfinite(grid.temperature_celsius[:, 2:]).all()
    assert np.isfinite(covariates(grid, history.topology)[:, -1, AT["margin_celsius"]][1::3]).all()


def test_a_limit_that_is_not_reported_is_what_the_margin_implies_else_the_boards() -> None:
    levels = {Signal.GPU_TEMPERATURE: 70.0, Signal.GPU_TEMPERATURE_MARGIN: 15.0, Signal.POWER: 500.0}
    window = make_window({signal: np.full((2, 30), level) for signal, level in levels.items()})
    assert grid_of_recent(make_history(window), 2).limit_celsius.tolist() == [85, 85]
    blind = make_window({signal: np.full((2, 30), level) for signal, level in levels.items() if "margin" not in signal})
    assert grid_of_recent(make_history(blind), 2).limit_celsius.tolist() == [87, 87]  # an H100
    strange = replace(blind, gpus=make_gpus(2, product="a board that nobody knows"))
    assert np.isnan(grid_of_recent(make_history(strange), 2).limit_celsius).all()


def test_a_hole_in_the_day_is_not_stepped_over() -> None:
    """Summaries of two hours with forty minutes missing: the bin after the hole has nothing before it."""
    window = make_window(telemetry(np.random.default_rng(9), 4, 120))
    nowhere = np.full((4, 120), NAN, np.float32)
    day = summarise(window, nowhere)
    hole = np.isin(np.arange(len(day.ends_s)), [4, 5, 6, 7])
    holed = replace(day, ends_s=day.ends_s[~hole], columns={k: v[:, ~hole] for k, v in day.columns.items()})
    grid = grid_of_day(holed, np.full(4, NAN), build_topology(window.gpus))
    assert len(grid.ends_s) == 12
    assert np.isnan(grid.temperature_celsius[:, hole]).all()
    np.testing.assert_array_equal(grid.power_watts[:, ~hole], holed.columns["power_watts"])
    starts = sample_bins(grid, build_topology(window.gpus), window.gpus).start_s
    assert not np.isin(starts + 600.0, grid.ends_s[4:9]).any()


def test_the_days_sample_has_the_rows_of_the_days_row() -> None:
    history = known_history(np.random.default_rng(10))
    places_of = history.environment, history.topology, history.gpus, len(history.recent.times_s)
    day = summarise(history.recent, inlet_by_gpu(*places_of), flow_by_gpu(*places_of))
    row: DailyLedger = history.daily
    bins = bins_of_day(day, row, history.topology)
    wanted = sample_bins(
        grid_of_day(day, row.get("gpu_log_resistance")[:, -1], history.topology), history.topology, history.gpus
    )
    assert told(bins, history.gpus) == told(wanted, history.gpus)
    assert len(bins)


def test_without_any_environment_the_source_says_so() -> None:
    """No temperature: nothing that a pseudo-inlet could come from."""
    values: Mapping[Signal, Floats] = {Signal.POWER: np.full((8, 30), 500.0), Signal.ENERGY: np.full((8, 30), 3e4)}
    grid = grid_of_recent(make_history(make_window(values)), 3)
    assert (grid.inlet_source == INLET_UNKNOWN).all()
    assert np.isnan(grid.inlet_celsius).all()
