"""A physical fleet simulator with fault scenarios: for the demo, the tests and the notebooks."""

from healthsvc.simulator.fleet import Chunk, FleetSimulator
from healthsvc.simulator.scenario import Scenario, load_scenario, parse_scenario
from healthsvc.simulator.spec import ScenarioError
from healthsvc.simulator.writer import write_recording

__all__ = [
    "Chunk",
    "FleetSimulator",
    "Scenario",
    "ScenarioError",
    "load_scenario",
    "parse_scenario",
    "write_recording",
]
