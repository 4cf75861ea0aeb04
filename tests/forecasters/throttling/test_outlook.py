"""What a GPU has done for two hours tells how much of the model's hazard is its own."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.features.onset_bins import grid_of_recent
from healthsvc.fleet import FleetHistory, Floats, Signal
from healthsvc.forecasters.base import aligned
from healthsvc.forecasters.throttling.onset_model import OnsetModel
from healthsvc.forecasters.throttling.outlook import BINS, Outlook, outlook, own_multiple
from healthsvc.forecasters.throttling_cascade import HORIZONS_S, ThrottlingCascade
from tests.forecasters.shipped import shipped
from tests.forecasters.throttling.loops import COLUMNS, GPUS, running


def seen(throttled: Floats | None = None, limit_celsius: float = 90.0) -> FleetHistory:
    """A loop at constant load; throttled: seconds in each minute [time] of the first GPU."""
    history = running()
    values = dict(history.recent.values)
    values[Signal.GPU_MAX_OPERATING_LIMIT] = np.full((GPUS, COLUMNS), limit_celsius, np.float32)
    if throttled is not None:
        seconds = np.zeros((GPUS, COLUMNS), np.float32)
        seconds[0] = throttled
        values[Signal.SOFTWARE_THERMAL_THROTTLE] = seconds
    return replace(history, recent=replace(history.recent, values=values))


def looked(history: FleetHistory) -> Outlook:
    forecaster = shipped(ThrottlingCascade)
    state = forecaster.fit(history)
    rate = aligned(state, "onset_rate_per_day", history.gpus).astype(np.float64)
    return outlook(history, OnsetModel.from_arrays(state), rate, HORIZONS_S, forecaster.likeness)


@pytest.mark.parametrize("likeness", [0.2, 1.0])
def test_it_is_the_mean_of_the_gamma_that_its_two_hours_leave(likeness: float) -> None:
    throttled = np.zeros(COLUMNS, np.float32)
    throttled[65:75] = 30.0  # begins in the seventh ten minutes, and goes on in the eighth
    grid = grid_of_recent(seen(throttled), BINS)
    log_odds = np.full((GPUS, BINS), -2.0)
    each = np.log1p(np.exp(-2.0))
    found = own_multiple(grid, log_odds, likeness)
    # Eleven bins have one behind them; the first GPU throttled in two of those.
    assert found[0] == pytest.approx((likeness + 1) / (likeness + 9 * each))
    assert found[1:] == pytest.approx((likeness + 0) / (likeness + 11 * each))


def test_who_is_far_from_its_limit_is_as_the_model_says() -> None:
    assert own_multiple(grid_of_recent(seen(), BINS), np.full((GPUS, BINS), -30.0), 0.2) == pytest.approx(1.0)


def test_who_has_stood_near_its_limit_without_throttling_is_less_likely_to_begin_than_one_who_comes_there() -> None:
    temperature = seen().recent.get(Signal.GPU_TEMPERATURE)
    stood = seen(limit_celsius=float(temperature.max()) + 1.0)
    came = replace(
        stood,
        recent=replace(
            stood.recent,
            values={
                **stood.recent.values,
                Signal.GPU_TEMPERATURE: np.where(np.arange(COLUMNS) < COLUMNS - 10, temperature - 12.0, temperature),
            },
        ),
    )
    hottest = int(np.argmax(temperature.mean(axis=1)))
    assert looked(stood).chance[hottest, 1] < 0.5 * looked(came).chance[hottest, 1]


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 5.0), st.integers(0, BINS - 2))
def test_one_more_onset_is_never_safer(likeness: float, at: int) -> None:
    throttled = np.zeros(COLUMNS, np.float32)
    throttled[10 * (at + 1) : 10 * (at + 2)] = 30.0
    log_odds = np.full((GPUS, BINS), -3.0)
    calm, began = (own_multiple(grid_of_recent(seen(each), BINS), log_odds, likeness)[0] for each in (None, throttled))
    assert began > calm
