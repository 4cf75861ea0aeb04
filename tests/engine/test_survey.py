"""What there is and what the forecasters can do with it: one window's facts, and those of a running service."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.engine.shipped import load_priors
from healthsvc.engine.survey import Reader, SurveyKeeper, readiness, survey_of
from healthsvc.fleet import DAY_S, FleetWindow, GpuId, Signal
from healthsvc.fleet.boards import beyond_board
from healthsvc.fleet.survey import Reading, Survey
from healthsvc.forecasters import shipped_domain_forecasters, shipped_forecasters
from healthsvc.store import Journal, sqlite_url
from healthsvc.telemetry.catalogue.rows import CLASSIC
from healthsvc.telemetry.source import RawGrid
from tests import naive
from tests.engine.recordings import START_S, STEP_S
from tests.engine.sources import steady_source
from tests.engine.test_service import service_of
from tests.histories import make_gpus

READERS: tuple[Reader, ...] = (*shipped_forecasters(load_priors()), *shipped_domain_forecasters(load_priors()))
NEEDED = frozenset(signal for reader in READERS for group in (*reader.requires, reader.uses) for signal in group)
PRODUCTS = ("NVIDIA H100 80GB HBM3", "Tesla T4", "GRID A100-10C", "AMD Instinct MI300X", "")


@given(st.data())
def test_readiness_agrees_with_the_slow_twin(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 6))
    gpus = [GpuId(f"GPU-{i}", product=data.draw(st.sampled_from(PRODUCTS))) for i in range(count)]
    signals = sorted(NEEDED)
    seen = {
        signal: np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
        for signal in data.draw(st.sets(st.sampled_from(signals)))
    }
    ever = frozenset(data.draw(st.sets(st.sampled_from(signals))))
    for reader, facts in zip(READERS, readiness(READERS, gpus, seen, ever), strict=True):
        awake = [row for row in range(count) if any(rows[row] for s, rows in seen.items() if s is not Signal.XID)]
        slow = [
            naive.readiness(
                reader.requires,
                reader.uses,
                {signal for signal, rows in seen.items() if rows[row]},
                beyond_board(gpus[row].product),
                ever & {Signal.XID},
            )
            for row in awake
        ]
        assert (facts.ready, facts.degraded, facts.starved) == tuple(
            slow.count(state) for state in ("ready", "degraded", "starved")
        )


def test_a_board_is_not_asked_for_what_it_cannot_have() -> None:
    assert Signal.MEMORY_TEMPERATURE in beyond_board("Tesla T4")
    assert Signal.REMAP_PENDING in beyond_board("Tesla V100-SXM2-32GB")
    assert Signal.MEMORY_TEMPERATURE not in beyond_board("Tesla V100-SXM2-32GB")
    assert Signal.RETIRED_PAGES_DBE in beyond_board("NVIDIA H200")
    assert Signal.GPU_TEMPERATURE in beyond_board("GRID A100-40C")
    assert beyond_board("NVIDIA H100 80GB HBM3") == beyond_board("NVIDIA A100-SXM4-80GB")
    assert beyond_board("some board of tomorrow") == frozenset()


def test_an_xid_that_was_seen_once_proves_that_xids_are_on() -> None:
    gpus = [GpuId("GPU-0"), GpuId("GPU-1")]
    loss = next(reader for reader in READERS if reader.name == "device_loss")
    seen = {Signal.POWER: np.array([True, True])}
    (never,) = readiness([loss], gpus, seen, frozenset())
    (once,) = readiness([loss], gpus, seen, frozenset({Signal.XID}))
    assert (never.degraded, once.ready) == (2, 2)


def test_missing_samples_count_from_the_first_on() -> None:
    values = np.array([[np.nan, 1.0, np.nan, 1.0], [np.nan] * 4])
    times = np.arange(60.0, 301.0, 60.0)[:4]
    raw = RawGrid((GpuId("a"), GpuId("b")), times, {Signal.POWER: values})
    (facts,) = survey_of(raw, [], 60.0, {}).signals
    assert (facts.count, facts.since_s) == (1, 120.0)
    assert facts.missing_ratio == pytest.approx(1 / 3)


def test_what_is_there_in_the_first_column_has_been_there_for_nobody_knows_how_long() -> None:
    raw = RawGrid((GpuId("a"),), np.array([60.0, 120.0]), {Signal.POWER: np.ones((1, 2))}, readings=(reading(1),))
    (unknown,), (told,) = (survey_of(raw, [], 60.0, at).signals for at in ({}, {"DCGM_FI_DEV_POWER_USAGE": 7.0}))
    assert (unknown.since_s, told.since_s) == (None, 7.0)


def test_a_silent_gpu_starves_no_forecaster_and_is_counted_apart() -> None:
    """It may have been lost: what its exporter would show is no question of what is enabled."""
    gpus = (GpuId("a"), GpuId("b"), GpuId("gone"))
    rows = np.array([[1.0], [1.0], [np.nan]])
    xid = np.array([[np.nan], [np.nan], [79.0]])  # the last one of a GPU off the bus outlives it
    raw = RawGrid(gpus, np.array([60.0]), {**dict.fromkeys(NEEDED - {Signal.XID}, rows), Signal.XID: xid})
    survey = survey_of(raw, READERS, 60.0, {})
    assert (survey.gpus, survey.silent) == (3, 1)
    assert {(facts.ready, facts.starved) for facts in survey.forecasters} == {(2, 0)}


def reading(gpus: int) -> Reading:
    return Reading(Signal.POWER, "DCGM_FI_DEV_POWER_USAGE", CLASSIC, "watts", "the name says watts", False, gpus)


def test_a_running_service_sums_what_it_rejected_and_keeps_its_newest_readings() -> None:
    gpus = (GpuId("a"), GpuId("b"))
    keeper = SurveyKeeper(READERS)
    for end_s, count in ((600.0, 2), (1200.0, 1), (300.0, 9)):  # the last one: an old day read again
        times = np.array([end_s - 60.0, end_s])
        values = {Signal.POWER: np.array([[1.0, 1.0], [1.0, np.nan]])}
        keeper.hear(RawGrid(gpus, times, values, rejected={(Signal.POWER, "blank"): count}, readings=(reading(count),)))
    window = FleetWindow(gpus, times + 900.0, {Signal.POWER: np.array([[1, 1], [np.nan, np.nan]], np.float32)})
    survey = keeper.survey(window, {})
    facts = survey.of(Signal.POWER)
    assert facts is not None
    assert (facts.count, facts.since_s, facts.rejected) == (1, 240.0, {"blank": 12})
    assert [metric.gpus for metric in facts.metrics] == [1]
    quiet = np.array([[1] + [np.nan] * 3, [np.nan, 1, np.nan, np.nan]], np.float32)  # only the second within three
    newest = keeper.survey(FleetWindow(gpus, np.arange(1260.0, 1500.0, 60.0), {Signal.POWER: quiet}), {})
    assert (newest.signals[0].count, newest.silent) == (1, 1)


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Survey | None]:
    """The survey of a service that has run for an hour."""
    source = steady_source(make_gpus(4), START_S, START_S + 2 * DAY_S, STEP_S)
    with Journal(sqlite_url(tmp_path)) as journal:
        service = service_of(tmp_path, source, journal, 1.5, 1.54)
        service.run()
        yield service.board.survey


def test_a_running_service_keeps_the_survey_of_its_newest_cycle(lived: Survey | None) -> None:
    assert lived is not None
    assert lived.gpus == 4
    power = lived.of(Signal.POWER)
    assert power is not None
    assert (power.count, power.missing_ratio) == (4, 0.0)
    thermal = next(facts for facts in lived.forecasters if facts.name == "thermal_trend")
    assert thermal.starved == 0
    assert lived.of(Signal.DRIVER_RELOADS) is None  # derived, and nobody reports it
