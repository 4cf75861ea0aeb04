"""Hazards become a verdict: what is unknown stays unknown, a prior raises nothing, and the numbers always add up."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from healthsvc.calibration import Calibration, CalibrationMap, prior_hazards
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.fleet import CLASSES, HAZARD_CAP, HORIZONS_S, Band, Facts, Forecast, RiskReport, Signal
from healthsvc.risk import bands, class_bands, combine, fuse, headroom
from tests.histories import flat_window, make_history

NAN = np.nan
T2, T1 = 0, 1
THERMAL, MEMORY, DEVICE = range(3)
PRIORS = class_priors(load_priors())
PRIOR = prior_hazards(PRIORS, HORIZONS_S)  # [class, grade, horizon]
PRIOR_P_30D = -np.expm1(-PRIOR[:, T2, 2])

hazards = arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.just(3), st.just(2), st.just(3)),
    elements=st.one_of(st.just(NAN), st.just(0.0), st.floats(1e-9, 50.0)),
)


def nothing(gpus: int) -> Facts:
    return Facts(np.zeros((gpus, 3), bool), np.zeros((gpus, 3), bool), np.full(gpus, NAN))


def hazard_of(*rows: tuple[float, float, float]) -> NDArray[np.float64]:
    """[gpu, class, grade, horizon] from P(T2, 7 d) of each class; NaN = not observed; T1 a tenth, H in proportion."""
    week = -np.log1p(-np.array(rows, np.float64))
    scale = np.array([1 / 7, 1.0, 30 / 7])
    return np.asarray(week[:, :, None, None] * np.array([1.0, 0.1])[:, None] * scale)


def p(hazard: float) -> float:
    return float(-np.expm1(-hazard))


def band_of(
    hazard: NDArray[np.float64],
    facts: Facts | None = None,
    change_p: float | None = None,
    before: Band | None = None,
) -> list[Band]:
    """The bands of GPUs with these hazards; change_p: of thermal; before: what every class had reached before."""
    gpus = len(hazard)
    changes = np.full((gpus, 3), NAN)
    if change_p is not None:
        changes[:, THERMAL] = change_p
    previous = None if before is None else np.full((gpus, len(CLASSES)), before, np.int8)
    verdict, facts = combine(hazard, PRIOR), facts or nothing(gpus)
    found = bands(verdict, facts, changes, PRIORS, class_bands(verdict, facts, PRIORS, previous))
    return [Band(int(b)) for b in found]


# -- combine ----------------------------------------------------------------------------------------------------------


def test_an_observed_class_is_never_believed_safer_than_a_tenth_of_its_prior() -> None:
    verdict = combine(np.zeros((1, 3, 2, 3)), PRIOR)
    np.testing.assert_allclose(verdict.probability[0], -np.expm1(-0.1 * PRIOR), rtol=1e-12)


def test_an_unobserved_class_counts_with_its_prior() -> None:
    hazard = hazard_of((0.2, NAN, 0.1))
    verdict = combine(hazard, PRIOR)
    assert verdict.observed.tolist() == [[True, False, True]]
    np.testing.assert_allclose(verdict.probability[0, MEMORY], -np.expm1(-PRIOR[MEMORY]))
    total = hazard[0, THERMAL, T2] + PRIOR[MEMORY, T2] + hazard[0, DEVICE, T2]
    np.testing.assert_allclose(verdict.risk[0], -np.expm1(-total))


def test_coverage_is_the_share_of_prior_risk_that_is_observed() -> None:
    rows = [(0.1, NAN, NAN), (NAN, 0.1, NAN), (NAN, NAN, 0.1), (0.1, 0.1, 0.1)]
    found = combine(hazard_of(*rows), PRIOR).coverage
    np.testing.assert_allclose(found, np.array([0.0025, 0.038, 0.068, 0.1085]) / 0.1085)


def test_a_gpu_nothing_is_known_of_has_no_risk_at_all() -> None:
    verdict = combine(np.full((1, 3, 2, 3), NAN), PRIOR)
    assert verdict.coverage.tolist() == [0.0]
    for numbers in (verdict.risk, verdict.probability, verdict.share):
        assert np.isnan(numbers).all()


def test_a_board_without_a_slowdown_limit_keeps_its_t2_hazard() -> None:
    hazard = hazard_of((0.2, 0.1, 0.1))
    hazard[0, THERMAL, T1] = NAN
    verdict = combine(hazard, PRIOR)
    assert verdict.observed.all()
    assert verdict.probability[0, THERMAL, T2, 1] == pytest.approx(0.2)
    np.testing.assert_allclose(verdict.probability[0, THERMAL, T1], -np.expm1(-PRIOR[THERMAL, T1]))
    assert np.isfinite(verdict.risk).all()


def test_risk_sums_t2_hazards_alone() -> None:
    hazard = hazard_of((0.2, 0.3, 0.1))
    without_terminal = hazard.copy()
    without_terminal[:, :, T1] = 0.0
    np.testing.assert_array_equal(combine(hazard, PRIOR).risk, combine(without_terminal, PRIOR).risk)
    assert combine(hazard, PRIOR).risk[0, 1] == pytest.approx(1 - 0.8 * 0.7 * 0.9)


def test_t2_means_t2_or_worse() -> None:
    hazard = hazard_of((0.01, 0.01, 0.01))
    hazard[0, MEMORY, T1] = 1.0
    assert combine(hazard, PRIOR).probability[0, MEMORY, T2, 1] == pytest.approx(p(1.0))


@given(hazards)
@settings(max_examples=200, deadline=None)
def test_whatever_the_hazards_the_verdict_is_ordered_and_adds_up(hazard: NDArray[np.float64]) -> None:
    given_hazard = hazard.copy()
    verdict = combine(hazard, PRIOR)
    np.testing.assert_array_equal(hazard, given_hazard)
    seen = verdict.coverage > 0
    probability = verdict.probability[seen]
    assert not np.isnan(probability).any()
    assert np.isnan(verdict.probability[~seen]).all()
    assert np.isnan(verdict.risk[~seen]).all()
    assert ((probability >= 0) & (probability <= 0.999 + 1e-12)).all()
    assert (np.diff(probability, axis=3) >= 0).all()  # 24 h <= 7 d <= 30 d
    assert (probability[:, :, T1] <= probability[:, :, T2]).all()
    assert (np.diff(verdict.risk[seen], axis=1) >= 0).all()
    assert (verdict.risk[seen] >= probability[:, :, T2].max(axis=1) - 1e-12).all()
    np.testing.assert_allclose(verdict.share[seen].sum(axis=1), 1.0)


# -- bands ------------------------------------------------------------------------------------------------------------


def test_a_prior_alone_raises_no_band() -> None:
    assert band_of(hazard_of((0.0, 0.0, NAN))) == [Band.UNKNOWN]  # 63 % of prior risk is device loss
    assert band_of(hazard_of((NAN, 0.0, 0.0), (0.0, NAN, 0.0))) == [Band.HEALTHY, Band.HEALTHY]
    assert band_of(hazard_of((NAN, NAN, NAN)), before=Band.DEGRADED) == [Band.UNKNOWN]


@pytest.mark.parametrize(("name", "least"), [("thermal", 0.01), ("memory", 5), ("device_loss", 5)])
def test_watch_begins_at_one_percent_or_five_times_the_prior(name: str, least: float) -> None:
    column = CLASSES.index(name)
    threshold = least if least < 1 else least * PRIOR_P_30D[column]
    assert threshold >= 0.01
    for factor, band in ((0.99, Band.HEALTHY), (1.01, Band.WATCH)):
        hazard = np.zeros((1, 3, 2, 3))
        hazard[0, column, T2, 2] = -np.log1p(-threshold * factor)
        assert band_of(hazard) == [band]


@pytest.mark.parametrize("name", CLASSES)
def test_degraded_begins_at_the_failure_threshold_of_the_class(name: str) -> None:
    column, threshold = CLASSES.index(name), PRIORS[name].failure_p_7d
    for factor, band in ((0.99, Band.WATCH), (1.01, Band.DEGRADED)):
        week = [0.0, 0.0, 0.0]
        week[column] = threshold * factor
        assert band_of(hazard_of((week[0], week[1], week[2]))) == [band]


def test_critical_begins_at_even_odds_within_a_day() -> None:
    for chance, band in ((0.49, Band.DEGRADED), (0.51, Band.CRITICAL)):
        hazard = np.zeros((1, 3, 2, 3))
        hazard[0, MEMORY, T2] = -np.log1p(-chance)
        assert band_of(hazard) == [band]


def test_a_change_alarm_is_a_reason_to_watch() -> None:
    calm = hazard_of((0.0, 0.0, 0.0))
    degrading = PRIORS["thermal"].degrading_p
    assert band_of(calm, change_p=degrading * 0.9) == [Band.WATCH]
    assert band_of(calm, change_p=degrading * 1.1) == [Band.HEALTHY]
    assert band_of(calm, change_p=NAN) == [Band.HEALTHY]


@pytest.mark.parametrize(
    ("name", "column", "value", "band"),
    [
        ("open_events", MEMORY, True, Band.DEGRADED),
        ("terminal", MEMORY, True, Band.CRITICAL),
        ("terminal", THERMAL, True, Band.CRITICAL),
        ("lost_s", None, 1.0, Band.CRITICAL),
    ],
)
def test_a_fact_decides_whatever_the_numbers_say(name: str, column: int | None, value: float, band: Band) -> None:
    facts = nothing(1)
    array = getattr(facts, name)
    array[0 if column is None else (0, column)] = value
    assert band_of(hazard_of((0.0, 0.0, 0.0)), facts) == [band]
    assert band_of(hazard_of((NAN, NAN, NAN)), facts) == [band]


def test_a_band_is_left_only_below_half_of_its_threshold() -> None:
    failure = PRIORS["memory"].failure_p_7d
    between, below = hazard_of((0.0, failure * 0.6, 0.0)), hazard_of((0.0, failure * 0.4, 0.0))
    assert band_of(between) == [Band.WATCH]
    assert band_of(between, before=Band.WATCH) == [Band.WATCH]
    assert band_of(between, before=Band.DEGRADED) == [Band.DEGRADED]
    assert band_of(below, before=Band.DEGRADED) == [Band.WATCH]

    quiet = np.zeros((1, 3, 2, 3))
    for share, band in ((0.6, Band.WATCH), (0.4, Band.HEALTHY)):
        quiet[0, THERMAL, T2, 2] = -np.log1p(-0.01 * share)
        assert band_of(quiet, before=Band.WATCH) == [band]
        assert band_of(quiet, before=Band.HEALTHY) == [Band.HEALTHY]

    sharp = np.zeros((1, 3, 2, 3))
    for chance, band in ((0.3, Band.CRITICAL), (0.2, Band.DEGRADED)):
        sharp[0, DEVICE, T2] = -np.log1p(-chance)
        assert band_of(sharp, before=Band.CRITICAL) == [band]


def test_what_one_class_has_reached_holds_no_other_class() -> None:
    device, memory = PRIORS["device_loss"].failure_p_7d, PRIORS["memory"].failure_p_7d
    before = report(hazard_of((0.0, 0.0, device * 1.1)))
    assert before.class_band.tolist() == [[Band.HEALTHY, Band.HEALTHY, Band.DEGRADED]]
    after = report(hazard_of((0.0, memory * 0.6, 0.0)), previous=before.class_band)
    assert after.class_band.tolist() == [[Band.HEALTHY, Band.WATCH, Band.HEALTHY]]
    assert after.band.tolist() == [Band.WATCH]


@pytest.mark.parametrize(("name", "column"), [("open_events", MEMORY), ("terminal", MEMORY), ("lost_s", DEVICE)])
def test_a_band_that_a_fact_has_given_ends_with_the_fact(name: str, column: int) -> None:
    """Its trace in the hazard lies between half of the threshold and the threshold, and must not hold the band."""
    trace = np.zeros((1, 3, 2, 3))
    trace[0, column] = hazard_of((0.7 * PRIORS[CLASSES[column]].failure_p_7d,) * 3)[0, column]
    facts = nothing(1)
    getattr(facts, name)[0 if name == "lost_s" else (0, column)] = 1.0
    struck = report(trace, facts)
    assert struck.band[0] >= Band.DEGRADED
    assert report(trace, previous=struck.class_band).band.tolist() == [Band.WATCH]


def test_half_blind_is_unknown_unless_what_is_seen_is_at_watch() -> None:
    memory_only = [hazard_of((0.0, chance, NAN)) for chance in (0.0, 0.02, 0.5)]  # coverage 0.37
    assert [band_of(hazard)[0] for hazard in memory_only] == [Band.UNKNOWN, Band.WATCH, Band.DEGRADED]
    assert band_of(hazard_of((NAN, 0.0, NAN)), change_p=1e-9) == [Band.WATCH]


# -- fuse -------------------------------------------------------------------------------------------------------------


def forecast(hazard: NDArray[np.float64], change_p: float = NAN) -> Forecast:
    """One class for all GPUs: hazard [gpu, grade, horizon]."""
    gpus = len(hazard)
    return Forecast(HORIZONS_S, hazard.astype(np.float32), np.full(gpus, change_p), np.full((gpus, 3), NAN), {})


def report(
    hazard: NDArray[np.float64],
    facts: Facts | None = None,
    calibration: Calibration | None = None,
    forecasts: Mapping[str, Forecast] | None = None,
    previous: NDArray[np.int8] | None = None,
) -> RiskReport:
    found = {name: forecast(hazard[:, i]) for i, name in enumerate(CLASSES)} if forecasts is None else forecasts
    history = make_history(flat_window(len(hazard)))
    facts, calibration = facts or nothing(len(hazard)), calibration or Calibration()
    return fuse(history, found, facts, PRIORS, calibration, previous=previous)


def test_a_class_is_calibrated_only_where_it_is_observed_and_has_a_map_with_events() -> None:
    maps = {"memory": CalibrationMap(events=40), "device_loss": CalibrationMap(events=19)}
    found = report(hazard_of((0.1, 0.1, 0.1), (0.1, NAN, 0.1)), calibration=Calibration(maps))
    assert found.calibrated.tolist() == [[False, True, False], [False, False, False]]
    assert found.observed.tolist() == [[True, True, True], [True, False, True]]


def test_a_class_without_a_forecast_is_unobserved_for_everybody() -> None:
    found = report(hazard_of((0.1, 0.1, 0.1)), forecasts={"memory": forecast(hazard_of((0.0, 0.1, 0.0))[:, MEMORY])})
    assert found.observed.tolist() == [[False, True, False]]
    assert found.coverage[0] == pytest.approx(0.038 / 0.1085)


def test_throttling_is_no_part_of_a_gpus_risk() -> None:
    hazard = hazard_of((0.0, 0.0, 0.0))
    certain = forecast(np.full((1, 2, 3), HAZARD_CAP))
    classes = {name: forecast(hazard[:, i]) for i, name in enumerate(CLASSES)}
    calm, cascade = report(hazard), report(hazard, forecasts={**classes, "throttling": certain})
    np.testing.assert_array_equal(cascade.risk, calm.risk)
    np.testing.assert_array_equal(cascade.band, calm.band)
    assert cascade.classes == CLASSES


def test_a_terminal_fact_is_certain_whatever_the_hazard_says() -> None:
    facts = nothing(2)
    facts.terminal[0, MEMORY] = True
    found = report(hazard_of((0.0, NAN, 0.0), (0.0, NAN, 0.0)), facts)
    np.testing.assert_allclose(found.probability[0, MEMORY], 0.999, rtol=1e-6)
    assert found.share[0, MEMORY] > 0.99
    assert found.probability[1, MEMORY, T2, 1] < 0.001


def test_a_lost_gpu_has_failed_and_no_calibration_makes_it_likely_to_be_well() -> None:
    facts = nothing(1)
    facts.lost_s[0] = 1.0
    doubtful = Calibration({"device_loss": CalibrationMap(intercept=-5.0, events=30)})
    found = report(hazard_of((0.0, 0.0, NAN)), facts, doubtful)
    np.testing.assert_allclose(found.probability[0, DEVICE, T2], 0.999, rtol=1e-6)
    assert (found.probability[0, DEVICE, T1] < 0.01).all()  # whether it comes back is not known
    assert found.band.tolist() == [Band.CRITICAL]


def test_the_ranking_puts_facts_first_and_the_unknown_last() -> None:
    facts = nothing(5)
    facts.open_events[1, DEVICE] = True
    rows = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.9, 0.0, 0.0), (NAN, NAN, NAN), (0.0, 0.05, 0.0)]
    assert report(hazard_of(*rows), facts).ranking().tolist() == [1, 2, 4, 0, 3]


def test_headroom_is_counted_from_the_reported_limit_or_else_the_boards() -> None:
    window = flat_window(2, extra={Signal.GPU_MAX_OPERATING_LIMIT: 83.0, Signal.MEMORY_TEMPERATURE: 70.0})
    lost = nothing(2)
    found = headroom(make_history(window), lost)
    assert found["gpu"].tolist() == [23.0, 23.0]
    assert found["memory"].tolist() == [25.0, 25.0]  # an H100's memory may run at 95
    silent = headroom(make_history(flat_window(1, extra={Signal.GPU_TEMPERATURE: NAN})), nothing(1))
    assert np.isnan(silent["gpu"]).all()
    lost.lost_s[1] = 1.0
    assert np.isnan(headroom(make_history(window), lost)["gpu"]).tolist() == [False, True]
