"""What correctable errors say of a GPU: storms within the hour, nothing of those that always burst, once an hour."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.engine.shipped import load_priors
from healthsvc.fleet import DAY_S, FleetHistory, Signal
from healthsvc.forecasters.base import device_ids
from healthsvc.forecasters.ecc.rates import errors_of_hour, fit_rates, unusual_errors
from healthsvc.testing.compare import reloaded
from tests.histories import NOW_S, make_daily, make_history, make_window

THRESHOLD = float(load_priors()["ecc_growth"]["thresholds"]["degrading_p"])
DAYS = 60
HOUR = slice(-67, -7)  # columns of the newest whole hour, seven minutes after it ended
NOW = NOW_S + 7 * 60.0
FEW = settings(deadline=None, max_examples=20)


def fleet(seed: int, gpus: int = 64, errors: NDArray[np.float64] | None = None, per_node: int = 8) -> FleetHistory:
    """A healthy fleet at 00:07, one GPU in ten noisy, the second bursting every week; errors [gpu]: in the hour."""
    rng = np.random.default_rng(seed)
    rate = np.where(rng.random((gpus, 1)) < 0.1, 5.0, 0.05)
    counts = rng.poisson(rate, (gpus, DAYS)).astype(np.float64)
    counts[1, ::7] += np.floor(rng.lognormal(7.0, 0.7, len(counts[1, ::7])))
    recent = np.zeros((gpus, 127))
    if errors is not None:
        recent[:, -30] = errors
    window = make_window({Signal.SBE_AGGREGATE: recent}, per_node, end_s=NOW)
    return make_history(window, make_daily(window.gpus, DAYS, {"sbe_errors": counts}))


def learned(history: FleetHistory) -> Mapping[str, NDArray[Any]]:
    return {**fit_rates(history), "device_id": device_ids(history.gpus)}


def change_p(history: FleetHistory) -> NDArray[np.float64]:
    return unusual_errors(learned(history), history)[0]


def alone(gpus: int, row: int, errors: float) -> NDArray[np.float64]:
    return np.where(np.arange(gpus) == row, errors, 0.0)


@pytest.mark.parametrize("gpus", [8, 64, 2000])
def test_a_storm_under_load_is_below_the_threshold_within_the_hour_and_its_siblings_are_told(gpus: int) -> None:
    storm = fleet(1, gpus, alone(gpus, 5, 17_700.0 * 300))  # five minutes of it are in the hour
    p, evidence = unusual_errors(learned(storm), storm)
    assert p[5] < THRESHOLD
    assert (np.delete(p, 5) > 0.05).all()
    assert evidence["correctable_errors_1h_errors"][5] == 17_700.0 * 300
    assert evidence["sibling_errors_1h_errors"][5] == 0
    assert evidence["sibling_share_tail_ratio"][5] < 1e-6
    assert 0 < evidence["correctable_rate_per_h"][5] < evidence["correctable_rate_upper_per_h"][5]


def test_who_always_bursts_is_not_called_out_of_character_for_it_but_for_a_storm() -> None:
    assert change_p(fleet(2, 64, alone(64, 1, 2000.0)))[1] > 0.01
    assert change_p(fleet(2, 64, alone(64, 1, 5e7)))[1] < THRESHOLD


def test_a_single_burst_is_no_storm() -> None:
    assert change_p(fleet(3, 64, alone(64, 9, 3000.0)))[9] > THRESHOLD
    first = fleet(3, 8, alone(8, 3, 3000.0))
    without = replace(first, daily=make_daily(first.gpus, 0, {}))
    assert change_p(without)[3] > THRESHOLD
    storm = fleet(3, 8, alone(8, 3, 17_700.0 * 1800))
    assert change_p(replace(storm, daily=make_daily(storm.gpus, 0, {})))[3] < THRESHOLD


def test_a_week_of_storm_does_not_explain_itself_and_a_month_of_it_does() -> None:
    storm = fleet(4, 64, alone(64, 5, 17_700.0 * 1800))
    for days, alarmed in ((6, True), (30, False)):
        counts = storm.daily.get("sbe_errors").copy()
        counts[5, -days:] = 1.5e9
        lasting = replace(storm, daily=make_daily(storm.gpus, DAYS, {"sbe_errors": counts}))
        assert (change_p(lasting)[5] < THRESHOLD) == alarmed, days


def test_the_same_hour_says_the_same_until_the_next_one_is_whole() -> None:
    history = fleet(5, 16, alone(16, 5, 1e7))
    state, said = learned(history), change_p(history)
    columns = history.recent.times_s
    for minutes in (1, 30, 52):
        later = make_window(
            {
                Signal.SBE_AGGREGATE: np.concatenate(
                    [history.recent.get(Signal.SBE_AGGREGATE)[:, minutes:], np.full((16, minutes), 1e9)], axis=1
                )
            },
            end_s=float(columns[-1]) + 60.0 * minutes,
        )
        np.testing.assert_array_equal(unusual_errors(state, replace(history, recent=later))[0], said)
    next_hour = make_window({Signal.SBE_AGGREGATE: np.zeros((16, 127))}, end_s=float(columns[-1]) + 3600.0)
    assert unusual_errors(state, replace(history, recent=next_hour))[0][5] == 1.0


def test_what_was_not_observed_is_nan_and_a_short_window_says_nothing() -> None:
    history = fleet(6, 16)
    values = history.recent.get(Signal.SBE_AGGREGATE).copy()
    values[3, HOUR] = np.nan
    gone = replace(history, recent=make_window({Signal.SBE_AGGREGATE: values}, end_s=NOW))
    p, evidence = unusual_errors(learned(gone), gone)
    assert np.isnan(p[3])
    assert np.isnan(evidence["sibling_share_tail_ratio"][3])
    assert not np.isnan(np.delete(p, 3)).any()
    short = replace(history, recent=history.recent.columns(slice(-66, None)))
    assert np.isnan(change_p(short)).all()
    nobody = replace(history, recent=make_window({Signal.XID: np.zeros((16, 127))}, end_s=NOW))
    assert np.isnan(change_p(nobody)).all()


def test_what_befalls_a_whole_node_is_nobodys_own() -> None:
    errors = np.zeros(64)
    errors[8:16] = 1e6  # a driver that counts anew
    p = change_p(fleet(7, 64, errors))
    assert (p[8:16] > THRESHOLD).all()
    errors[12] = 1e13
    assert change_p(fleet(7, 64, errors))[12] < THRESHOLD


@pytest.mark.parametrize("per_node", [1, 2])
def test_what_befalls_every_small_host_at_once_is_nobodys_own_either(per_node: int) -> None:
    history = fleet(7, 64, np.full(64, 1e6), per_node)
    p, evidence = unusual_errors(learned(history), history)
    assert (p > THRESHOLD).all()
    assert np.isnan(evidence["sibling_errors_1h_errors"]).all(), "strangers are no siblings"
    assert change_p(fleet(7, 64, alone(64, 5, 1e9), per_node))[5] < THRESHOLD


@FEW
@given(st.integers(0, 10**6), st.integers(0, 10**8), st.integers(1, 10**8))
def test_more_errors_never_raise_p(seed: int, count: int, more: int) -> None:
    history = fleet(seed % 5, 16)
    state = learned(history)
    rng = np.random.default_rng(seed)
    errors = rng.poisson(0.5, 16).astype(np.float64)
    said = []
    for own in (count, count + more):
        errors[4] = float(own)
        recent = np.zeros((16, 127))
        recent[:, -30] = errors
        window = make_window({Signal.SBE_AGGREGATE: recent}, end_s=NOW)
        said.append(unusual_errors(state, replace(history, recent=window))[0][4])
    assert said[1] <= said[0] * (1 + 1e-12)


@FEW
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_gpus_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    history = fleet(8, 32, np.floor(rng.lognormal(0.0, 4.0, 32)))
    order = rng.permutation(32)
    plain, evidence = unusual_errors(learned(history), history)
    turned = history.take(order)
    other, others = unusual_errors(learned(turned), turned)
    np.testing.assert_allclose(other, plain[order], rtol=1e-6)
    for name, values in evidence.items():
        np.testing.assert_allclose(others[name], values[order], rtol=1e-6, err_msg=name)
    state = learned(history)
    np.testing.assert_allclose(unusual_errors(state, turned)[0], plain[order], rtol=1e-12)


def test_a_newcomer_is_judged_by_its_model_and_has_no_rate_yet() -> None:
    history = fleet(9, 64, alone(64, 60, 1e8))
    state = learned(history.take(np.arange(56)))
    p, evidence = unusual_errors(state, history)
    assert p[60] < THRESHOLD
    assert (np.delete(p, 60) > 0.05).all()
    assert np.isnan(evidence["correctable_rate_per_h"][56:]).all()
    other = tuple(replace(gpu, product="another") for gpu in history.gpus)
    strange = replace(history, recent=replace(history.recent, gpus=other))
    assert unusual_errors(state, strange)[0][60] < THRESHOLD


def test_growth_and_error_days_come_from_the_ledger_and_too_few_are_no_exponent() -> None:
    history = fleet(10, 16)
    counts = np.zeros((16, DAYS))
    counts[0, [10, 30, 40, 46, 50, 54, 56, 58]] = 5.0
    counts[1, [10, 30, 50]] = 500.0
    history = replace(history, daily=make_daily(history.gpus, DAYS, {"sbe_errors": counts}))
    _, evidence = unusual_errors(learned(history), history)
    assert evidence["growth_exponent_low"][0] > 1
    assert np.isnan(evidence["growth_exponent"][1:]).all()
    assert evidence["correctable_error_days"][:3].tolist() == [8.0, 3.0, 0.0]
    assert evidence["correctable_error_days_30d_days"][:3].tolist() == [7.0, 2.0, 0.0]  # day 30 is the oldest of them


def test_the_state_goes_through_a_file_and_says_the_same() -> None:
    history = fleet(11, 24, alone(24, 3, 1e6))
    state = learned(history)
    np.testing.assert_array_equal(unusual_errors(reloaded(state), history)[0], unusual_errors(state, history)[0])
    assert all(name.startswith("rate_") for name in state if name != "device_id")


def test_a_fleet_of_nobody_is_no_error() -> None:
    history = fleet(12, 8).take(np.zeros(0, np.intp))
    p, evidence = unusual_errors(learned(history), history)
    assert p.shape == (0,)
    assert all(values.shape == (0,) for values in evidence.values())


def test_the_hour_is_the_newest_whole_one_and_counters_are_not_mixed() -> None:
    recent = np.full((2, 127), 1.0)
    aggregate = recent.copy()
    aggregate[1] = np.nan
    window = make_window({Signal.SBE_AGGREGATE: aggregate, Signal.SBE_VOLATILE: 2 * recent}, end_s=NOW)
    assert errors_of_hour(window).tolist() == [60.0, 120.0]
    assert NOW % DAY_S == 7 * 60.0
