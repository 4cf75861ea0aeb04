"""Small runs for the tests of the simulator."""

from typing import Any

import numpy as np

from healthsvc.fleet import Signal
from healthsvc.simulator import FleetSimulator, Scenario, parse_scenario

START_S = 1_767_571_200.0  # 2026-01-05T00:00:00Z, a Monday
STEADY = {"duty_ratio": 1.0, "job_hours": 240.0, "level_min_ratio": 0.9, "level_max_ratio": 0.98}


def scenario(*faults: dict[str, Any], **changes: Any) -> Scenario:
    """16 GPUs, two nodes on a loop each, two days; `changes` replace whole tables."""
    fleet = {"gpus": 16, "nodes_per_rack": 1, "racks_per_loop": 1}
    return parse_scenario({"name": "small", "days": 2, "fleet": fleet, **changes, "fault": faults}, "test")


def run(wanted: Scenario, seed: int = 1, start_s: float = START_S) -> tuple[FleetSimulator, dict[Signal, np.ndarray]]:
    """The simulator after its run, and all its samples [gpu, time]; places too [place, time]."""
    simulator = FleetSimulator(wanted, np.random.default_rng(seed), start_s)
    chunks = list(simulator.chunks())
    values = {s: np.concatenate([c.values[s] for c in chunks], axis=1) for s in chunks[0].values}
    for signal in chunks[0].environment:
        values[signal] = np.concatenate([c.environment[signal].values for c in chunks], axis=1)
    return simulator, values


def same(one: dict[Signal, np.ndarray], other: dict[Signal, np.ndarray], rows: list[int]) -> bool:
    """Whether these GPUs showed the same in both runs."""
    gpu_signals = [s for s in one if len(one[s]) == 16]
    return all(np.array_equal(one[s][rows], other[s][rows], equal_nan=True) for s in gpu_signals)
