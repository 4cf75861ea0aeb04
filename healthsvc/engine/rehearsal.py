"""The live engine over a stretch of the past: the same memory, scorer and alert stages, time as an argument."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts import AlertPolicy, AlertState, decide
from healthsvc.config import Settings
from healthsvc.engine.days import DayReader
from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.recall import recall
from healthsvc.engine.scoring import Scorer
from healthsvc.evaluation.alert_episodes import AlertEpisode, AlertRecorder, from_columns
from healthsvc.evaluation.auto_labels import HourlyDose, auto_labels
from healthsvc.evaluation.baselines import AlarmSpans, Baseline, episodes_of
from healthsvc.evaluation.labels import Label
from healthsvc.evaluation.places import places_of
from healthsvc.evaluation.precursors import with_precursors
from healthsvc.fleet import (
    CLASSES,
    HOUR_S,
    LIVENESS,
    DailyLedger,
    EventLog,
    FleetHistory,
    Floats,
    GpuId,
    OnsetBins,
    Placement,
    build_topology,
)
from healthsvc.forecasters.thermal_trend import excess_sigma
from healthsvc.telemetry.source import Source


@dataclass(frozen=True)
class RehearsalSpec:
    """How finely the past is walked. slow_s: thermal and memory (and at every new event); sample_s: P kept."""

    slow_s: float = 6 * HOUR_S
    baseline_s: float = HOUR_S
    sample_s: float = 6 * HOUR_S


@dataclass(frozen=True)
class Rehearsal:
    """What was said over (start_s, end_s].

    probability float32[sample, gpu, class, horizon]: P(T2 or worse) at samples_s; NaN = unknown, or not in the fleet.
    labels: those that were given, or what the telemetry itself shows (source auto), precursors filled in where this
    history can tell. observed_s: GPU-seconds judged.
    """

    window: tuple[float, float]
    gpus: tuple[GpuId, ...]
    alerts: tuple[AlertEpisode, ...]
    samples_s: NDArray[np.float64]
    probability: Floats
    baselines: Mapping[str, tuple[AlertEpisode, ...]]
    labels: tuple[Label, ...]
    observed_s: float


class _Unwritten:
    """Stands where the ledger stands live: a rehearsal reads it and never writes to it."""

    def write_day(
        self, day: int, daily: DailyLedger, events: EventLog, now_s: float, *, complete: bool, bins: OnsetBins
    ) -> None:
        """Nothing: the day is in the ledger already."""


def rehearse(
    source: Source,
    ledger: DayReader,
    settings: Settings,
    placement: Placement | None,
    scorer: Scorer,
    policy: AlertPolicy,
    window: tuple[float, float],
    baselines: Sequence[Baseline] = (),
    spec: RehearsalSpec | None = None,
    labels: Sequence[Label] | None = None,
    on_step: Callable[[float], None] = lambda now_s: None,
) -> Rehearsal:
    """Walk the window step by step as the service would have: read, score, decide, train daily. Raises SourceError.

    Everything at `now_s` comes from samples up to `now_s`: the source is asked for no later ones. The forecasters learn
    without labels, so retraining daily inside a test block leaks nothing.
    """
    spec = spec or RehearsalSpec()
    step_s, (start_s, end_s) = settings.cycle.step_s, window
    scorer = replace(scorer, refresh_s=spec.slow_s)
    memory = recall(source, ledger, start_s, settings, placement, lambda raw: None)
    everyone = _everyone(source, memory, window)
    recorder = AlertRecorder(places_of(everyone, build_topology(everyone, placement)))
    state, trained_s = scorer.train(memory.trusted()), start_s
    alerts, previous, dose = AlertState(), None, HourlyDose()
    samples: list[tuple[float, Floats]] = []
    flags: dict[str, list[tuple[float, NDArray[np.bool_]]]] = {baseline.name: [] for baseline in baselines}
    observed_s = 0.0
    for number in range(1, int((end_s - start_s) // step_s) + 1):
        now_s = start_s + number * step_s
        memory.advance(source, now_s, lambda raw: None)
        memory.finish_days(_Unwritten())
        if now_s - trained_s >= settings.cycle.train_every_s:
            state, trained_s = scorer.train(memory.trusted()), now_s
        history = memory.history()
        previous = scorer.score(state, history, previous, trained_s)
        decision = decide(alerts, previous.report, now_s, policy)
        alerts = decision.state
        recorder.record(now_s, decision, previous.report)
        if labels is None:
            dose = dose.add(history.recent)
        observed_s += float(history.recent.columns(slice(-1, None)).alive(LIVENESS).sum()) * step_s
        rows = memory.roster.rows_of(everyone)
        if now_s % spec.sample_s == 0:
            samples.append((now_s, _aligned(previous.report.probability[:, :, 0], rows)))
        if now_s % spec.baseline_s == 0:
            for baseline in baselines:
                alarms = baseline.alarms(history)
                flags[baseline.name].append((now_s, (rows >= 0)[:, None] & alarms[np.maximum(rows, 0)]))
        on_step(now_s)
    # Baselines rest as long as our own alerts do, or their false alerts would count more often.
    spans = {
        name: baseline_episodes(name, episodes_of(steps, cooldown_s=policy.class_cooldown_s), everyone)
        for name, steps in flags.items()
    }
    shape = (0, len(everyone), len(CLASSES), 3)
    return Rehearsal(
        window,
        everyone,
        recorder.episodes(),
        np.array([at_s for at_s, _ in samples]),
        np.stack([p for _, p in samples]) if samples else np.zeros(shape, np.float32),
        spans,
        completed(memory.history(), auto_labels(memory.history(), dose, end_s) if labels is None else labels),
        observed_s,
    )


def completed(history: FleetHistory, labels: Sequence[Label]) -> tuple[Label, ...]:
    """The labels with their precursors, from everything that the history holds; see `evaluation.precursors`."""
    node = history.topology.group("node", len(history.gpus))
    ids = [gpu.device_id for gpu in history.gpus]
    return with_precursors(labels, ids, history.events, history.daily.days, excess_sigma(history.daily, node))


def _everyone(source: Source, memory: FleetMemory, window: tuple[float, float]) -> tuple[GpuId, ...]:
    """Every GPU that is in the fleet at any time of the window, known ones first."""
    known = {gpu.device_id for gpu in memory.gpus}
    return (*memory.gpus, *(gpu for gpu in source.discover(*window) if gpu.device_id not in known))


def _aligned(values: Floats, rows: NDArray[np.intp]) -> Floats:
    taken: Floats = np.where((rows >= 0)[:, None, None], values[np.maximum(rows, 0)], np.nan).astype(np.float32)
    return taken


def baseline_episodes(name: str, spans: AlarmSpans, gpus: Sequence[GpuId]) -> tuple[AlertEpisode, ...]:
    """A baseline's spans as the alert episodes that ours are judged with."""
    return from_columns(gpus, spans.row, spans.failure_class, spans.raised_s, spans.cleared_s, reason=name)
