"""The arithmetic over all places at once agrees with one place after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.fleet import HOLDS_SHARE
from healthsvc.incidents.places import Places, chosen_places
from tests import naive_incidents
from tests.histories import NOW_S
from tests.incident_cases import fleet_at, forecast_of

GPUS = 24
DOMAINS = st.lists(st.sets(st.integers(0, GPUS - 1), min_size=1, max_size=8), min_size=1, max_size=12)
FEW = settings(deadline=None, max_examples=60)


def made(domains: list[set[int]]) -> Places:
    return Places.of(
        tuple(("node", str(i)) for i in range(len(domains))), tuple(np.array(sorted(d), np.int32) for d in domains)
    )


@FEW
@given(DOMAINS, st.data())
def test_places_hang_together_as_one_by_one(domains: list[set[int]], data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(domains) - 1), min_size=1)))
    group, of_gpu = made(domains).overlapping(np.array(chosen), GPUS)
    fast = {frozenset(chosen[i] for i in np.flatnonzero(group == g)) for g in np.unique(group).tolist()}
    assert fast == {frozenset(g) for g in naive_incidents.overlapping({n: sorted(domains[n]) for n in chosen})}
    for number, domain in enumerate(chosen):
        assert {int(of_gpu[row]) for row in domains[domain]} == {int(group[number])}
    outside = set(range(GPUS)) - set().union(*(domains[n] for n in chosen))
    assert all(of_gpu[row] == -1 for row in outside)


@FEW
@given(DOMAINS, st.lists(st.integers(-1, 2), min_size=GPUS, max_size=GPUS))
def test_the_smallest_place_that_holds_them_is_found_for_all_groups_alike(
    domains: list[set[int]], group: list[int]
) -> None:
    found = made(domains).smallest_holding(np.array(group, np.intp), 3)
    for number in range(3):
        affected = {row for row in range(GPUS) if group[row] == number}
        slow = naive_incidents.smallest_holding(affected, [sorted(d) for d in domains], HOLDS_SHARE)
        assert found[number] == (-1 if slow is None or not affected else slow)


@FEW
@given(DOMAINS, st.data())
def test_what_smaller_places_explain_is_counted_alike(domains: list[set[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(domains) - 1)))
    flags = np.isin(np.arange(len(domains)), sorted(chosen))
    found = made(domains).within_smaller(flags, GPUS)
    slow = [naive_incidents.within_smaller(n, chosen, [sorted(d) for d in domains]) for n in range(len(domains))]
    assert found.tolist() == slow


def test_a_place_that_the_forecast_leaves_out_is_found_where_it_is_needed() -> None:
    history = fleet_at(NOW_S, 4, {"rack": 2})
    forecast = forecast_of(history)
    places, at = chosen_places(forecast, history.topology, [("rack", "r1"), ("cooling_loop", "loop-9")])
    assert len(places.names) == len(forecast.domains)  # it knows r1, and nobody knows the loop
    assert at.tolist() == list(range(len(at)))
    looped = fleet_at(NOW_S, 4, {"rack": 2, "cooling_loop": 2})
    places, at = chosen_places(forecast, looped.topology, [("cooling_loop", "loop-1")])
    assert (places.names[-1], at[-1]) == (("cooling_loop", "loop-1"), -1)
    assert places.members[-1].tolist() == list(range(16, 32))


def test_jobs_are_no_places_for_an_incident() -> None:
    history = fleet_at(NOW_S, 4)
    forecast = forecast_of(history)
    renamed = tuple(("job", name) if layer == "rack" else (layer, name) for layer, name in forecast.domains)
    object.__setattr__(forecast, "domains", renamed)
    places, at = chosen_places(forecast, history.topology, ())
    assert {layer for layer, _ in places.names} == {"node", "cooling_loop"}
    assert [renamed[i] for i in at.tolist()] == list(places.names)


def test_no_places_are_no_trouble() -> None:
    none = Places.of((), ())
    assert none.count(np.zeros(3, bool)).tolist() == []
    assert none.within_smaller(np.zeros(0, bool), 3).tolist() == []


@pytest.mark.parametrize("flagged", [[], [0, 5], list(range(GPUS))])
def test_members_are_counted_in_every_place_they_are_in(flagged: list[int]) -> None:
    domains = [{0, 1, 2}, {2, 3}, {5}]
    flags = np.isin(np.arange(GPUS), flagged)
    assert made(domains).count(flags).tolist() == [len(d & set(flagged)) for d in domains]
