"""Scenario files: what is read, and how a wrong one is refused."""

from pathlib import Path

import pytest

from healthsvc.simulator import ScenarioError, load_scenario
from tests.simulator.runs import scenario

FIXTURES = Path(__file__).parents[2] / "data" / "fixtures"


@pytest.mark.parametrize("name", ["demo", "end_to_end", "proof", "proof-small", "protocol"])
def test_the_shipped_scenarios_can_be_read(name: str) -> None:
    found = load_scenario(FIXTURES / f"{name}.toml")
    assert found.name == name
    assert found.start is not None
    assert found.fault or found.population


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("days = 0", ["days = 0", "greater than 0"]),
        ("step_s = 70", ["step_s = 70", "whole number of steps"]),
        ("start = 2026-01-05T00:00:00", ["start", "time zone"]),
        ("[fleet]\nbaskets = 3", ["fleet.baskets = 3", "remove it"]),
        ('[[fault]]\nkind = "rust"\ntarget = 1\nstart_day = 1', ["kind = 'rust'", "choose one of tim_drift"]),
        ('[[fault]]\nkind = "tim_drift"\ntarget = 99\nstart_day = 1', ["target = 99", "give its row, 0 to 63"]),
        ('[[fault]]\nkind = "tim_drift"\ntarget = true\nstart_day = 1', ["target", "True", "valid integer"]),
        ('[[fault]]\nkind = "loop_flow_loss"\ntarget = "loop-9"\nstart_day = 1', ["target = 'loop-9'", "loop-1"]),
        (
            '[[fault]]\nkind = "tim_drift"\ntarget = 1\nstart_day = 1\nspeed = 2',
            ["speed = 2", "growth_percent_per_day"],
        ),
        ('[[fault]]\nkind = "tim_drift"\ntarget = 1\nstart_day = 3\nend_day = 2', ["end_day = 2", "after start_day"]),
        ('[[fault]]\nkind = "tim_drift"\ntarget = 1\nstart_day = 61', ["start_day = 61", "earlier"]),
        ("days = ", ["not a TOML file"]),
        ('noise = "loud"', ["noise = 'loud'", "'quiet', 'default' or 'noisy'"]),
        ('[[population]]\nkind = "off_bus"\nstart_day = 1', ["count or rate_per_year"]),
        ('[[population]]\nkind = "off_bus"\ncount = 1\nstart_day = [5, 2]', ["start_day", "low first"]),
        ('[[population]]\nkind = "off_bus"\ncount = 1\nstart_day = [5, 61]', ["start_day = 61", "earlier"]),
        ('[[population]]\nkind = "off_bus"\ncount = 1\nstart_day = 1\nspeed = 2', ["speed = 2", "precursor_hours"]),
        ('[[population]]\nkind = "power_brake"\ncount = 1\nstart_day = 1', ["racks_per_feed"]),
        ('[[population]]\nkind = "off_bus"\ncount = 1\nenrichment = 2\nstart_day = 1', ["enrichment = 2", "instead"]),
        ('[[fault]]\nkind = "power_brake"\ntarget = "feed-1"\nstart_day = 1', ["fewer than 3 nodes", "racks_per_feed"]),
    ],
)
def test_a_wrong_scenario_names_key_value_and_cure(tmp_path: Path, text: str, said: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ScenarioError) as refused:
        load_scenario(path)
    message = str(refused.value)
    assert all(part in message for part in [str(path), *said]), message


def test_a_missing_scenario_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.toml.*give the path"):
        load_scenario(tmp_path / "none.toml")


def test_the_same_scenario_serves_another_fleet_and_length() -> None:
    small = scenario({"kind": "tim_drift", "target": 3, "start_day": 1.0, "growth_percent_per_day": 2.0})
    larger = small.with_fleet(gpus=24, days=5)
    assert (larger.fleet.gpus, larger.days, larger.fault) == (24, 5, small.fault)
    with pytest.raises(ScenarioError, match="target = 3"):
        small.with_fleet(gpus=2)


def test_air_cooled_fleets_have_no_coolant_and_no_loop_to_fail() -> None:
    with pytest.raises(ScenarioError, match="liquid"):
        scenario({"kind": "loop_flow_loss", "target": "loop-1", "start_day": 1}, fleet={"cooling": "air"})
