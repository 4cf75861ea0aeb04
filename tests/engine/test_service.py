"""The loop over days: what arrived late is read again, what is too old is dropped, what was open is carried on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from healthsvc.alerts import AlertPolicy
from healthsvc.engine.alerting import Alerting
from healthsvc.engine.clock import ReplayClock
from healthsvc.engine.digest import digest_day
from healthsvc.engine.progress import Silent
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.service import Service
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.training import Training
from healthsvc.features.daily import definitions
from healthsvc.fleet import DAY_S, HOUR_S, GpuId, Incident
from healthsvc.fleet.meaning import REMEMBERED_DAYS
from healthsvc.publish.board import Board
from healthsvc.publish.exposition import MetricsPage
from healthsvc.publish.self_metrics import STAGES, SelfMetrics
from healthsvc.store import Journal, Ledger, Shelf, sqlite_url
from healthsvc.telemetry.source import RawGrid, Source, SourceError
from tests.engine.recordings import START_DAY, START_S, STEP_S, settings_for
from tests.engine.sources import ArraySource, steady_source
from tests.histories import make_gpus

GPUS = make_gpus(4)


@dataclass
class LateSource(ArraySource):
    """Half of the samples of day 1 arrive only in day 2; then the first `refusals` reads of that day fail.

    reads_again: the data time of each such read.
    """

    refusals: int = 0
    reads_again: list[float] = field(default_factory=list)
    newest_s: float = -np.inf

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        arrived = self.newest_s > START_S + 2.5 * DAY_S
        self.newest_s = max(self.newest_s, float(times_s[-1]))
        late = (times_s > START_S + DAY_S) & (times_s <= START_S + 2 * DAY_S)
        if arrived and late.any():
            self.reads_again.append(self.newest_s)
            if len(self.reads_again) <= self.refusals:
                raise SourceError(self.name, "is busy", "Wait")
        raw = super().read(times_s, gpus, step_s)
        hidden = late & (not arrived) & (np.arange(len(times_s)) % 2 == 0) if len(times_s) > 1 else late & (not arrived)
        for values in raw.values.values():
            values[:, hidden] = np.nan
        return raw


def service_of(folder: Path, source: Source, journal: Journal, from_day: float, until_day: float) -> Service:
    """Wired by hand, as fast as it can; it ends with its clock."""
    documents, settings, own = load_priors(), settings_for(folder), SelfMetrics()
    return Service(
        settings=settings,
        source=source,
        placement=None,
        clock=ReplayClock(START_S + from_day * DAY_S, 1e9, STEP_S, lambda: START_S + until_day * DAY_S),
        training=Training(make_scorer(documents, class_priors(documents)), Shelf(folder), DAY_S, own),
        ledger=Ledger(folder, definitions()),
        journal=journal,
        alerting=Alerting(AlertPolicy(cycle_s=STEP_S), journal, None, 60.0),
        board=Board(),
        page=MetricsPage(own.render),
        self_metrics=own,
        progress=Silent(),
    )


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., Service]:
    def run(source: Source, from_day: float, until_day: float, *incidents: Incident) -> Service:
        with Journal(sqlite_url(tmp_path)) as journal:
            journal.save_incidents(list(incidents))
            service = service_of(tmp_path, source, journal, from_day, until_day)
            service.run()
            return service

    return run


def steady(days: int) -> ArraySource:
    return steady_source(GPUS, START_S, START_S + days * DAY_S, STEP_S)


@pytest.mark.parametrize("refusals", [0, 2])
def test_samples_that_came_late_reach_the_ledger_and_the_memory(refusals: int, ran: Callable[..., Service]) -> None:
    """A server that refuses the second reading costs no cycle: it is asked again an hour later."""
    source = LateSource(**vars(steady(4)), refusals=refusals)
    service = ran(source, 1.95, 3.02 + refusals / 24)
    daily, _ = service.ledger.read(START_DAY + 1, START_DAY + 1)
    np.testing.assert_allclose(daily.completeness, 1.0)
    snapshot = service.board.snapshot
    assert snapshot is not None
    column = snapshot.history.daily.days.tolist().index(START_DAY + 1)
    np.testing.assert_allclose(snapshot.history.daily.completeness[:, column], 1.0)
    assert len(source.reads_again) > refusals
    assert (np.diff(source.reads_again[: refusals + 1]) >= HOUR_S).all()
    assert failures(service) == ({"late_day": refusals} if refusals else {})
    assert service.board.status.missed_cycles == 0


def failures(service: Service) -> dict[str, float]:
    """How often each stage has failed, of those that have."""
    registry = service.self_metrics.registry
    counted = {stage: registry.get_sample_value("healthsvc_failures_total", {"stage": stage}) for stage in STAGES}
    return {stage: count for stage, count in counted.items() if count}


def test_days_that_nobody_looks_back_to_leave_the_ledger(tmp_path: Path, ran: Callable[..., Service]) -> None:
    ledger, source = Ledger(tmp_path, definitions()), steady(3)
    for day in (START_DAY + 1 - REMEMBERED_DAYS - 1, START_DAY + 1 - REMEMBERED_DAYS):
        old = steady_source(GPUS, day * DAY_S, (day + 1) * DAY_S, STEP_S)
        digest_day(old, ledger, day, (day + 1) * DAY_S, STEP_S, 256, None)
    assert len(ledger.days()) == 2
    kept = ran(source, 1.98, 2.01).ledger.days()
    assert min(kept) == START_DAY + 1 - REMEMBERED_DAYS


def test_an_incident_that_was_open_is_carried_on_after_a_restart(ran: Callable[..., Service]) -> None:
    now_s = START_S + 1.0 * DAY_S
    incident = partial(
        Incident, layer="node", domain=GPUS[0].hostname, cause="8 of 8", first_mover="", members=("GPU-000",)
    )
    open_one = incident(
        id="before", state="active", alertname="CoolingIncident", onset_s=now_s - 900, last_true_s=now_s - 300
    )
    cleared = incident(
        id="over",
        state="cleared",
        alertname="CoolingIncident",
        onset_s=now_s - 9000,
        last_true_s=now_s - 5000,
        cleared_s=now_s - 3000,
    )
    later = incident(
        id="of the future",
        state="active",
        alertname="CoolingIncident",
        onset_s=now_s + 900,
        last_true_s=now_s + 999,
    )
    snapshot = ran(steady(2), 1.0, 1.01, open_one, cleared, later).board.snapshot
    assert snapshot is not None
    assert [(i.id, i.onset_s, i.state) for i in snapshot.report.incidents] == [("before", now_s - 900, "active")]
