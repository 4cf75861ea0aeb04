"""The studies run, and are made of what they say: seeds, decoys, and fleets that differ in nothing else."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from healthsvc.fleet import DAY_S
from scripts.studies.lines import Panel, draw
from scripts.studies.thermal_fleet import LIMIT_CELSIUS, history_at, make_run, quiet_plan
from scripts.studies.thermal_real import Trace, fit_two_poles, respond
from scripts.studies.thermal_tables import tables
from scripts.studies.thermal_walk import DECOYS, Size, decoy_plan, drifting_plan

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "models" / "thermal_trend"
SIZE = Size(4, 130)


def test_the_same_seed_gives_the_same_fleet_and_a_decoy_changes_nothing_before_it_begins() -> None:
    size = Size(12, 130)
    quiet = make_run(size.nodes, size.days, 5, quiet_plan(size.gpus))
    again = make_run(size.nodes, size.days, 5, quiet_plan(size.gpus))
    np.testing.assert_array_equal(quiet.peak_celsius, again.peak_celsius)
    for decoy in DECOYS[1:]:
        other = make_run(size.nodes, size.days, 5, decoy_plan(size, 5, decoy))
        for name, values in quiet.daily.features.items():
            np.testing.assert_array_equal(
                values[:, :90], other.daily.features[name][:, :90], err_msg=f"{decoy}: {name}"
            )
        assert (quiet.peak_celsius[:, 90:] != other.peak_celsius[:, 90:]).any(), decoy


def test_healthy_fleets_do_not_throttle_and_drifting_gpus_do() -> None:
    quiet = make_run(SIZE.nodes, SIZE.days, 6, quiet_plan(SIZE.gpus))
    assert np.isinf(quiet.event_day).all()
    plan = drifting_plan(SIZE, 6, 0.02, 0.02, (20.0, 21.0))
    worn = make_run(SIZE.nodes, SIZE.days, 6, plan)
    assert (plan.growth_a_day > 0).sum() == SIZE.nodes
    assert np.isfinite(worn.event_day[(plan.growth_a_day > 0) & ~worn.light]).all()
    assert np.isinf(worn.event_day[plan.growth_a_day == 0]).all()
    assert worn.daily.get("gpu_temperature_q95_celsius").max() <= LIMIT_CELSIUS


def test_what_the_service_sees_ends_with_the_day_it_is_asked_on() -> None:
    run = make_run(2, 40, 7, quiet_plan(16))
    history = history_at(run, 30, 20)
    assert history.daily.days.tolist() == run.daily.days[11:31].tolist()
    assert history.now_s == (run.daily.days[30] + 1) * DAY_S


def test_two_poles_that_were_put_in_are_found() -> None:
    seconds = np.arange(0.5, 300.0, 0.5)
    watts = np.where(seconds > 20, 600.0, 75.0)
    warmth = 30.0 + respond(watts, 0.5, 0.02, 3.0) + respond(watts, 0.5, 0.04, 60.0)
    fit = fit_two_poles(Trace("made", seconds, watts, np.floor(warmth)))
    assert fit.resistance == pytest.approx((0.02, 0.04), rel=0.1)
    assert fit.tau_s == pytest.approx((3.0, 60.0), rel=0.15)
    assert fit.rmse_celsius < 0.35  # a sensor of whole degrees has 0.29


def test_the_tables_of_the_card_are_those_of_the_figures() -> None:
    figures = json.loads((MODEL / "study.json").read_text())
    card = (MODEL / "card.md").read_text()
    assert tables(figures).strip() in card
    assert (MODEL / "step_responses.svg").read_text().startswith("<svg")


def test_a_picture_stays_small_however_many_points() -> None:
    x = np.linspace(0, 10, 5000)
    picture = draw([Panel("a", x, (np.sin(x), np.cos(x)))], "seconds", "celsius")
    assert len(picture) < 8000
    assert picture.count("<polyline") == 2


def test_a_plan_may_be_mixed() -> None:
    plan = replace(drifting_plan(SIZE, 1, 0.006, 0.006, (60.0, 61.0)), wave_celsius=8.0)
    run = make_run(SIZE.nodes, SIZE.days, 1, plan)
    assert run.daily.get("inlet_q95_celsius")[:, 105].max() > run.daily.get("inlet_q95_celsius")[:, 95].max() + 4


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_every_part_of_the_study_runs_and_changes_nothing_when_it_is_quick() -> None:
    before = (MODEL / "card.md").read_text()
    command = [sys.executable, str(ROOT / "scripts" / "studies" / "thermal.py"), "--quick", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    names = re.findall(r"^(\w+) \{", done.stdout, re.MULTILINE)
    assert names == ["null", "drift", "decoys", "intervals", "constants", "equivalence", "places", "real"]
    assert (MODEL / "card.md").read_text() == before
