"""Populations: so many faults as asked, within their ranges, on targets of their own, the same for the same seed."""

from typing import Any

import numpy as np
import pytest

from healthsvc.simulator import FleetSimulator, Scenario, ScenarioError, parse_scenario
from healthsvc.simulator.faults import Fault
from tests.simulator.runs import START_S


def drawn(*populations: dict[str, Any], seed: int = 1, gpus: int = 64, **changes: Any) -> Scenario:
    """A scenario of `gpus` with these populations drawn; 2 loops of 32 GPUs each for 64."""
    table = {"name": "crowd", "days": 30, "fleet": {"gpus": gpus}, **changes, "population": populations}
    return FleetSimulator(parse_scenario(table, "test"), np.random.default_rng(seed), START_S).scenario


DRIFT = {
    "kind": "tim_drift",
    "count": 5,
    "start_day": [2, 20],
    "growth_percent_per_day": {"log_uniform": [0.1, 10.0]},
}
LOSS = {"kind": "off_bus", "count": 10, "start_day": [0, 30], "lasts_days": [0.1, 0.2]}


def test_counts_and_ranges_are_kept() -> None:
    faults = drawn(DRIFT, LOSS).fault
    drifts, losses = faults[:5], faults[5:]
    assert {f.kind for f in drifts} == {"tim_drift"}
    assert all(2 <= f.start_day <= 20 and 0.1 <= f.severity["growth_percent_per_day"] <= 10 for f in drifts)
    assert len(losses) == 10
    assert all(f.end_day is not None and 0.1 <= f.end_day - f.start_day <= 0.2 + 1e-9 for f in losses)


def test_log_uniform_ranges_have_their_middle_at_the_geometric_mean() -> None:
    faults = drawn({**DRIFT, "count": 60}).fault
    assert np.median([f.severity["growth_percent_per_day"] for f in faults]) == pytest.approx(1.0, rel=0.6)


def test_the_seed_decides_targets_moments_and_severities() -> None:
    assert drawn(DRIFT, LOSS) == drawn(DRIFT, LOSS)
    assert drawn(DRIFT, LOSS).fault != drawn(DRIFT, LOSS, seed=2).fault


def test_one_population_more_leaves_the_severities_of_the_others_as_they_were() -> None:
    alone, together = drawn(DRIFT).fault, drawn(DRIFT, LOSS).fault[:5]
    assert [f.target for f in alone] == [f.target for f in together]
    assert [f.severity for f in alone] == [f.severity for f in together]


def test_a_rate_is_for_each_gpu_and_year_and_enrichment_multiplies_it() -> None:
    natural = {"kind": "off_bus", "rate_per_year": 0.5, "start_day": [0, 30], "may_overlap": True}
    counts = [len(drawn(natural, seed=seed, gpus=128).fault) for seed in range(30)]
    more = [len(drawn({**natural, "enrichment": 4.0}, seed=seed, gpus=128).fault) for seed in range(30)]
    expected = 0.5 * 128 * 30 / 365.25
    assert np.mean(counts) == pytest.approx(expected, rel=0.25)
    assert np.mean(more) == pytest.approx(4 * expected, rel=0.15)


def test_a_rate_of_a_domain_is_for_each_domain_and_year() -> None:
    losses = {"kind": "loop_flow_loss", "rate_per_year": 12.0, "start_day": [0, 30]}
    counts = [len(drawn(losses, seed=seed, gpus=64).fault) for seed in range(30)]
    assert np.mean(counts) == pytest.approx(12.0 * 2 * 30 / 365.25, rel=0.35)


def test_faults_take_targets_that_no_other_fault_has() -> None:
    node = {"kind": "maintenance", "count": 3, "start_day": [1, 20], "lasts_days": 0.5}
    mine: dict[str, Any] = {"kind": "sudden_dbe", "target": 0, "start_day": 1.0}
    for seed in range(5):
        scenario = drawn(DRIFT, {**LOSS, "count": 34}, node, fault=[mine], seed=seed)
        rows = [row for fault in scenario.fault for row in fault.rows(scenario.layout).tolist()]
        assert len(rows) == len(set(rows)) == 64


def test_what_hits_a_loop_or_the_fleet_comes_on_top() -> None:
    wave = {"kind": "heat_wave", "count": 1, "start_day": 5, "lasts_days": 2}
    flow = {"kind": "loop_flow_loss", "count": 2, "start_day": [1, 9], "lasts_days": 1}
    storm = {"kind": "app_xids", "count": 8, "start_day": [1, 9], "may_overlap": True}
    faults = drawn(wave, flow, storm, {**LOSS, "count": 60}).fault
    assert [f.kind for f in faults[:11]] == ["heat_wave", "loop_flow_loss", "loop_flow_loss", *["app_xids"] * 8]
    assert len({f.target for f in faults if f.kind == "loop_flow_loss"}) == 2
    assert len(faults) == 71


def test_a_loop_gets_no_more_than_its_share() -> None:
    for seed in range(5):
        scenario = drawn({**DRIFT, "count": 4, "most_in_a_loop": 2}, seed=seed)
        loops = [int(scenario.layout.loop_of[f.rows(scenario.layout)[0]]) for f in scenario.fault]
        assert sorted(loops) == [0, 0, 1, 1]


def test_too_many_faults_for_the_fleet_are_refused_with_the_cure() -> None:
    with pytest.raises(ScenarioError, match=r"off_bus: 65 wanted, and only 64 targets are free.*fleet larger"):
        drawn({**LOSS, "count": 65})


def test_a_given_target_is_always_hit() -> None:
    cap = {"kind": "power_cap_change", "count": 1, "target": "fleet", "start_day": [1, 9], "lasts_days": 1}
    (fault,) = drawn(cap).fault
    assert isinstance(fault, Fault)
    assert fault.target == "fleet"


def test_populations_survive_a_change_of_fleet_and_days() -> None:
    table = {"name": "crowd", "days": 30, "population": [DRIFT, LOSS]}
    small = parse_scenario(table, "test")
    assert small.with_fleet(gpus=24).population == small.population
