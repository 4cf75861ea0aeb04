"""What is failing right now: a lost flow or fan is seen within minutes, a load or the weather never taken for one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.forecasters.throttling.heat_path import LAG_S, HeatPath, heat_path
from healthsvc.forecasters.throttling.reach import needed_s, reached
from tests.forecasters.throttling.loops import COLUMNS, INLET, MINUTES, rising, running


@pytest.mark.parametrize("per_minute", [0.002, 0.005, 0.012])
@pytest.mark.parametrize("measured", [True, False])
def test_a_loop_that_loses_its_flow_shows_how_fast(per_minute: float, measured: bool) -> None:
    path = heat_path(running(rising(per_minute), measured=measured))
    assert path.moving.all()
    assert 60 * path.rate_per_s == pytest.approx(per_minute, rel=0.35)
    assert path.age_s == pytest.approx(2400.0, rel=0.5)


def test_one_node_that_loses_its_air_says_nothing_of_the_other() -> None:
    path = heat_path(running(rising(0.008), struck=slice(0, 8)))
    assert path.moving[:8].all()
    assert not path.moving[8:].any()


def test_one_gpu_alone_is_no_cooling_path() -> None:
    assert not heat_path(running(rising(0.02), struck=slice(3, 4))).moving.any()


@pytest.mark.parametrize("hours", [0.2, 0.5, 1.0, 1.9])
@pytest.mark.parametrize("before", [80.0, 400.0])
def test_a_job_that_begins_is_no_failing(hours: float, before: float) -> None:
    watts = np.where(-60 * hours <= MINUTES, 660.0, before)
    assert not heat_path(running(watts=watts)).moving.any()


def test_a_load_that_creeps_up_is_no_failing() -> None:
    assert not heat_path(running(watts=np.linspace(500.0, 620.0, COLUMNS))).moving.any()


def test_a_measured_inlet_that_warms_is_told_apart_from_a_resistance_that_grows() -> None:
    path = heat_path(running(inlet=INLET + 0.1 * np.maximum(MINUTES + 60.0, 0.0)))
    assert 60 * path.warming_celsius_per_s == pytest.approx(0.1, rel=0.1)
    assert (path.rate_per_s < 0.0007 / 60).all()


def test_the_weather_of_a_day_is_no_failing() -> None:
    path = heat_path(running(inlet=INLET + 1.5 * np.sin(MINUTES / 720.0 * np.pi)))
    assert not path.moving.any()


def test_a_calm_fleet_does_not_move_whatever_the_noise() -> None:
    assert not heat_path(running()).moving.any()


# -- when it gets there ------------------------------------------------------------------------------------------------


def path_of(rise: float, rate: float, warming: float, age_s: float = 1800.0) -> HeatPath:
    one = np.ones(1)
    return HeatPath(one * (30 + rise), one * rise, one * rate, one * warming, one * age_s)


@settings(max_examples=50)
@given(st.floats(10.0, 60.0), st.floats(1e-5, 5e-4), st.floats(1.0, 30.0))
def test_the_wait_is_the_time_at_which_the_margin_is_used_up(rise: float, rate: float, margin: float) -> None:
    wait = needed_s(path_of(rise, rate, 0.0), np.array([margin]))[0]
    warmer = rise * np.expm1(rate * (wait + LAG_S))
    assert warmer == pytest.approx(margin, rel=1e-6) or (wait == 0.0 and warmer >= margin)


@settings(max_examples=50)
@given(st.floats(0.0, 30.0), st.floats(0.0, 5.0))
def test_less_margin_is_never_safer(margin: float, less: float) -> None:
    path = path_of(40.0, 1e-4, 0.0)
    table, hot = np.zeros((1, 3), np.intp), np.zeros(1, bool)
    far, near = (
        reached(table, hot, path, needed_s(path, np.array([m])), (1800.0, 7200.0), 2.0) for m in (margin, margin - less)
    )
    assert (near >= far).all()


def test_what_has_no_limit_or_does_not_move_is_never_reached() -> None:
    assert np.isinf(needed_s(path_of(40.0, 1e-4, 0.0), np.array([np.nan]))[0])
    assert np.isinf(needed_s(path_of(40.0, 0.0, 0.0), np.array([1.0]))[0])
