"""From settings to a wired service: the only place that knows every part."""

import csv
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from healthsvc.alerts import AlertPolicy
from healthsvc.calibration import ClassPrior
from healthsvc.config import Settings, SettingsError
from healthsvc.engine.alerting import Alerting
from healthsvc.engine.clock import Clock, LiveClock, ReplayClock
from healthsvc.engine.placing import placed
from healthsvc.engine.progress import Progress, Silent
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.service import Service
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.thresholds import with_kept_thresholds
from healthsvc.engine.training import Training
from healthsvc.features.daily import definitions
from healthsvc.fleet import LAYERS, Placement
from healthsvc.publish.alertmanager import AlertmanagerClient
from healthsvc.publish.board import Board
from healthsvc.publish.exposition import MetricsPage
from healthsvc.publish.rest import Application, build_app
from healthsvc.publish.self_metrics import SelfMetrics
from healthsvc.store import Journal, Ledger, Shelf, StateLock, sqlite_url
from healthsvc.telemetry.prometheus import PrometheusSource
from healthsvc.telemetry.recorded import RecordedSource
from healthsvc.telemetry.server.http_session import build_session
from healthsvc.telemetry.source import REASONS, Source, SourceError


@dataclass(frozen=True)
class Replay:
    """Data time from `from_s` on, `speed` times as fast as the clock."""

    from_s: float
    speed: float


def open_source(settings: Settings) -> Source:
    """The source that the settings name. Raises SettingsError if they name none or two."""
    if settings.prometheus.url and settings.recorded.directory:
        raise SettingsError(
            f"prometheus.url = {settings.prometheus.url} and recorded.directory = {settings.recorded.directory}: "
            "only one can be the source; unset the other"
        )
    if settings.prometheus.url:
        return PrometheusSource(settings.prometheus, environment=settings.environment)
    if settings.recorded.directory:
        return RecordedSource(settings.recorded.directory)
    raise SettingsError(
        "prometheus.url is not set: give --prometheus-url, HEALTHSVC_PROMETHEUS_URL, or --recorded DIR for a recording"
    )


def load_placement(path: Path) -> Placement:
    """topology.csv. Raises SettingsError naming the file and what it lacks."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as failure:
        raise SettingsError(f"history.topology_file = {path}: {failure.strerror}; give a readable CSV") from None
    if rows and "hostname" not in rows[0]:
        raise SettingsError(
            f"history.topology_file = {path}: no column `hostname`; it needs hostname,{','.join(LAYERS[1:])}"
        )
    return Placement({row["hostname"]: {k: v or "" for k, v in row.items() if k != "hostname"} for row in rows})


def alert_policy(priors: Mapping[str, ClassPrior], cycle_s: float) -> AlertPolicy:
    """The thresholds of each class, as its prior has them."""
    return AlertPolicy(
        failure={name: prior.failure_p_7d for name, prior in priors.items()},
        degrading_p={name: prior.degrading_p for name, prior in priors.items()},
        cycle_s=cycle_s,
    )


def placement_of(settings: Settings, source: Source) -> Placement | None:
    """topology.csv of the settings, and for what it leaves open what the source knows. Raises SettingsError,
    SourceError."""
    path = settings.history.topology_file
    return placed(load_placement(path) if path else None, source)


def source_identity(settings: Settings) -> str:
    """Short hash that tells one history from another: a recording's own description, or a server and a selector.

    The same recording in another folder is the same history. Raises SettingsError if the recording cannot be read.
    """
    folder = settings.recorded.directory
    if folder is None:
        told = f"{settings.prometheus.url} {settings.prometheus.selector}".encode()
    else:
        try:
            told = (folder / "recording.json").read_bytes()
        except OSError as failure:
            raise SettingsError(f"recorded.directory = {folder}: {failure}; give a folder of `simulate`") from None
    return hashlib.sha256(told).hexdigest()[:16]


def recorded_until(source: Source) -> Callable[[], float | None]:
    """Asks a source for the end of its history; None as long as it does not answer, or has none."""

    def ask() -> float | None:
        try:
            span = source.span()
        except SourceError:
            return None
        return None if span is None else span[1]

    return ask


@contextmanager
def open_service(
    settings: Settings, replay: Replay | None = None, progress: Progress | None = None
) -> Iterator[tuple[Service, Application]]:
    """A wired service and its web application; the state directory is locked while it is open.

    Raises SettingsError, StoreError (directory taken, unwritable), SourceError (a recording that cannot be read).
    """
    step_s = settings.cycle.step_s
    directory = Path(settings.store.directory)
    documents = load_priors()
    with ExitStack() as stack:
        source = open_source(settings)
        stack.enter_context(StateLock(directory))
        priors = with_kept_thresholds(directory, class_priors(documents), source_identity(settings))
        journal = stack.enter_context(Journal(sqlite_url(directory)))
        self_metrics = SelfMetrics(reasons=REASONS)
        client = None
        if settings.alertmanager.url:
            session = stack.enter_context(build_session(settings.alertmanager))
            client = AlertmanagerClient(settings.alertmanager, session, step_s, self_metrics.alerts_sent)
        clock: Clock = LiveClock(step_s, settings.cycle.ingest_delay_s)
        if replay:
            clock = ReplayClock(replay.from_s, replay.speed, step_s, recorded_until(source))
        board = Board()
        page = MetricsPage(self_metrics.render)
        service = Service(
            settings=settings,
            source=source,
            placement=placement_of(settings, source),
            clock=clock,
            training=Training(
                make_scorer(documents, priors), Shelf(directory), settings.cycle.train_every_s, self_metrics
            ),
            ledger=Ledger(directory, definitions()),
            journal=journal,
            alerting=Alerting(alert_policy(priors, step_s), journal, client, settings.alertmanager.resend_s),
            board=board,
            page=page,
            self_metrics=self_metrics,
            progress=progress or Silent(),
            replaying=replay is not None,
        )
        yield service, build_app(board, page, step_s)
