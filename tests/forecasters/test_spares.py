"""Spare rows: what is left at worst, and when it is used up."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import poisson

from healthsvc.fleet import DAY_S, EventKind, FleetHistory, Floats, Signal
from healthsvc.forecasters.ecc.spares import spares_at_worst, time_to_exhaustion_s
from healthsvc.forecasters.ecc_growth import EccGrowth
from tests.forecasters.shipped import shipped
from tests.histories import NOW_S, flat_window, make_daily, make_events, make_history


def remapped(rows: float, extra: dict[Signal, float] | None = None) -> FleetHistory:
    """Two GPUs; the first had `rows` rows remapped, one a day."""
    window = flat_window(2, extra=extra)
    told = np.zeros((2, 20), np.float32)
    told[0, : int(rows)] = 1
    features: dict[str, Floats] = {"uncorrectable_remaps_rows": told}
    return make_history(window, make_daily(window.gpus, 20, features))


def test_every_row_may_have_been_of_one_bank() -> None:
    assert spares_at_worst(remapped(3)).tolist() == [5, 8]
    assert spares_at_worst(remapped(12)).tolist() == [0, 8]


def test_a_bank_without_spares_or_a_failed_remap_leaves_none() -> None:
    for signal in (Signal.BANKS_NONE, Signal.REMAP_FAILURE):
        assert spares_at_worst(remapped(1, {signal: 1.0})).tolist() == [0, 0]


def test_banks_that_are_known_to_have_spares_have_one_at_least() -> None:
    assert spares_at_worst(remapped(12, {Signal.BANKS_NONE: 0.0})).tolist() == [1, 8]


def test_where_remaps_are_not_exported_nothing_is_said() -> None:
    window = flat_window(2)
    assert np.isnan(spares_at_worst(make_history(window, make_daily(window.gpus, 20, {})))).all()
    assert np.isnan(spares_at_worst(make_history(window))).all()


def a_day(rate: float) -> NDArray[np.float32]:
    """Times to exhaustion with 2 spares left of one GPU, none lost of another, at `rate` events a day."""

    def expected(rows: NDArray[np.intp], ahead_s: tuple[float, ...]) -> NDArray[np.float64]:
        assert rows.tolist() == [0]
        return np.array(ahead_s)[None, :] / DAY_S * rate

    return time_to_exhaustion_s(np.array([2.0, 8.0]), expected)


def test_the_time_is_when_as_many_events_are_due_as_spares_are_left() -> None:
    early, middle, late = a_day(0.1)[0] / DAY_S
    for days, q in ((early, 0.1), (middle, 0.5), (late, 0.9)):
        assert poisson.sf(1, 0.1 * days) >= q > poisson.sf(1, 0.1 * (days - 1))
    assert early < middle < late


def test_beyond_half_a_year_or_without_a_lost_row_there_is_no_time() -> None:
    assert np.isnan(a_day(0.001)[0, 1:]).all()
    assert np.isnan(a_day(0.1)[1]).all()


def test_what_is_used_up_or_unknown_has_no_time() -> None:
    found = time_to_exhaustion_s(np.array([0.0, np.nan]), lambda rows, ahead_s: pytest.fail("nobody to ask about"))
    assert np.isnan(found).all()


def test_what_is_expected_of_some_gpus_is_what_is_expected_of_all_of_them() -> None:
    window = flat_window(8)
    struck = [(row, NOW_S - days * DAY_S, EventKind.DOUBLE_BIT_ERROR, 1.0) for row, days in ((1, 3), (4, 30), (6, 90))]
    remaps = np.zeros((8, 40), np.float32)
    remaps[[1, 4], -8:-2] = 1  # six of the eight
    daily = make_daily(window.gpus, 40, {"uncorrectable_remaps_rows": remaps})
    history = make_history(window, daily, make_events(*struck))
    forecaster = shipped(EccGrowth)
    state = forecaster.fit(history)
    whole = forecaster.forecast(state, history)
    alone = forecaster.forecast(state, history.take(np.array([4])))
    np.testing.assert_array_equal(alone.cumulative_hazard[0], whole.cumulative_hazard[4])
    np.testing.assert_array_equal(alone.time_to_limit_s[0], whole.time_to_limit_s[4])
    assert np.isfinite(whole.time_to_limit_s[[1, 4], 0]).all()
    assert np.isnan(whole.time_to_limit_s[[0, 6]]).all()
    assert forecaster.project(state, history, 4).future[1, -1] == pytest.approx(
        6.0 + whole.cumulative_hazard[4, 0, -1], rel=1e-5
    )
