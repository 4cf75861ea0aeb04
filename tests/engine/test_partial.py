"""Days of which the source gave only a part: scored by, said, read again, and not learned from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import structlog
from numpy.typing import NDArray

from healthsvc.engine.digest import days_to_walk, digest_day
from healthsvc.engine.joins import day_of
from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.partial import RETRIED_DAYS, partial_days, without_days
from healthsvc.engine.recall import recall
from healthsvc.engine.service import Service
from healthsvc.features.daily import definitions
from healthsvc.fleet import DAY_S, OPEN, EventKind, EventLog, GpuId, Signal
from healthsvc.publish.rest import why_unready
from healthsvc.store import Journal, Ledger, sqlite_url
from healthsvc.telemetry.source import RawGrid
from tests.engine.recordings import START_DAY, START_S, STEP_S, settings_for
from tests.engine.sources import ArraySource, steady_source
from tests.engine.test_service import service_of
from tests.histories import make_gpus

GPUS = make_gpus(4)
NOW_S = START_S + 2.5 * DAY_S


@dataclass
class PartialSource(ArraySource):
    """One store does not answer for (from_s, until_s]: half of the GPUs are missing there, and the source says so."""

    from_s: float = np.inf
    until_s: float = -np.inf
    odd: int = 0
    told: bool = True

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        raw = super().read(times_s, gpus, step_s)
        gone = (times_s > self.from_s) & (times_s <= self.until_s)
        if not gone.any():
            return raw
        half = np.arange(len(raw.gpus)) % 2 == self.odd
        values = {s: np.where(half[:, None] & gone, np.nan, v) for s, v in raw.values.items()}
        return replace(raw, values=values, incomplete=self.told, warnings=("store-1 unavailable",) * self.told)


def partial_source(first_day: float, last_day: float, days: int = 4) -> PartialSource:
    whole = steady_source(GPUS, START_S, START_S + days * DAY_S, STEP_S)
    return PartialSource(**vars(whole), from_s=START_S + first_day * DAY_S, until_s=START_S + last_day * DAY_S)


def ledger_of(folder: Path, source: ArraySource, days: int = 2) -> Ledger:
    ledger = Ledger(folder, definitions())
    for day in range(days):
        digest_day(source, ledger, START_DAY + day, NOW_S, STEP_S, 256, None)
    return ledger


def memory_of(folder: Path, source: ArraySource, ledger: Ledger, now_s: float = NOW_S) -> FleetMemory:
    return recall(source, ledger, now_s, settings_for(folder), None, lambda raw: None)


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[ArraySource, float, float], Service]:
    def run(source: ArraySource, from_day: float, until_day: float) -> Service:
        with Journal(sqlite_url(tmp_path)) as journal:
            service = service_of(tmp_path, source, journal, from_day, until_day)
            service.run()
            return service

    return run


# -- marked -----------------------------------------------------------------------------------------------------------


def test_a_column_belongs_to_the_day_that_it_ends() -> None:
    times = START_S + DAY_S + np.array([-STEP_S, 0.0, STEP_S])
    raw = RawGrid((), times, {}, incomplete=True)
    assert partial_days(raw) == {START_DAY, START_DAY + 1}
    assert partial_days(replace(raw, times_s=times[:2])) == {START_DAY}
    assert partial_days(replace(raw, incomplete=False)) == frozenset()


def test_a_day_digested_from_a_partial_answer_is_marked_until_it_is_whole(tmp_path: Path) -> None:
    source = partial_source(1.4, 1.5)
    ledger = ledger_of(tmp_path, source)
    assert ledger.partial_days(START_DAY, START_DAY + 9) == {START_DAY + 1}
    long_after_s = NOW_S + 20 * DAY_S  # no matter how old
    assert days_to_walk(ledger, long_after_s, 60, START_S)[-1] == START_DAY + 1
    source.until_s = -np.inf
    digest_day(source, ledger, START_DAY + 1, NOW_S, STEP_S, 256, None)
    assert ledger.partial_days(START_DAY, START_DAY + 9) == frozenset()


def test_memory_knows_partial_days_of_the_ledger_and_of_today(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, partial_source(1.4, 1.5))
    assert memory_of(tmp_path, partial_source(9, 9), ledger).partial_days == {START_DAY + 1}
    today = memory_of(tmp_path, partial_source(2.1, 2.2), ledger)
    assert today.partial_days == {START_DAY + 1, START_DAY + 2}


def test_a_live_read_that_is_partial_marks_its_day_when_that_is_written(tmp_path: Path) -> None:
    source = partial_source(2.6, 2.61)
    ledger = ledger_of(tmp_path, source)
    memory = memory_of(tmp_path, source, ledger)
    for now_s in np.arange(NOW_S + STEP_S, START_S + 3 * DAY_S + 3 * STEP_S, STEP_S):
        memory.advance(source, float(now_s), lambda raw: None)
        memory.finish_days(ledger)
    assert memory.partial_days == {START_DAY + 2}
    assert ledger.partial_days(START_DAY, START_DAY + 9) == {START_DAY + 2}


# -- not learned from -------------------------------------------------------------------------------------------------


def test_a_history_without_some_days_has_no_numbers_and_no_events_of_theirs(tmp_path: Path) -> None:
    source = partial_source(9, 9)
    history = memory_of(tmp_path, source, ledger_of(tmp_path, source)).history()
    start_s = START_S + np.array([0.5, 1.0, 1.5, 2.2]) * DAY_S
    kind = np.full(4, EventKind.LOST, np.int16)
    log = EventLog(np.zeros(4, np.int32), start_s, np.full(4, OPEN), kind, np.zeros(4))
    history = replace(history, events=log)
    assert [day_of(part) for part in history.onset_bins] == [START_DAY, START_DAY + 1]
    left = without_days(history, {START_DAY + 1})
    assert left.events.start_s.tolist() == start_s[[0, 3]].tolist()
    column = history.daily.days.tolist().index(START_DAY + 1)
    others = np.arange(len(history.daily.days)) != column
    assert not left.daily.exposure_h[:, column].any()
    assert not left.daily.completeness[:, column].any()
    np.testing.assert_array_equal(left.daily.exposure_h[:, others], history.daily.exposure_h[:, others])
    for name, values in left.daily.features.items():
        assert np.isnan(values[:, column]).all(), name
        np.testing.assert_array_equal(values[:, others], history.daily.features[name][:, others])
    assert left.onset_bins == history.onset_bins[:1]
    only_bins = replace(history, events=EventLog(), daily=replace(history.daily, days=history.daily.days - 99))
    assert without_days(only_bins, {START_DAY}).onset_bins == history.onset_bins[1:]
    assert without_days(history, ()) is history
    assert without_days(history, {START_DAY + 99}) is history


@pytest.mark.parametrize("told", [True, False])
def test_what_is_learned_does_not_depend_on_a_partial_day(tmp_path: Path, told: bool) -> None:
    """The GPUs that an answer lacks look lost. Which of them it lacks makes no difference if the source says so."""
    learned = []
    for odd in (0, 1):
        source = partial_source(1.1, 1.5)
        source.odd, source.told = odd, told
        folder = tmp_path / str(odd)
        folder.mkdir()
        with Journal(sqlite_url(folder)) as journal, structlog.testing.capture_logs() as logs:
            service = service_of(folder, source, journal, 2.5, 2.5)
            learned.append(service.train_once(NOW_S))
        assert f"healthsvc_training_left_out_ratio {0.5 * told}\n" in service.self_metrics.render().decode()
        left_out = [entry["days"] for entry in logs if "left out" in entry["event"]]
        assert left_out == ([["2026-01-06"]] if told else [])
    one, other = ({(f, k): v for f, arrays in state.items() for k, v in arrays.items()} for state in learned)
    assert all(np.array_equal(v, other[k], equal_nan=v.dtype.kind == "f") for k, v in one.items()) is told


# -- said, and read again ---------------------------------------------------------------------------------------------


def test_a_cycle_on_partial_telemetry_scores_stays_ready_and_says_so(
    ran: Callable[[ArraySource, float, float], Service],
) -> None:
    service = ran(partial_source(2.5, 9), 2.49, 2.51)
    status = service.board.status
    assert service.board.snapshot is not None
    assert service.board.snapshot.report.as_of_s == START_S + 2.51 * DAY_S - (START_S + 2.51 * DAY_S) % STEP_S
    assert status.ready
    assert status.source_ok
    assert not status.missed_cycles
    assert "incomplete: store-1 unavailable" in status.source_message
    assert "1 incomplete days are not learned from, the newest 2026-01-07" in status.source_message
    assert not why_unready(service.board, 1e9, status.last_cycle_s or 0.0)
    metrics = service.self_metrics.render().decode()
    assert "healthsvc_incomplete_reads_total 0.0" not in metrics


def test_a_whole_source_is_said_nothing_about(ran: Callable[[ArraySource, float, float], Service]) -> None:
    service = ran(partial_source(9, 9), 2.49, 2.51)
    assert service.board.status.source_message == ""
    assert "healthsvc_incomplete_reads_total 0.0" in service.self_metrics.render().decode()


@dataclass
class RejectingSource(PartialSource):
    """Three samples of each read are no measurement."""

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        raw = super().read(times_s, gpus, step_s)
        return replace(raw, rejected={(Signal.POWER, "blank"): 2, (Signal.ENERGY, "blank"): 1})


def test_samples_that_are_no_measurement_are_counted_by_reason(
    ran: Callable[[ArraySource, float, float], Service],
) -> None:
    service = ran(RejectingSource(**vars(partial_source(9, 9))), 2.49, 2.51)
    count = service.self_metrics.registry.get_sample_value("healthsvc_samples_rejected_total", {"reason": "blank"})
    assert count is not None
    assert count % 3 == 0 < count


@dataclass
class MendedSource(PartialSource):
    """As it was, until day 2.6 has been asked for: then its store is back."""

    newest_s: float = -np.inf

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        self.newest_s = max(self.newest_s, float(times_s[-1]))
        if self.newest_s > START_S + 2.6 * DAY_S:
            self.until_s = -np.inf
        return super().read(times_s, gpus, step_s)


def test_a_partial_day_is_read_again_at_midnight_and_trusted_once_it_is_whole(
    ran: Callable[[ArraySource, float, float], Service],
) -> None:
    source = MendedSource(**vars(partial_source(1.4, 1.5)))
    service = ran(source, 2.5, 3.03)
    assert service.ledger.partial_days(START_DAY, START_DAY + 9) == frozenset()
    assert service.board.status.source_message == ""


def test_a_store_that_stays_broken_is_not_asked_for_the_same_days_for_ever(
    ran: Callable[[ArraySource, float, float], Service],
) -> None:
    days = RETRIED_DAYS + 3
    source = partial_source(0.4, 0.5, days + 1)
    service = ran(source, days - 0.5, days + 0.03)
    assert service.ledger.partial_days(START_DAY, START_DAY + 1) == {START_DAY}
    assert START_DAY not in service._late_days
