"""The scenarios of the proof keep what they promise, for each of their seeds."""

import csv
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from healthsvc.simulator import FleetSimulator, load_scenario, write_recording
from healthsvc.simulator.faults import KINDS
from healthsvc.telemetry.recorded import RecordedSource
from tests.simulator.runs import START_S

FIXTURES = Path(__file__).parents[2] / "data" / "fixtures"
SEEDS = tomllib.loads((FIXTURES / "seeds.toml").read_text("utf-8"))


def test_development_and_proof_seeds_are_ten_each_and_apart() -> None:
    assert len(set(SEEDS["development"])) == len(set(SEEDS["proof"])) == 10
    assert not set(SEEDS["development"]) & set(SEEDS["proof"])


def test_the_proof_has_every_kind_and_leaves_85_of_100_gpus_healthy_with_every_seed() -> None:
    proof = load_scenario(FIXTURES / "proof.toml")
    for seed in SEEDS["development"] + SEEDS["proof"]:
        drawn = FleetSimulator(proof, np.random.default_rng(seed), START_S).scenario
        assert {fault.kind for fault in drawn.fault} == KINDS.keys()
        assert drawn.healthy_ratio >= 0.85


@pytest.mark.parametrize("name", ["protocol", "proof-small"])
def test_the_other_scenarios_can_be_drawn_with_every_seed(name: str) -> None:
    scenario = load_scenario(FIXTURES / f"{name}.toml")
    for seed in SEEDS["development"] + SEEDS["proof"]:
        drawn = FleetSimulator(scenario, np.random.default_rng(seed), START_S).scenario
        assert drawn.healthy_ratio >= 0.7


def test_the_small_proof_has_incidents_of_every_class(tmp_path: Path) -> None:
    began = time.perf_counter()
    folder = write_recording(load_scenario(FIXTURES / "proof-small.toml"), tmp_path / "small", SEEDS["development"][0])
    print(f"proof-small: {time.perf_counter() - began:.1f} s")  # noqa: T201
    with (folder / "incidents.csv").open(encoding="utf-8", newline="") as file:
        classes = {row["class"] for row in csv.DictReader(file)}
    assert classes == {"thermal", "memory", "device_loss", "throttling", "maintenance", "none"}
    assert len(RecordedSource(folder).gpus) == 32
