"""Priors say where they come from; a map needs events before it says anything, and never turns an order around."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from healthsvc.calibration import LEAST_EVENTS, Calibration, CalibrationMap, parse_prior, prior_hazards
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.fleet import CLASSES, DAY_S, HORIZONS_S

GOOD: dict[str, Any] = {
    "failure_class": "memory",
    "rates": {"t2_per_gpu_year": 0.04, "t1_per_gpu_year": 0.01, "gpu_years": 50, "source": "a table"},
    "thresholds": {"failure_p_7d": 0.4, "degrading_p": 1e-6},
}

hazards = arrays(np.float64, (4, 3), elements=st.one_of(st.just(0.0), st.floats(1e-8, 20.0)))
maps = st.builds(
    CalibrationMap,
    intercept=st.floats(-3, 3),
    slope=st.floats(0.1, 3),
    offsets=st.one_of(st.just(()), st.tuples(*[st.floats(-2, 2)] * 3).map(lambda rising: tuple(sorted(rising)))),
    events=st.integers(LEAST_EVENTS, 1000),
)


@pytest.mark.parametrize("events", [0, 19])
def test_below_twenty_events_a_hazard_is_left_as_it_is(events: int) -> None:
    doubtful = CalibrationMap(intercept=3.0, slope=0.5, offsets=(0.0, 1.0, 2.0), events=events)
    hazard = np.array([[0.0, 0.1, np.nan]])
    np.testing.assert_array_equal(doubtful.apply(hazard), hazard)
    assert not doubtful.calibrated
    assert CalibrationMap(events=20).calibrated


def test_the_map_is_a_line_in_log_hazard() -> None:
    fitted = CalibrationMap(intercept=np.log(2.0), slope=2.0, offsets=(0.0, np.log(1.5), np.log(3.0)), events=50)
    np.testing.assert_allclose(fitted.apply(np.array([0.1, 0.2, 0.4])), [0.02, 0.12, 0.96])


@given(maps, hazards)
@settings(max_examples=150, deadline=None)
def test_more_hazard_never_becomes_less_and_a_longer_horizon_never_safer(
    fitted: CalibrationMap, hazard: NDArray[np.float64]
) -> None:
    hazard = np.sort(hazard, axis=1)
    mapped = fitted.apply(hazard)
    assert (np.diff(mapped, axis=1) >= 0).all()
    assert (fitted.apply(hazard * 1.5) >= mapped).all()
    assert ((mapped == 0) == (hazard == 0)).all()


def test_what_is_unknown_stays_unknown() -> None:
    mapped = CalibrationMap(slope=0.5, events=50).apply(np.array([[np.nan] * 3, [0.1, 0.2, 0.3]]))
    assert np.isnan(mapped[0]).all()
    assert np.isfinite(mapped[1]).all()


def test_a_map_that_turns_the_order_of_horizons_around_is_refused() -> None:
    with pytest.raises(ValueError, match=r"CalibrationMap\.offsets = \(0\.0, 1\.0, 0\.5\): must not fall"):
        CalibrationMap(offsets=(0.0, 1.0, 0.5), events=100)


@pytest.mark.parametrize("slope", [0.0, -1.0, float("nan")])
def test_a_map_that_turns_the_order_around_is_refused(slope: float) -> None:
    with pytest.raises(ValueError, match=r"CalibrationMap\.slope = .*must be above 0"):
        CalibrationMap(slope=slope, events=100)


def test_a_class_without_a_map_is_at_its_prior() -> None:
    calibration = Calibration({"memory": CalibrationMap(events=40)})
    assert [calibration.of(name).calibrated for name in CLASSES] == [False, True, False]


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (None, "failure_class"),
        (None, "rates"),
        (None, "thresholds"),
        ("rates", "t2_per_gpu_year"),
        ("rates", "t1_per_gpu_year"),
        ("rates", "source"),
        ("thresholds", "failure_p_7d"),
        ("thresholds", "degrading_p"),
    ],
)
def test_a_prior_that_lacks_a_key_names_it(table: str | None, key: str) -> None:
    document = copy.deepcopy(GOOD)
    del (document[table] if table else document)[key]
    with pytest.raises(ValueError, match=f"key '{key}' is missing"):
        parse_prior(document)


@pytest.mark.parametrize(
    ("table", "key", "value", "told"),
    [
        ("rates", "t2_per_gpu_year", "much", r"rates\.t2_per_gpu_year = 'much': give a number above 0"),
        ("rates", "t1_per_gpu_year", 0, r"rates\.t1_per_gpu_year = 0: give a number above 0"),
        ("rates", "t1_per_gpu_year", 0.05, r"t1_per_gpu_year = 0\.05 must be at most .*t2_per_gpu_year = 0\.04"),
        ("rates", "t2_per_gpu_year", float("nan"), r"rates\.t2_per_gpu_year = nan"),
        ("thresholds", "failure_p_7d", 1.5, r"thresholds\.failure_p_7d = 1\.5: .*at most 1"),
        ("thresholds", "degrading_p", None, r"thresholds\.degrading_p = None"),
    ],
)
def test_a_prior_with_a_wrong_number_names_its_key_and_value(table: str, key: str, value: object, told: str) -> None:
    document = copy.deepcopy(GOOD)
    document[table][key] = value
    with pytest.raises(ValueError, match=told):
        parse_prior(document)


def test_a_prior_of_an_unknown_class_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="failure_class = 'fan': choose one of thermal, memory, device_loss"):
        parse_prior({**GOOD, "failure_class": "fan"})


def test_the_shipped_priors_are_those_of_the_design() -> None:
    priors = class_priors(load_priors())
    assert {name: prior.t2_per_gpu_year for name, prior in priors.items()} == {
        "thermal": 0.0025,
        "memory": 0.038,
        "device_loss": 0.068,
    }
    for prior in priors.values():
        assert prior.t1_per_gpu_year == pytest.approx(prior.t2_per_gpu_year / 4)
        assert "assumed" in prior.source  # the T1 rates are, and say so


def test_a_site_with_another_rate_has_the_prior_scaled_and_the_shares_kept() -> None:
    prior = class_priors(load_priors())["memory"]
    site = prior.at_site(3.0)
    np.testing.assert_allclose(site.hazard(HORIZONS_S), 3.0 * prior.hazard(HORIZONS_S))
    assert site.watch_p_30d > prior.watch_p_30d
    assert prior.at_site(1e-6).watch_p_30d == 0.01


def test_prior_hazards_grow_with_time_and_shrink_with_gravity() -> None:
    found = prior_hazards(class_priors(load_priors()), HORIZONS_S)
    assert found.shape == (3, 2, 3)
    np.testing.assert_allclose(found[1, 0], 0.038 / 365.25 * np.array(HORIZONS_S) / DAY_S)
    np.testing.assert_allclose(found[:, 1], found[:, 0] / 4)
