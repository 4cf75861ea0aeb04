"""The study of contagion: its fleets are what they claim to be, and its counts are what they say."""

import numpy as np
import pytest

from healthsvc.fleet import NEIGHBOUR_LAYERS
from healthsvc.forecasters.throttling.onset_model import NEIGHBOURS
from scripts.studies.cascade_contagion import figures, of_the_day_before, shown, study
from scripts.studies.contagion_fleet import A_NODE, CLEAR_BINS, LIMIT_CELSIUS, Fleet, Size, make_fleet

SMALL = Size(16, 4)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return make_fleet(101, 0, 0.8, SMALL)


def test_the_same_seed_gives_the_same_fleet_and_another_number_another(fleet: Fleet) -> None:
    again, other = make_fleet(101, 0, 0.8, SMALL), make_fleet(101, 1, 0.8, SMALL)
    np.testing.assert_array_equal(fleet.grid.throttled_ratio, again.grid.throttled_ratio)
    assert (fleet.grid.throttled_ratio != other.grid.throttled_ratio).any()


def test_contagion_makes_more_of_it_and_nobody_begins_before_half_an_hour_is_clear(fleet: Fleet) -> None:
    alone = make_fleet(101, 0, 0.0, SMALL)
    assert fleet.grid.throttled_ratio.sum() > 1.02 * alone.grid.throttled_ratio.sum()
    hot = fleet.grid.throttled_ratio > 0
    begins = hot[:, 1:] & ~hot[:, :-1]
    for back in range(2, CLEAR_BINS + 1):
        assert not (begins[:, back - 1 :] & hot[:, :-back]).any()


def test_the_pseudo_inlet_follows_the_air_within_a_degree(fleet: Fleet) -> None:
    error = fleet.pseudo - fleet.grid.inlet_celsius
    assert np.abs(error).mean() < 1.0
    assert fleet.grid.inlet_celsius.std() > 2.0
    assert fleet.grid.temperature_celsius.max() < LIMIT_CELSIUS + 15


def test_the_fit_is_shown_the_same_bins_whatever_is_known_of_the_inlet(fleet: Fleet) -> None:
    known, hidden, none = (shown(fleet, name) for name in ("known", "hidden", "none"))
    for other in (hidden, none):
        np.testing.assert_array_equal(known.row, other.row)
        np.testing.assert_array_equal(known.onset, other.onset)
    assert np.isnan(none.x[:, 3]).all()
    assert not np.array_equal(known.x[:, 3], hidden.x[:, 3])


def test_neighbours_of_the_day_before_are_those_of_the_same_gpu_a_day_earlier(fleet: Fleet) -> None:
    known = shown(fleet, "known")
    shifted = of_the_day_before(known, fleet)
    assert 0.5 * len(known) < len(shifted) < len(known)
    hot = fleet.grid.throttled_ratio > 0
    for i in np.flatnonzero(shifted.x[:, NEIGHBOURS[0]] > 0)[:20].tolist():
        row, start_s = int(shifted.row[i]), float(shifted.start_s[i])
        at = int(np.flatnonzero(fleet.grid.ends_s == start_s - 86_400.0)[0])
        node = row // A_NODE * A_NODE
        others = hot[node : node + A_NODE, at].sum() - hot[row, at]
        assert shifted.x[i, NEIGHBOURS[0]] == pytest.approx(np.log1p(others))


def test_the_quick_study_tells_of_every_way_and_nothing_without_an_environment() -> None:
    told = study(101, 0, 0.0, SMALL)
    assert list(told) == ["known", "hidden", "none", "known, but ignored"]
    assert [layer["layer"] for layer in told["known"]] == list(NEIGHBOUR_LAYERS)
    counts = figures([told], 0.0)
    assert counts["none"]["fleets"] == 1
    assert counts["none"]["estimated"] == 0
    assert list(study(101, 0, 0.4, SMALL)) == ["known", "known; neighbours of the day before"]


def test_counts_are_of_intervals_that_hold_the_truth_lie_above_zero_or_beside_it() -> None:
    def layer(name: str, status: str, effect: float, low: float, high: float) -> dict[str, object]:
        return {"layer": name, "status": status, "effect": effect, "low": low, "high": high, "onsets": 1000}

    silent = [layer(name, "not separable", np.nan, np.nan, np.nan) for name in NEIGHBOUR_LAYERS]
    wider = [layer("rack", "estimated", 0.3, 0.1, 0.5), layer("cooling_loop", "estimated", 0.0, -0.1, 0.1)]
    fleets = [
        {"known": [layer("node", "estimated", 0.5, 0.3, 0.7), *wider]},
        {"known": [layer("node", "estimated", -0.3, -0.5, -0.1), *wider]},
        {"known": [layer("node", "estimated", 0.1, -0.1, 0.3), *wider]},
        {"known": silent},
    ]
    found = figures(fleets, 0.4)["known"]
    assert (found["fleets"], found["estimated"], found["not_separable"]) == (4, 3, 1)
    assert (found["covered"], found["claimed"], found["rejected"]) == (1, 1, 2)
    assert found["mean_error"] == pytest.approx(0.1 - 0.4)
    assert (found["wider"], found["wider_claimed"]) == (6, 3)
