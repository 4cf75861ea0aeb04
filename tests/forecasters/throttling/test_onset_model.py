"""Onsets: the fit is the textbook's, what it does not know it does not claim, and heat is never good for a GPU."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.fleet import NEIGHBOUR_LAYERS, ONSET_COVARIATES, OnsetBins, Topology
from healthsvc.fleet.onset_bins import INLET_MEASURED, INLET_UNKNOWN
from healthsvc.forecasters.throttling.onset_model import (
    FLOW_DEFICIT,
    MARGIN,
    NEIGHBOURS,
    Believed,
    OnsetModel,
    OnsetPrior,
    fit_onsets,
)
from healthsvc.forecasters.throttling.place_effects import Rows, fit_places
from tests import naive_onset_model

Numbers = NDArray[np.float64]
GPUS, NODES, RACKS = 32, 8, 2
MANY_NODES, MANY_RACKS = 48, 12
ROUNDING = 1e-9
INLET = slice(ONSET_COVARIATES.index("inlet_celsius"), ONSET_COVARIATES.index("inlet_change_celsius") + 1)
TOPOLOGY = Topology(
    {
        "node": np.repeat(np.arange(NODES), 4).astype(np.int32),
        "rack": np.repeat(np.arange(RACKS), 16).astype(np.int32),
    },
    {"node": tuple(f"n{i}" for i in range(NODES)), "rack": ("left", "right")},
)
TRUE = np.array([-0.3, 0.5, 1.0, 0.1, 0.3, 2.0, 0.8, 0.0, 0.0])
PRIOR = OnsetPrior(
    2.0,
    {
        name: Believed(mean, 0.5, at)
        for name, mean, at in zip(
            ONSET_COVARIATES, (-0.5, 0.0, 1.0, 0.0, 0.3, 2.0, 0.8, 0.4, 0.3), (20.0, 0.75, *[0.0] * 7), strict=True
        )
    },
    0.5,
    300,
)


def usual(count: int) -> NDArray[np.float32]:
    """x [gpu, covariate] of usual bins."""
    return np.tile(np.array([PRIOR.effects[name].at for name in ONSET_COVARIATES], np.float32), (count, 1))


def some_bins(count: int, seed: int, base: float = -1.0, effects: Numbers = TRUE) -> OnsetBins:
    """Every bin kept; onsets by the hazard with these effects."""
    rng = np.random.default_rng(seed)
    x = usual(count)
    x[:, :6] += rng.normal(0.0, (5.0, 0.1, 0.1, 2.0, 0.5, 0.1), (count, 6)).astype(np.float32)
    x[:, NEIGHBOURS] = np.log1p(rng.poisson(0.3, (count, 3)))
    odds = base + (x - usual(1)) @ effects
    row = rng.integers(0, GPUS, count)
    return OnsetBins(
        row.astype(np.int32),
        rng.integers(0, 4320, count).astype(np.float64) * 600.0,
        rng.random(count) < 1.0 / (1.0 + np.exp(-odds)),
        np.ones(count, np.float32),
        np.full(count, INLET_MEASURED, np.int8),
        x,
    )


def fitted(bins: OnsetBins) -> OnsetModel:
    return fit_onsets(bins, TOPOLOGY, GPUS, PRIOR)


def some_places(count: int, seed: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Node and rack of each row; some nodes are not known, and of these the rack is."""
    rng = np.random.default_rng((seed, 0))
    node = rng.integers(-1, MANY_NODES, count)
    return node.astype(np.int32), np.where(node < 0, 2, node // 4).astype(np.int32)


def some_rows(count: int, seed: int, node_sd: float = 0.6, rack_sd: float = 0.6) -> Rows:
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.ones((count, 1)), rng.normal(size=(count, 3))], axis=1)
    node, rack = some_places(count, seed)
    offset = rng.normal(0.0, 0.3, count)
    place = np.append(rng.normal(0.0, node_sd, MANY_NODES), 0.0)[node]
    place += np.where(node < 0, 0.0, rng.normal(0.0, rack_sd, MANY_RACKS)[rack])
    odds = x @ np.array([-1.5, 0.5, -0.3, 0.2]) + place + offset
    onset = (rng.random(count) < 1.0 / (1.0 + np.exp(-odds))).astype(np.float64)
    return Rows.of(x, onset, offset, node, rack, MANY_NODES, MANY_RACKS)


def test_without_places_effects_and_their_errors_are_those_of_a_binomial_regression_with_an_offset() -> None:
    import statsmodels.api as sm

    made = some_rows(6000, 1)
    nowhere = np.full(6000, -1, np.int32)
    rows = Rows.of(made.x, made.onset, made.offset, nowhere, nowhere, 0, 0)
    ours = fit_places(rows, np.zeros(4), np.full(4, 1e6), 0.5)
    theirs = sm.GLM(rows.onset, rows.x, family=sm.families.Binomial(), offset=rows.offset).fit(tol=1e-12)
    np.testing.assert_allclose(ours.effects, theirs.params, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(ours.covariance)), theirs.bse, rtol=1e-6)


def test_with_places_it_is_the_regression_that_has_a_column_for_each_of_them() -> None:
    rows = some_rows(3000, 2)
    centre, spread = np.array([-1.0, 0.2, 0.0, 0.0]), np.array([3.0, 0.5, 5.0, 5.0])
    ours = fit_places(rows, centre, spread, 0.5)
    mode, covariance = naive_onset_model.fit(
        rows.x, rows.onset, rows.offset, *some_places(3000, 2), centre, spread, ours.node_sd, ours.rack_sd
    )
    np.testing.assert_allclose(np.concatenate([ours.effects, ours.node, ours.rack]), mode, atol=1e-6)
    np.testing.assert_allclose(ours.covariance, covariance[:4, :4], rtol=1e-6, atol=1e-12)


def test_the_doubt_about_a_place_is_that_of_the_whole_hessian_where_the_effects_are_known() -> None:
    rows = some_rows(3000, 3)
    known = np.full(4, 1e-4)
    ours = fit_places(rows, np.zeros(4), known, 0.5)
    _, covariance = naive_onset_model.fit(
        rows.x, rows.onset, rows.offset, *some_places(3000, 3), np.zeros(4), known, ours.node_sd, ours.rack_sd
    )
    found = np.concatenate([ours.node_variance, ours.rack_variance])
    np.testing.assert_allclose(found, np.diag(covariance)[4:], rtol=1e-4)


@pytest.mark.parametrize(("node_sd", "rack_sd"), [(0.7, 0.0), (0.0, 0.7), (0.7, 0.7)])
def test_it_is_learned_how_much_places_differ(node_sd: float, rack_sd: float) -> None:
    # Ten onsets a node: what is found of each is shrunk, and its deviation is not that of the truth.
    found = [
        fit_places(some_rows(1500, seed, node_sd, rack_sd), np.zeros(4), np.full(4, 5.0), 0.5) for seed in range(12)
    ]
    for name, true in (("node", node_sd), ("rack", rack_sd)):
        learned = float(np.median([getattr(each, f"{name}_sd") for each in found]))
        assert (learned == pytest.approx(true, abs=0.12)) if true else (learned < 0.4)


def test_true_effects_are_found_again() -> None:
    model = fitted(some_bins(40_000, 4))
    np.testing.assert_allclose(model.effects, TRUE, atol=0.35)
    assert model.intercept + (usual(1)[0] - model.usual) @ model.effects == pytest.approx(-1.0, abs=0.15)
    for layer, true in zip(model.neighbour_effects(), TRUE[NEIGHBOURS], strict=True):
        assert layer.status == "estimated"
        assert layer.low - 0.1 < true < layer.high + 0.1
        assert layer.high - layer.low < 0.5


def test_bins_left_out_by_a_known_share_change_nothing_but_the_doubt() -> None:
    whole = some_bins(80_000, 5, base=-3.0)
    share = np.where(whole.x[:, INLET.start] > 1.0, 0.5, 0.05).astype(np.float32)
    keep = whole.onset | (np.random.default_rng(0).random(len(whole)) < share)
    sample = replace(whole, share=share).where(keep)
    assert len(sample) < 0.5 * len(whole)
    few, all_of = fitted(sample), fitted(whole)
    np.testing.assert_allclose(few.usual, all_of.usual, atol=0.15)
    x, places = usual(1), np.zeros(1)
    assert few.log_odds(x, places, 12.0) == pytest.approx(all_of.log_odds(x, places, 12.0), abs=0.15)
    np.testing.assert_allclose(few.effects[NEIGHBOURS], all_of.effects[NEIGHBOURS], atol=0.15)
    assert (few.sd > all_of.sd).all()


def test_without_bins_it_is_the_prior_and_claims_nothing() -> None:
    model = fitted(OnsetBins())
    odds = model.log_odds(usual(GPUS), model.places(TOPOLOGY, GPUS), 3.0)
    np.testing.assert_allclose(np.exp(odds), np.expm1(2.0 * 600.0 / (365.25 * 86_400.0)), rtol=1e-9)
    assert [effect.status for effect in model.neighbour_effects()] == ["insufficient"] * 3
    np.testing.assert_allclose(model.effects[NEIGHBOURS], (0.8, 0.4, 0.3), atol=1e-9)


def test_below_three_hundred_onsets_the_effect_of_neighbours_is_not_told_but_used() -> None:
    bins = some_bins(4000, 6)
    enough = np.cumsum(bins.onset) <= 299
    model = fitted(bins.where(enough))
    assert fitted(bins.where(np.cumsum(bins.onset) <= 300)).neighbour_effects()[0].status == "estimated"
    assert model.onsets == 299
    assert [effect.status for effect in model.neighbour_effects()] == ["insufficient"] * 3
    assert np.isnan([effect.effect for effect in model.neighbour_effects()]).all()
    assert model.effects[NEIGHBOURS[0]] > 0.3


def test_with_onsets_enough_what_was_believed_before_hardly_counts() -> None:
    bins = some_bins(6000, 16)
    others = {name: Believed(each.mean + 1.0, each.sd, each.at) for name, each in PRIOR.effects.items()}
    doubtful = replace(PRIOR, effects=others)
    away = fit_onsets(bins, TOPOLOGY, GPUS, doubtful).effects - fitted(bins).effects
    np.testing.assert_allclose(away[NEIGHBOURS], 0.0, atol=1e-4)  # of neighbours nothing is believed
    np.testing.assert_allclose(away, 0.0, atol=0.05)
    few = bins.where(np.cumsum(bins.onset) < 100)
    assert (fit_onsets(few, TOPOLOGY, GPUS, doubtful).effects - fitted(few).effects)[NEIGHBOURS].min() > 0.05


@pytest.mark.parametrize(("share", "status"), [(0.4, "estimated"), (0.6, "not separable")])
def test_where_the_inlet_is_mostly_unknown_contagion_is_not_separable(share: float, status: str) -> None:
    bins = some_bins(4000, 7)
    blind = np.arange(len(bins)) < share * len(bins)
    x = bins.x.copy()
    x[blind, INLET] = np.nan
    source = np.where(blind, INLET_UNKNOWN, INLET_MEASURED).astype(np.int8)
    model = fitted(replace(bins, x=x, inlet_source=source))
    assert [effect.status for effect in model.neighbour_effects()] == [status] * 3


def test_a_layer_whose_neighbours_never_throttle_is_insufficient() -> None:
    bins = some_bins(4000, 8)
    x = bins.x.copy()
    x[:, NEIGHBOURS[2]] = 0.0
    model = fitted(replace(bins, x=x))
    told = dict(zip(NEIGHBOUR_LAYERS, (effect.status for effect in model.neighbour_effects()), strict=True))
    assert told == {"node": "estimated", "rack": "estimated", "cooling_loop": "insufficient"}


def test_what_is_not_observed_counts_as_usual() -> None:
    bins = some_bins(4000, 9)
    x = bins.x.copy()
    x[::3, MARGIN] = np.nan
    model = fitted(replace(bins, x=x))
    np.testing.assert_allclose(model.usual[MARGIN], np.nanmean(x[~bins.onset, MARGIN], dtype=np.float64), rtol=1e-6)
    blank = usual(2)
    blank[0, MARGIN], blank[1, MARGIN] = np.nan, model.usual[MARGIN]
    first, second = model.log_odds(blank, np.zeros(2), 0.0)
    assert first == pytest.approx(second, abs=1e-6)
    assert np.isfinite(model.effects).all()


def test_a_site_far_from_the_usual_loses_little_by_what_it_did_not_observe() -> None:
    bins = some_bins(20_000, 17)
    x = bins.x.copy()
    x[:, INLET.start] += 12.0
    whole = fitted(replace(bins, x=x))
    x[::4, INLET.start] = np.nan
    gappy = fitted(replace(bins, x=x))
    odds = [model.log_odds(x, np.zeros(len(x)), 0.0).mean() for model in (whole, gappy)]
    assert odds[1] == pytest.approx(odds[0], abs=0.02)
    assert gappy.effects[INLET.start] == pytest.approx(whole.effects[INLET.start], abs=0.02)


def test_a_place_is_known_by_its_name_and_a_new_one_adds_nothing() -> None:
    bins = some_bins(8000, 10)
    onset = bins.onset | (np.isin(bins.row, range(4)) & (np.random.default_rng(1).random(len(bins)) < 0.3))
    model = fitted(replace(bins, onset=onset))
    added = model.places(TOPOLOGY, GPUS)
    assert added[:4].min() > added[4:].max() + 0.3
    # The same places under other numbers, one of them new.
    names = {"node": ("new", *TOPOLOGY.names["node"][1:][::-1], "n0"), "rack": ("right", "left")}
    moved = Topology(
        {"node": np.array([0, 8, 1, -1], np.int32), "rack": np.array([1, 1, 0, -1], np.int32)},
        names,
    )
    expected = [model.rack["left"], added[0], model.node["n7"] + model.rack["right"], 0.0]
    np.testing.assert_allclose(model.places(moved, 4), expected)


def test_the_hour_of_the_day_is_learned() -> None:
    bins = some_bins(30_000, 11, base=-2.0)
    day = np.cos(2 * np.pi * (bins.start_s / 86_400.0 - 14.0 / 24.0))
    hot = bins.onset | (np.random.default_rng(2).random(len(bins)) < 0.15 * np.maximum(day, 0.0))
    model = fitted(replace(bins, onset=hot))
    odds = [float(model.log_odds(usual(1), np.zeros(1), hour)[0]) for hour in range(24)]
    assert np.argmax(odds) in (12, 13, 14, 15, 16)
    assert max(odds) - min(odds) > 0.2


def test_a_model_survives_the_shelf() -> None:
    model = fitted(some_bins(4000, 12))
    shelf = BytesIO()
    np.savez(shelf, **model.to_arrays())  # type: ignore[arg-type]
    shelf.seek(0)
    again = OnsetModel.from_arrays(dict(np.load(shelf, allow_pickle=False)))
    assert again.neighbour_effects() == model.neighbour_effects()
    x = some_bins(GPUS, 13).x
    np.testing.assert_array_equal(
        again.log_odds(x, again.places(TOPOLOGY, GPUS), 5.0), model.log_odds(x, model.places(TOPOLOGY, GPUS), 5.0)
    )
    empty = OnsetModel.from_arrays(fit_onsets(OnsetBins(), Topology({}, {}), 0, PRIOR).to_arrays())
    assert (empty.node, empty.rack) == ({}, {})


@pytest.mark.parametrize("onset", [True, False])
def test_a_site_of_nothing_but_onsets_or_of_none_is_still_a_finite_model(onset: bool) -> None:
    bins = some_bins(2000, 14)
    model = fitted(replace(bins, onset=np.full(len(bins), onset)))
    odds = model.log_odds(bins.x, np.zeros(len(bins)), 0.0)
    assert np.isfinite(odds).all()
    assert (odds.mean() > 0) == onset


def test_an_effect_that_turns_round_as_another_is_held_is_held_too() -> None:
    model = fitted(some_bins(804, 1, effects=np.array([2.0, *[0.0] * 8])))
    np.testing.assert_allclose(model.effects[[MARGIN, FLOW_DEFICIT]], 0.0, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(0, 1500),
    st.lists(st.floats(-3.0, 3.0), min_size=9, max_size=9),
    st.floats(0.0, 60.0),
    st.floats(0.0, 30.0),
)
def test_hotter_is_never_safer_and_less_flow_neither(
    seed: int, count: int, effects: list[float], margin: float, hotter: float
) -> None:
    model = fitted(some_bins(count, seed, effects=np.array(effects)))  # effects that no physics has, at times
    x = usual(3)
    x[:, MARGIN] = margin
    x[1, MARGIN] -= hotter
    x[2, FLOW_DEFICIT] += hotter / 30.0
    cool, warm, dry = model.log_odds(x, np.zeros(3), 12.0)
    assert warm >= cool - ROUNDING
    assert dry >= cool - ROUNDING


def test_of_a_calm_site_most_bins_are_left_out_and_the_rate_is_as_if_they_were_not() -> None:
    bins = some_bins(150_000, 31, base=-6.0, effects=np.zeros(len(TRUE)))
    bins = replace(bins, x=np.where(np.arange(len(TRUE)) == MARGIN, bins.x, usual(len(bins))).astype(np.float32))
    onsets = int(bins.onset.sum())
    assert 300 < onsets < 400, "so that fifty controls an onset are far fewer than there are"
    model = fitted(bins)
    at_usual = model.log_odds(model.usual[None].astype(np.float32), np.zeros(1), 0.0)
    assert np.exp(at_usual[0]) == pytest.approx(onsets / (len(bins) - onsets), rel=0.25)
    assert model.onsets == onsets
