"""A cycle: slow forecasts are kept for an hour and never outlive what they were made from; bands carry on by GPU."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

from healthsvc.engine.scoring import Scorer, make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.fleet import (
    CLASSES,
    HORIZONS_S,
    Arrays,
    Band,
    DomainForecast,
    EventKind,
    FleetHistory,
    FleetWindow,
    Forecast,
    Placement,
    Projection,
    Signal,
    Snapshot,
    build_topology,
)
from healthsvc.forecasters import DOMAIN_NAMES, NAMES
from healthsvc.forecasters.base import Pool, device_ids
from tests.histories import NOW_S, flat_window, make_daily, make_events, make_gpus, make_history

DOCUMENTS = load_priors()
PRIORS = class_priors(DOCUMENTS)
MINUTE_S = 60.0


@dataclass(frozen=True)
class Counting:
    """A memory forecaster that counts its calls and says the same of everybody."""

    name: ClassVar[str] = "counting"
    daily_state: ClassVar[bool] = True  # kept for an hour
    failure_class: ClassVar[str] = "memory"
    requires: ClassVar[tuple[frozenset[Signal], ...]] = (frozenset({Signal.SBE_AGGREGATE}),)
    uses: ClassVar[frozenset[Signal]] = frozenset()
    pools: ClassVar[Pool] = "none"

    chance: float = 0.01
    change_p: float = 0.5
    calls: list[float] = field(default_factory=list)

    def fit(self, history: FleetHistory) -> Arrays:
        return {"device_id": device_ids(history.gpus)}

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        self.calls.append(history.now_s)
        gpus = len(history.gpus)
        hazard = np.full((gpus, 2, len(horizons_s)), -np.log1p(-self.chance), np.float32)
        seen = ~np.isnan(history.recent.last(Signal.SBE_AGGREGATE))
        hazard[~seen] = np.nan
        limit_s = np.full((gpus, 3), 86_400.0, np.float32)
        evidence = {"correctable_errors_7d_errors": np.full(gpus, 3.0, np.float32)}
        return Forecast(tuple(horizons_s), hazard, np.full(gpus, self.change_p, np.float32), limit_s, evidence)

    def project(self, state: Arrays, history: FleetHistory, row: int) -> Projection:
        raise NotImplementedError


def later(history: FleetHistory, minutes: float, silent: tuple[int, ...] = ()) -> FleetHistory:
    """The same fleet some minutes on; `silent` have had no sample for the whole window."""
    recent = history.recent
    values = {s: v.copy() for s, v in recent.values.items()}
    for array in values.values():
        array[list(silent)] = np.nan
    return replace(history, recent=FleetWindow(recent.gpus, recent.times_s + minutes * MINUTE_S, values))


def slow(forecaster: Counting) -> Scorer:
    return Scorer((forecaster,), (), PRIORS, {})


def scored(scorer: Scorer, state: dict[str, Arrays], *histories: FleetHistory) -> list[Snapshot]:
    """Cycle after cycle, each knowing the one before."""
    snapshots: list[Snapshot] = []
    for history in histories:
        snapshots.append(scorer.score(state, history, snapshots[-1] if snapshots else None, NOW_S))
    return snapshots


@dataclass(frozen=True)
class CountingEachCycle(Counting):
    """The same, of a state that changes with every column."""

    name: ClassVar[str] = "counting_each_cycle"
    daily_state: ClassVar[bool] = False


def test_two_forecasters_of_one_class_are_refused() -> None:
    with pytest.raises(ValueError, match="counting and counting_each_cycle both forecast memory: put one of them"):
        Scorer((Counting(), CountingEachCycle()), (), PRIORS, {})


def test_a_forecast_from_the_newest_column_is_made_every_cycle() -> None:
    forecaster, history = CountingEachCycle(), make_history(flat_window(4))
    scorer = slow(forecaster)
    scored(scorer, scorer.train(history), *(later(history, minutes) for minutes in (0, 1, 30)))
    assert forecaster.calls == [NOW_S, NOW_S + 60, NOW_S + 1800]


def test_a_slow_forecast_is_made_once_an_hour() -> None:
    forecaster, history = Counting(), make_history(flat_window(4))
    scorer = slow(forecaster)
    scored(scorer, scorer.train(history), *(later(history, minutes) for minutes in (0, 1, 30, 59, 60, 61)))
    assert forecaster.calls == [NOW_S, NOW_S + 3600.0]


def test_a_new_event_forces_a_fresh_forecast() -> None:
    forecaster, history = Counting(), make_history(flat_window(4))
    scorer = slow(forecaster)
    struck = replace(later(history, 2), events=make_events((1, NOW_S + 90, EventKind.XID, 48.0)))
    scored(scorer, scorer.train(history), history, later(history, 1), struck, replace(struck))
    assert forecaster.calls == [NOW_S, NOW_S + 120]


class CountingWithoutEvents(Counting):
    """The same, of a kind that no event can change."""

    reads_events: ClassVar[bool] = False


def test_a_new_event_asks_nothing_of_a_forecaster_that_reads_none() -> None:
    forecaster, history = CountingWithoutEvents(), make_history(flat_window(4))
    scorer = slow(forecaster)
    struck = replace(later(history, 2), events=make_events((1, NOW_S + 90, EventKind.XID, 48.0)))
    scored(scorer, scorer.train(history), history, struck, later(struck, 1), later(struck, 61))
    assert forecaster.calls == [NOW_S, NOW_S + 63 * 60]


def test_a_training_and_a_changed_fleet_force_a_fresh_forecast() -> None:
    forecaster, history = Counting(), make_history(flat_window(4))
    scorer = slow(forecaster)
    scorer.score(scorer.train(history), history, None, None)
    state = scorer.train(history)
    scorer.score(state, history, None, None)
    scorer.score(state, history.take(np.array([1, 0, 2, 3])), None, None)
    assert len(forecaster.calls) == 3


def test_what_is_kept_is_blanked_for_a_gpu_that_has_fallen_silent() -> None:
    forecaster = Counting(chance=0.3, change_p=1e-9)
    scorer, history = slow(forecaster), make_history(flat_window(3, per_node=1))
    one, two = (s.report for s in scored(scorer, scorer.train(history), history, later(history, 5, silent=(1,))))
    memory = CLASSES.index("memory")
    assert len(forecaster.calls) == 1
    assert one.observed[:, memory].tolist() == [True, True, True]
    assert two.observed[:, memory].tolist() == [True, False, True]
    assert np.isnan(two.change_p[1, memory])
    assert np.isnan(two.time_to_limit_s[1]).all()
    assert np.isnan(two.evidence["memory"]["correctable_errors_7d_errors"]).tolist() == [False, True, False]
    assert [Band(int(b)) for b in two.band] == [Band.WATCH, Band.UNKNOWN, Band.WATCH]
    np.testing.assert_array_equal(two.probability[[0, 2]], one.probability[[0, 2]])


def test_a_gpu_that_comes_back_within_the_hour_is_known_at_once() -> None:
    forecaster, history = Counting(), make_history(flat_window(3))
    scorer = slow(forecaster)
    cycles = (later(history, 0, silent=(1,)), later(history, 1, silent=(1,)), later(history, 2), later(history, 3))
    reports = [s.report for s in scored(scorer, scorer.train(history), *cycles)]
    assert [r.observed[1, CLASSES.index("memory")] for r in reports] == [False, False, True, True]
    assert forecaster.calls == [NOW_S, NOW_S + 120]


@pytest.fixture
def shipped() -> Scorer:
    return make_scorer(DOCUMENTS, PRIORS)


def test_training_gives_every_forecaster_its_arrays(shipped: Scorer) -> None:
    state = shipped.train(make_history(flat_window(8)))
    assert set(state) == {*NAMES, *DOMAIN_NAMES}
    assert all(len(arrays["device_id"]) == 8 for arrays in state.values())


@pytest.mark.parametrize(("ratio", "watch"), [(0.1, 0.01), (1.0, None), (4.0, None)])
def test_the_watch_threshold_is_that_of_the_site(ratio: float, watch: float | None) -> None:
    """Where the site's events speak for another rate, five times that is the bar."""
    forecaster = Counting(chance=0.011)
    history = make_history(flat_window(2))
    state: dict[str, Arrays] = {"counting": {"device_id": device_ids(history.gpus), "site_ratio": np.array(ratio)}}
    (snapshot,) = scored(slow(forecaster), state, history)
    memory = CLASSES.index("memory")
    month_prior = -np.expm1(-PRIORS["memory"].hazard((30 * 86_400.0,))[0, 0] * ratio)
    assert snapshot.report.watch_p_30d[memory] == pytest.approx(5 * month_prior if watch is None else watch, rel=1e-4)
    assert bool(snapshot.report.band[0] == Band.WATCH) is (ratio < 1)
    assert snapshot.report.watch_p_30d[0] == PRIORS["thermal"].watch_p_30d


def test_a_forecaster_without_arrays_is_left_out_and_its_class_unobserved(shipped: Scorer) -> None:
    history = make_history(flat_window(8))
    state = {k: v for k, v in shipped.train(history).items() if k != "ecc_growth"}
    report = shipped.score(state, history, None, None).report
    assert not report.observed[:, CLASSES.index("memory")].any()
    assert "memory" not in report.evidence


def test_the_snapshot_holds_what_it_was_made_from(shipped: Scorer) -> None:
    history = make_history(flat_window(8))
    state = shipped.train(history)
    snapshot = shipped.score(state, history, None, NOW_S - 60)
    assert snapshot.history is history
    assert snapshot.state == state
    assert (snapshot.report.as_of_s, snapshot.trained_at_s) == (NOW_S, NOW_S - 60)
    assert snapshot.report.gpus is history.gpus


def test_a_band_carries_on_with_its_gpu_when_rows_change() -> None:
    """Between half of the threshold and the threshold only memory of the band before keeps it."""
    watch = 5 * (1 - np.exp(-0.038 / 365.25 * 30))
    history = make_history(flat_window(4))
    high, low = slow(Counting(chance=watch * 1.1)), slow(Counting(chance=watch * 0.7))
    before = high.score(high.train(history), history.take(np.array([0, 1])), None, None)
    assert before.report.gpus == make_gpus(2)
    seen = {**dict.fromkeys((0, 1), Band.WATCH), **dict.fromkeys((2, 3), Band.UNKNOWN)}  # coverage is 0.35
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        moved = history.take(np.array(order))
        after = low.score(low.train(moved), moved, before, None).report
        assert [Band(int(b)) for b in after.band] == [seen[row] for row in order]


def throttled(minutes: float, order: list[int]) -> FleetHistory:
    """Eight GPUs of one node that all began to throttle two minutes ago, in this order of rows."""
    window = flat_window(8)
    seconds = window.get(Signal.SOFTWARE_THERMAL_THROTTLE).copy()
    seconds[:, -3:] = 60.0
    values = {**window.values, Signal.SOFTWARE_THERMAL_THROTTLE: seconds}
    window = FleetWindow(window.gpus, window.times_s + minutes * MINUTE_S, values)
    events = make_events(*((row, NOW_S - 120, EventKind.THERMAL_THROTTLE, 0.5) for row in range(8)))
    topology = build_topology(window.gpus, Placement({"node-00": {"rack": "r1"}}))
    return FleetHistory(window, make_daily(window.gpus, 0, {}), events, topology).take(np.array(order))


def test_an_incident_carries_on_when_rows_change(shipped: Scorer) -> None:
    rows = list(range(8))
    first = throttled(0, rows)
    state = shipped.train(first)
    before = shipped.score(state, first, None, None)
    (opened,) = before.report.incidents
    assert (opened.alertname, opened.state, opened.layer) == ("CoolingIncident", "active", "node")
    after = shipped.score(state, throttled(1, rows[::-1]), before, None)
    (carried,) = after.report.incidents
    assert (carried.id, carried.members) == (opened.id, opened.members)
    domains = after.report.domains[0]
    assert isinstance(domains, DomainForecast)
    assert domains.throttling.max() == 8


def test_an_incident_of_an_earlier_run_is_carried_on_by_the_first_cycle(shipped: Scorer) -> None:
    first = throttled(0, list(range(8)))
    state = shipped.train(first)
    (opened,) = shipped.score(state, first, None, None).report.incidents
    before = replace(opened, id="node:node-00:before", onset_s=NOW_S - 3600, alertname="ThrottlingCascadePredicted")
    (carried,) = shipped.score(state, throttled(1, list(range(8))), None, None, (before,)).report.incidents
    assert (carried.id, carried.onset_s, carried.alertname) == (before.id, before.onset_s, before.alertname)


def test_shared_throttling_is_an_incident_and_no_gpus_own_failure(shipped: Scorer) -> None:
    history = throttled(0, list(range(8)))
    report = shipped.score(shipped.train(history), history, None, None).report
    assert not report.facts.open_events.any()
    assert (report.band < Band.WATCH).all()
