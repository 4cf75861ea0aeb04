"""Every fast number agrees with its slow twin, on seeded random input with gaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthsvc.features.counts import GammaPrior, exceedance, fit_gamma
from healthsvc.features.daily import log_resistance, steady
from healthsvc.features.first_passage import hit_probability, hit_quantiles
from healthsvc.features.medians import group_count, group_median
from healthsvc.features.recurrence import Kernel, excitation, merge_episodes
from healthsvc.features.resistance import peer_ratio
from healthsvc.features.trend import TrendSpec, filter_trend
from healthsvc.features.windows import Summaries
from healthsvc.fleet import DAY_S, EventKind
from healthsvc.forecasters.throttling.counting import at_least
from healthsvc.telemetry.framing.grid import increments
from tests import naive
from tests.histories import NOW_S, as_float, as_maybe, make_events, make_gpus, random_floats

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(deadline=None, max_examples=25)


@FEW
@given(SEEDS)
def test_increments_agree_with_one_counter_read_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    raw = np.cumsum(rng.poisson(2.0, (6, 20)), axis=1).astype(np.float64)
    raw[1, 10:] -= raw[1, 9]  # a restart
    raw[2] += 1e15
    raw[rng.random(raw.shape) < 0.3] = np.nan
    raw[5] = np.nan
    before = np.array([np.nan, 0.0, 5.0, np.nan, 3.0, 7.0])
    steps, carried = increments(raw, before)
    for row in range(len(raw)):
        slow, last = naive.increments(as_maybe(raw[row]), as_maybe(before)[row])
        np.testing.assert_array_equal(steps[row], [as_float(v) for v in slow])
        np.testing.assert_array_equal(carried[row], as_float(last))


@FEW
@given(SEEDS, st.integers(1, 4))
def test_group_median_agrees_with_sorting_by_hand(seed: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(-1, 4, 12).astype(np.int32)
    values = random_floats(rng, (12, 5), gaps=0.4)
    slow = naive.group_median([as_maybe(row) for row in values], groups.tolist(), least)
    np.testing.assert_allclose(
        group_median(values, groups, least), [[as_float(v) for v in row] for row in slow], rtol=1e-12
    )
    flags = np.nan_to_num(values) > 0
    counted = [sum(bool(flags[j, 0]) for j in range(12) if groups[j] == own >= 0) for own in groups]
    assert group_count(flags, groups)[:, 0].tolist() == counted


@FEW
@given(SEEDS)
def test_peer_ratio_agrees_with_its_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    node = np.array([0] * 5 + [1] * 3 + [2] * 2 + [-1], np.int32)
    values = random_floats(rng, (len(node), 6), gaps=0.3)
    slow = naive.peer_ratio([as_maybe(row) for row in values], node.tolist())
    np.testing.assert_allclose(peer_ratio(values, node), [[as_float(v) for v in row] for row in slow], rtol=1e-12)


@FEW
@given(SEEDS, st.sampled_from([2.5, 1.0, np.inf]))
def test_the_trend_filter_agrees_with_two_by_two_matrices(seed: int, huber: float) -> None:
    rng = np.random.default_rng(seed)
    observations = np.cumsum(rng.normal(0, 0.01, (5, 30)), axis=1)
    observations[:, 12] += 0.5  # a wild day
    observations[rng.random(observations.shape) < 0.25] = np.nan
    observations[4] = np.nan
    noise = rng.uniform(0.002, 0.02, 5)
    spec = TrendSpec(0.003, 0.0005, 0.004, huber)
    fast = filter_trend(observations, noise, spec)
    for row in range(5):
        level, slope, level_var, slope_var = naive.trend(
            as_maybe(observations[row]), noise[row], spec.level_step, spec.slope_step, spec.slope_prior, huber
        )
        got = (fast.level[row], fast.slope[row], fast.level_var[row], fast.slope_var[row])
        np.testing.assert_allclose(got, (as_float(level), as_float(slope), level_var, slope_var), rtol=1e-9, atol=1e-14)
        assert fast.days[row] == np.sum(~np.isnan(observations[row]))


@settings(deadline=None, max_examples=15)
@given(
    st.floats(0.5, 180.0),
    st.integers(-50, 300).map(lambda thousandths: thousandths / 1000),
    st.floats(-0.004, 0.006),
    st.floats(0.0, 0.002),
    st.floats(0.0008, 0.004),
)
def test_first_passage_agrees_with_a_dense_sum_over_drifts(t: float, d: float, v: float, sd: float, s: float) -> None:
    fast = hit_probability(np.array([t]), np.array([d]), np.array([v]), np.array([sd]), np.array([s]))[0, 0]
    assert fast == pytest.approx(naive.first_passage(t, d, v, sd, s), rel=1e-6, abs=1e-9)


def test_first_passage_agrees_with_walks_that_are_simulated() -> None:
    """Discrete steps miss crossings between them, so the barrier is moved by 0.5826 s sqrt(dt) (Siegmund 1985)."""
    rng = np.random.default_rng(5)
    distance, drift, sd, diffusion, days, dt = 0.05, 0.001, 0.0008, 0.006, 30, 0.1
    paths = 20_000
    drifts = rng.normal(drift, sd, paths)
    steps = rng.normal(0, diffusion * np.sqrt(dt), (paths, round(days / dt))).astype(np.float32)
    steps += (drifts * dt).astype(np.float32)[:, None]
    barrier = distance - 0.5826 * diffusion * np.sqrt(dt)
    simulated = (np.cumsum(steps, axis=1).max(axis=1) >= barrier).mean()
    one = [np.array([x]) for x in (distance, drift, sd, diffusion)]
    assert simulated == pytest.approx(hit_probability(np.array([30.0]), *one)[0, 0], abs=0.01)


def test_first_passage_has_its_limits_right() -> None:
    times = np.array([1.0, 30.0, 1e7])
    distance = np.array([0.0, -1.0, 0.1, 0.1, 1e-5, np.nan, 0.1])
    drift = np.array([0.0, 0.0, 0.01, -0.01, -0.05, 0.01, 0.01])
    sd = np.array([0.001, 0.001, 0.0, 0.0, 0.0, 0.001, 0.001])
    diffusion = np.array([0.002, 0.002, 0.0, 0.05, 0.0015, 0.002, 0.0])
    p = hit_probability(times, distance, drift, sd, diffusion)
    assert (p[:2] == 1).all()  # at the limit already
    assert p[2].tolist() == [0.0, 1.0, 1.0]  # no noise: a clock
    assert p[3, 2] == pytest.approx(np.exp(-2 * 0.01 * 0.1 / 0.05**2))  # drifts away: total mass below 1
    assert p[4, 2] == pytest.approx(np.exp(-2 * 0.05 * 1e-5 / 0.0015**2))
    assert np.isnan(p[5]).all()
    assert p[6, 1] == pytest.approx(1.0)  # 0.1 / 30 is 6.7 deviations below the drift


@FEW
@given(st.floats(0.1, 30.0), st.integers(3, 40))
def test_hit_quantiles_are_read_off_the_curve(rate: float, points: int) -> None:
    times = np.linspace(1.0, 180.0, points)
    curve = -np.expm1(-rate * times / 180)[None, :]
    found = hit_quantiles(np.concatenate([curve, np.zeros_like(curve)]), times, (0.1, 0.5, 0.9))
    assert np.isnan(found[1]).all()
    for q, got in zip((0.1, 0.5, 0.9), found[0], strict=True):
        if curve[0, -1] < q:
            assert np.isnan(got)
        else:
            assert np.interp(got, np.append(0.0, times), np.append(0.0, curve[0])) == pytest.approx(q)


def test_a_chance_too_small_to_divide_by_has_no_quantile() -> None:
    curve = np.array([[1e-313, 1e-300, 0.04]])
    assert np.isnan(hit_quantiles(curve, np.array([0.25, 0.5, 180.0]), (0.1, 0.5, 0.9))).all()


@FEW
@given(st.integers(0, 80), st.floats(0.2, 40.0), st.floats(0.1, 60.0), st.floats(0.1, 5.0))
def test_exceedance_agrees_with_the_summed_probabilities(count: int, a: float, b: float, exposure: float) -> None:
    fast = exceedance(np.array([float(count), np.nan]), np.array([a, a]), np.array([b, b]), exposure)
    assert fast[0] == pytest.approx(naive.exceedance(count, a, b, exposure), rel=1e-6, abs=1e-10)
    assert np.isnan(fast[1])


def test_a_gamma_prior_recovers_the_fleet_it_was_drawn_from() -> None:
    rng = np.random.default_rng(2)
    exposure = np.full(20_000, 30.0)
    counts = rng.poisson(rng.gamma(2.0, 1 / 10.0, 20_000) * exposure).astype(np.float64)
    prior = fit_gamma(counts, exposure)
    assert prior.a == pytest.approx(2.0, rel=0.1)
    assert prior.b == pytest.approx(10.0, rel=0.1)


def test_one_bursting_gpu_does_not_speak_for_the_fleet() -> None:
    counts = np.append(np.tile([0.0, 1.0], 150), 1e9)
    exposure = np.full(301, 30.0)
    prior = fit_gamma(counts, exposure)
    assert prior.a / prior.b < 0.05
    unheard = fit_gamma(np.append(counts, np.nan), np.append(exposure, 30.0))
    assert unheard == prior
    assert fit_gamma(np.zeros(4), np.full(4, 10.0)) == GammaPrior(0.5, 40.0)
    assert fit_gamma(np.full(3, np.nan), np.zeros(3)) == GammaPrior(0.5, 1.0)


@FEW
@given(st.lists(st.floats(0.01, 400.0), max_size=6), st.sampled_from([1.0, 7.0, 30.0]))
def test_excitation_agrees_with_the_summed_intensity(ages_days: list[float], horizon_days: float) -> None:
    kernel = Kernel((7.0, 30.0, 90.0), (200.0, 320.0, 60.0), 5.0)
    starts = [NOW_S - age * DAY_S for age in ages_days]
    log = merge_episodes(make_events(*((0, start, EventKind.DOUBLE_BIT_ERROR, 1.0) for start in starts)))
    kept = naive.episodes(starts)
    assert log.start_s.tolist() == pytest.approx(kept)
    fast = excitation(log, 2, NOW_S, (horizon_days * DAY_S,), kernel)
    slow = naive.excitation(
        [(NOW_S - s) / DAY_S for s in kept], horizon_days, kernel.scales_days, kernel.weights, kernel.frailty
    )
    assert fast[0, 0] == pytest.approx(slow, rel=1e-6)
    assert fast[1, 0] == 0.0


def test_a_strength_scales_the_intensity_and_episodes_of_the_future_have_none() -> None:
    past, coming = (0, NOW_S - DAY_S, EventKind.XID, 79.0), (0, NOW_S + DAY_S, EventKind.XID, 79.0)
    kernel = Kernel((7.0,), (10.0,), 0.0)
    half = excitation(make_events(past, coming), 1, NOW_S, (DAY_S,), kernel, 0.5)
    whole = excitation(make_events(past), 1, NOW_S, (DAY_S,), kernel)
    np.testing.assert_allclose(half, whole / 2)


@FEW
@given(SEEDS, st.integers(1, 8))
def test_the_poisson_binomial_agrees_with_every_outcome_written_down(seed: int, members: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.random((5, members, 1)) * rng.integers(0, 2, (5, members, 1))
    certain = np.arange(5)
    fast = at_least(p, certain)
    for domain, k in np.ndindex(5, 3):
        slow = naive.at_least(p[domain, :, 0].tolist(), int(certain[domain]), k + 1)
        assert fast[domain, k, 0] == pytest.approx(slow, rel=1e-9, abs=1e-12)


@FEW
@given(SEEDS)
def test_daily_log_resistance_agrees_with_its_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (4, 40)
    power = 600 * np.exp(np.cumsum(rng.normal(0, 0.04, shape), axis=1))
    columns = {
        "power_watts": power,
        "power_limit_watts": np.full(shape, 700.0),
        "power_range_watts": power * rng.uniform(0, 0.17, shape),
        "thermal_throttle_s": np.where(rng.random(shape) < 0.1, 5.0, 0.0),
        "temperature": rng.uniform(26, 80, shape),
    }
    for name in ("power_watts", "power_range_watts", "thermal_throttle_s", "temperature"):
        columns[name] = np.where(rng.random(shape) < 0.05, np.nan, columns[name])
    inlet = rng.uniform(20, 30, shape)
    day = Summaries(make_gpus(4), NOW_S + 600.0 * np.arange(40.0), columns)
    use = steady(day)
    fast = log_resistance(columns["temperature"], inlet, columns["power_watts"], use)
    for row in range(4):
        of = {name: as_maybe(values[row]) for name, values in columns.items()}
        flags = naive.steady(of["power_watts"], of["power_range_watts"], of["thermal_throttle_s"], 700.0)
        assert use[row].tolist() == flags
        slow = naive.log_resistance(of["temperature"], as_maybe(inlet[row]), of["power_watts"], flags)
        np.testing.assert_allclose(fast[row], as_float(slow), rtol=1e-12)
