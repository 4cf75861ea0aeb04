"""A look at a source: who answers, what it has, what the forecasters lack, and how to get it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.counters import lines_for
from healthsvc.engine.survey import Reader, readiness, reporting, survey_of
from healthsvc.fleet import DAY_S, LIVENESS, GpuId, Signal
from healthsvc.fleet.boards import beyond_board
from healthsvc.fleet.survey import ForecasterFacts, SignalFacts, Survey
from healthsvc.guidance import duration
from healthsvc.telemetry.framing.grid import uniform_times
from healthsvc.telemetry.server.census import GENERATIONS, Exporter, Inspectable, ServerFacts
from healthsvc.telemetry.source import RawGrid, Source

CLOCK_OFF_S = 60.0
MISSING_RATIO = 0.1  # of the expected samples, from which it is told
OLD_S = 600.0  # of a newest sample that is none of now; and how long a GPU that answered before may be silent
KNOWN_FOR_S = 7 * DAY_S  # whoever answered within that time is expected to answer
MOST_NAMED = 3
# Reasons that tell of a fault. A sensor that is not there and a blank are how exporters say that there is nothing.
USUAL_REASONS = frozenset({"no_sensor", "blank"})


@dataclass(frozen=True)
class GpuKind:
    """GPUs that are alike."""

    model: str
    exporter: str
    driver: str
    gpus: int


@dataclass(frozen=True)
class Finding:
    """What is wrong, in one sentence. urgent: a forecaster is starved, or an answer cannot be trusted."""

    urgent: bool
    text: str


@dataclass(frozen=True)
class Checkup:
    """Everything that was found. server: None for a source that is none; history: first and last moment with samples.

    notes: what nobody can mend. enable: exporter generation -> what to add to its configuration.
    """

    source: str
    server: ServerFacts | None
    history: tuple[float, float] | None
    kinds: tuple[GpuKind, ...]
    survey: Survey
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    enable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def check_up(
    source: Source, readers: Sequence[Reader], end_s: float, window_s: float, step_s: float, now_s: float | None = None
) -> Checkup:
    """Look at the window that ends at `end_s`. now_s: the time at which the source should still answer; None where its
    history has ended, or where the past is asked for. Raises SourceError."""
    history = source.span()
    times_s = uniform_times(end_s - window_s, end_s, step_s)
    raw = source.read(times_s, step_s=step_s)
    known = source.discover(end_s - KNOWN_FOR_S, end_s)
    server, census, first_s = None, dict[str, Exporter](), dict[str, float]()
    if isinstance(source, Inspectable):
        server = source.about()
        census = dict(source.census(end_s - window_s, end_s))
        begin_s = history[0] if history else end_s - window_s
        first_s = dict(source.first_seen([reading.metric for reading in raw.readings], begin_s, end_s))
    survey = survey_of(raw, readers, step_s, first_s)
    return Checkup(
        source.name,
        server,
        history,
        kinds_of(raw.gpus, census),
        survey,
        tuple(
            sorted(
                (*_of_age(end_s, now_s), *_of_silence(raw, known), *_findings(survey, server)),
                key=lambda finding: not finding.urgent,
            )
        ),
        tuple(_notes(survey)),
        what_to_enable(raw, readers, survey, census) if census else {},
    )


def kinds_of(gpus: Sequence[GpuId], census: Mapping[str, Exporter]) -> tuple[GpuKind, ...]:
    """The fleet by model, exporter generation and driver, most GPUs first."""
    unknown = Exporter()
    told = [(gpu.product, census.get(gpu.device_id, unknown)) for gpu in gpus]
    counts = Counter((model, exporter.generation, exporter.driver) for model, exporter in told)
    return tuple(GpuKind(*kind, count) for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def what_to_enable(
    raw: RawGrid, readers: Sequence[Reader], survey: Survey, census: Mapping[str, Exporter]
) -> dict[str, tuple[str, ...]]:
    """Exporter generation -> what brings the signals that the forecasters lack on its GPUs."""
    ever = frozenset(facts.signal for facts in survey.signals if facts.count or facts.since_s is not None)
    wanted: dict[str, tuple[str, ...]] = {}
    for generation in GENERATIONS:
        rows = [i for i, gpu in enumerate(raw.gpus) if census.get(gpu.device_id, Exporter()).generation == generation]
        if not rows:
            continue
        gpus = [raw.gpus[i] for i in rows]
        seen = {signal: reporting(values[rows]) for signal, values in raw.values.items()}
        wished = lacking(readiness(readers, gpus, seen, ever))
        lines = lines_for(generation, [signal for signal in wished if may_come(signal, gpus, seen)])
        if lines:
            wanted[generation] = lines
    return wanted


def may_come(signal: Signal, gpus: Sequence[GpuId], seen: Mapping[Signal, NDArray[np.bool_]]) -> bool:
    """Whether there is a GPU without the signal whose board could report it."""
    here = seen.get(signal)
    without = [gpu for row, gpu in enumerate(gpus) if here is None or not here[row]]
    return any(signal not in beyond_board(product) for product in {gpu.product for gpu in without})


def lacking(forecasters: Iterable[ForecasterFacts]) -> frozenset[Signal]:
    """Every signal that would help a forecaster on a GPU that can report it."""
    signals: set[Signal] = set()
    for facts in forecasters:
        signals |= facts.degraded_by.keys()
        if facts.starved > facts.beyond_board:
            signals |= {signal for group in facts.starved_by for signal in group}
    return frozenset(signals)


def _of_age(end_s: float, now_s: float | None) -> Iterable[Finding]:
    """Telemetry that has died looks as well as it did in its last hours."""
    if now_s is not None and now_s - end_s > OLD_S:
        yield Finding(
            True, f"the newest sample is {duration(now_s - end_s)} old: see whether the exporters are scraped"
        )


def _of_silence(raw: RawGrid, known: Sequence[GpuId]) -> Iterable[Finding]:
    """GPUs that answered lately and do not now."""
    newest = raw.times_s > raw.times_s[-1] - OLD_S
    values = [grid[:, newest] for signal, grid in raw.values.items() if signal in LIVENESS]
    alive = np.logical_or.reduce([np.zeros(len(raw.gpus), bool), *((~np.isnan(grid)).any(axis=1) for grid in values)])
    there = {gpu.device_id for gpu, answers in zip(raw.gpus, alive.tolist(), strict=True) if answers}
    silent = [gpu for gpu in known if gpu.device_id not in there]
    if silent and there:
        names = ", ".join(
            f"{gpu.hostname}/{gpu.index}" if gpu.hostname else gpu.device_id for gpu in silent[:MOST_NAMED]
        )
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        of = f"{len(silent)} of {len(known)} GPUs of the last 7 days"
        yield Finding(True, f"{of} gave no sample in the last {duration(OLD_S)}: {names}{more}")


def _findings(survey: Survey, server: ServerFacts | None) -> Iterable[Finding]:
    total = survey.gpus
    if not total:
        yield Finding(True, "no GPU has a sample here: check the URL, the selector and the time")
        return
    for facts in survey.forecasters:
        if facts.starved > facts.beyond_board:
            yield Finding(True, f"{facts.name} is starved on {facts.starved} of {total} GPUs: {_starved_by(facts)}")
    for warning in survey.warnings:
        yield Finding(survey.incomplete, f"the source warns: {warning}")
    for signal in survey.signals:
        for metric in signal.metrics:
            if metric.conflict:
                yield Finding(False, f"{metric.metric} is not what its name says: {metric.why} ({metric.gpus} GPUs)")
    if server is not None and abs(server.ahead_s) > CLOCK_OFF_S:
        yield Finding(True, f"the server's clock is off by {server.ahead_s:+.0f} s: set both by NTP")
    for facts in survey.forecasters:
        if facts.degraded:
            lacks = ", ".join(counted([signal.value], n, facts.degraded) for signal, n in facts.degraded_by.items())
            yield Finding(False, f"{facts.name} is degraded on {facts.degraded} of {total} GPUs: no {lacks}")
    for signal in survey.signals:
        yield from _of_signal(signal)


def _of_signal(facts: SignalFacts) -> Iterable[Finding]:
    wrong = {reason: count for reason, count in facts.rejected.items() if reason not in USUAL_REASONS}
    if wrong:
        told = ", ".join(f"{count:,} {reason}" for reason, count in wrong.items())
        yield Finding(False, f"{facts.signal.value}: samples rejected: {told}")
    if facts.missing_ratio is not None and facts.missing_ratio > MISSING_RATIO:
        yield Finding(False, f"{facts.signal.value}: {100 * facts.missing_ratio:.0f} % of the samples are missing")


def _starved_by(facts: ForecasterFacts) -> str:
    """In words: what is missing on how many GPUs, the number left out where it is all of them."""
    groups = []
    for group, count in facts.starved_by.items():
        none = "no " if len(group) == 1 else "none of "
        groups.append(none + counted([signal.value for signal in group], count, facts.starved))
    return "; ".join(groups)


def counted(names: Sequence[str], count: int, of: int) -> str:
    """The names, and how many GPUs lack them where that is not all of those spoken of."""
    told = ", ".join(names)
    return told if count == of else f"{told} ({count})"


def _notes(survey: Survey) -> Iterable[str]:
    for facts in survey.forecasters:
        if facts.beyond_board:
            whose = f"{facts.beyond_board} of {survey.gpus} GPUs"
            yield f"{facts.name} cannot speak for {whose}: such boards do not report what it needs (a vGPU's host does)"
    if survey.gpus and survey.of(Signal.INLET) is None:
        yield "no inlet temperature: the peers of each node stand in for it"


def whole(at_s: float, step_s: float) -> float:
    """The step that has ended at `at_s`."""
    return float(np.floor(at_s / step_s) * step_s)
