"""What a site's record makes of the prior: its rate, its boards, its weak hints."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from healthsvc.features.recurrence import Kernel
from healthsvc.features.site import SITE_RATIO, Base, Past, SitePrior, Weak, blocks, board_ratio, learn, model_rates
from healthsvc.fleet import DAY_S, EventKind, EventLog, FleetHistory, Placement, build_topology
from tests.histories import NOW_S, flat_window, make_daily, make_events

DAYS, GPUS = 60, 64
KERNEL = Kernel((7.0,), (100.0,), 5.0)
PRIOR = SitePrior(gpu_years=2.0, recurrent_events=2.0, effect_sd=1.0, weak_effect_sd=0.1)
BASE = 0.5  # a GPU-year


def site(places: Mapping[str, Mapping[str, str]] | None = None, exposed: float = 1.0) -> FleetHistory:
    """64 GPUs on nodes of eight, observed for 60 days."""
    window = flat_window(GPUS)
    daily = make_daily(window.gpus, DAYS, {})
    placed = {host: dict(columns) for host, columns in (places or {}).items()}
    topology = build_topology(window.gpus, Placement(placed))
    exposure = daily.exposure_h * np.float32(exposed)
    return FleetHistory(
        window, type(daily)(daily.gpus, daily.days, {}, exposure, daily.completeness), EventLog(), topology
    )


def struck(rows: NDArray[np.intp], seed: int = 0) -> EventLog:
    """One error of each of `rows`, some time within the days that are fitted."""
    days = np.random.default_rng(seed).uniform(1, DAYS - 8, len(rows))
    return make_events(
        *[
            (int(row), NOW_S - float(day) * DAY_S, EventKind.DOUBLE_BIT_ERROR, 1.0)
            for row, day in zip(rows, days, strict=True)
        ]
    )


def learned(history: FleetHistory, episodes: EventLog, weak: Weak | None = None) -> dict[str, NDArray[np.generic]]:
    return learn(history, Past(episodes), Base(np.full(GPUS, BASE), BASE), KERNEL, PRIOR, weak)


def test_a_site_where_more_happens_has_a_higher_rate_and_one_where_nothing_does_a_lower_one() -> None:
    history = site()
    calm, busy = learned(history, EventLog()), learned(history, struck(np.arange(0, GPUS, 2)))
    years = GPUS * (DAYS - 7) / 365.25
    assert float(calm[SITE_RATIO]) == pytest.approx(1.0 / (1.0 + years * BASE), rel=1e-3)  # the prior is one event
    assert float(busy[SITE_RATIO]) > 5.0
    assert float(busy["site_events"]) == 32
    assert float(busy["site_gpu_years"]) == pytest.approx(years, rel=1e-3)


def test_days_without_samples_are_no_evidence_of_health() -> None:
    seen, half = learned(site(), EventLog()), learned(site(exposed=0.5), EventLog())
    assert float(half["site_gpu_years"]) == pytest.approx(float(seen["site_gpu_years"]) / 2)
    assert float(half[SITE_RATIO]) > float(seen[SITE_RATIO])


def test_days_on_which_no_event_would_have_been_seen_are_none_either() -> None:
    history = site()
    seen = np.ones((GPUS, DAYS), bool)
    seen[:, : DAYS // 2] = False
    found = learn(history, Past(EventLog(), seen=seen), Base(np.full(GPUS, BASE), BASE), KERNEL, PRIOR)
    assert float(found["site_gpu_years"]) == pytest.approx(GPUS * DAYS / 2 / 365.25, rel=1e-3)


def test_a_bad_delivery_raises_its_own_gpus_and_not_the_others() -> None:
    places = {f"node-{n:02d}": {"batch": "old" if n < 2 else "new"} for n in range(8)}
    history = site(places)
    ratio = board_ratio(learned(history, struck(np.arange(12))), history)
    assert ratio[:16].min() > 4 * ratio[16:].max()
    assert np.ptp(ratio[:16]) == np.ptp(ratio[16:]) == 0


def test_hosts_further_up_the_air_path_are_told_by_their_number() -> None:
    places = {f"node-{n:02d}": {"position": str(n % 4)} for n in range(8)}
    history = site(places)
    high = np.flatnonzero(np.arange(GPUS) // 8 % 4 == 3)
    ratio = board_ratio(learned(history, struck(high)), history)
    assert ratio[24] > ratio[16] > ratio[8] > ratio[0]


def test_neither_the_unit_nor_the_zero_of_a_position_matters() -> None:
    high = np.flatnonzero(np.arange(GPUS) // 8 % 4 == 3)
    found = []
    for unit, zero in ((1, 0), (42, -7)):
        history = site({f"node-{n:02d}": {"position": str(unit * (n % 4) + zero)} for n in range(8)})
        found.append(board_ratio(learned(history, struck(high)), history))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_only_the_largest_deliveries_speak_for_themselves() -> None:
    places = {f"node-{n:02d}": {"batch": f"lot {n:02d}" if n > 1 else "old"} for n in range(30)}
    window = flat_window(240)
    daily = make_daily(window.gpus, DAYS, {})
    history = FleetHistory(window, daily, EventLog(), build_topology(window.gpus, Placement(places)))
    state = learn(history, Past(struck(np.arange(16))), Base(np.full(240, BASE), BASE), KERNEL, PRIOR)
    assert len(state["site_names"]) == 20
    ratio = board_ratio(state, history)
    assert ratio[0] > 3 * ratio[16:].max()


def test_signs_that_came_to_nothing_lower_what_a_sign_is_worth() -> None:
    history, signs = site(), struck(np.arange(0, GPUS, 2), seed=1)
    plain = learned(history, EventLog())
    told = learn(history, Past(EventLog(), signs, 1.0), Base(np.full(GPUS, BASE), BASE), KERNEL, PRIOR)
    assert float(told["site_recurrence"]) < 0.7 * float(plain["site_recurrence"])


def test_a_site_of_another_model_is_held_against_the_rate_of_the_class() -> None:
    history, years = site(), GPUS * (DAYS - 7) / 365.25
    state = learn(history, Past(EventLog()), Base(np.full(GPUS, BASE / 4), BASE), KERNEL, PRIOR)
    assert float(state[SITE_RATIO]) == pytest.approx(0.25 / (1.0 + years * BASE / 4), rel=1e-3)


@pytest.mark.parametrize(("young", "old"), [("2026-01-15", "2020-01-15"), ("2026-01", "2020-01"), ("2026", "2020")])
def test_boards_that_were_put_in_long_ago_may_fail_more(young: str, old: str) -> None:
    places = {f"node-{n:02d}": {"installed": old if n < 4 else young} for n in range(8)}
    history = site(places)
    ratio = board_ratio(learned(history, struck(np.arange(0, 32, 2))), history)
    assert ratio[0] > 2 * ratio[-1]


def test_what_a_topology_says_in_no_known_form_changes_nothing() -> None:
    odd = site({f"node-{n:02d}": {"installed": "last spring", "position": "top"} for n in range(8)})
    found, plain = learned(odd, struck(np.arange(8))), learned(site(), struck(np.arange(8)))
    np.testing.assert_allclose(board_ratio(found, odd), board_ratio(plain, site()), rtol=1e-6)


def weak(told: NDArray[np.float64], now: NDArray[np.float64]) -> Weak:
    return Weak("hint_log", np.repeat(told[:, None], len(blocks(site())), axis=1), now)


def test_a_weak_hint_that_came_true_raises_the_hazard_a_little_and_one_that_did_not_never_lowers_it() -> None:
    history, hinted = site(), np.arange(GPUS) % 2 == 0
    hint = weak(hinted.astype(float), hinted.astype(float))
    true = learned(history, struck(np.flatnonzero(hinted)), hint)
    false = learned(history, struck(np.flatnonzero(~hinted)), hint)
    ratio = board_ratio(true, history, hint)
    assert 1.0 < ratio[0] / ratio[1] < 1.5
    np.testing.assert_allclose(board_ratio(false, history, hint), board_ratio(false, history, hint)[0])


def test_a_hint_that_was_not_observed_says_nothing() -> None:
    history, hinted = site(), np.arange(GPUS) % 2 == 0
    unseen = weak(np.where(hinted, 1.0, np.nan), np.full(GPUS, np.nan))
    state = learned(history, struck(np.flatnonzero(hinted)), unseen)
    assert np.isfinite(state["site_effects"].astype(float)).all()
    assert np.ptp(board_ratio(state, history, unseen)) == 0


def test_a_newcomer_of_a_known_delivery_is_judged_by_it_and_one_of_an_unknown_by_the_site() -> None:
    places = {f"node-{n:02d}": {"batch": "old" if n < 4 else "new"} for n in range(8)}
    history = site(places)
    state = learned(history, struck(np.arange(24)))
    later = site({**places, "node-07": {"batch": "newest"}, "node-06": {"batch": "old"}})
    ratio = board_ratio(state, later)
    assert ratio[6 * 8] == ratio[0]
    assert ratio[0] > ratio[7 * 8] > ratio[4 * 8]


def test_a_rate_is_that_of_the_longest_name_in_the_product() -> None:
    by_model = {"A100": 0.012, "A100-SXM4-80GB": 0.02}
    products = ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 80GB HBM3", "")
    assert model_rates(0.038, by_model, products).tolist() == [0.02, 0.012, 0.038, 0.038]
