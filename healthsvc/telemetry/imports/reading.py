"""Files in, a recording out: each file is read as what it is, all are framed by the one framer, day by day."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from healthsvc.fleet import DAY_S, GpuId
from healthsvc.telemetry.catalogue import ENVIRONMENT_ROWS, GPU_ROWS, EnvironmentRow, Row, rows_in
from healthsvc.telemetry.catalogue.rows import predicate
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.framing.read_memory import ReadMemory
from healthsvc.telemetry.identity.labels import gpu_id
from healthsvc.telemetry.imports import nvidia_smi, openmetrics
from healthsvc.telemetry.imports.gather import MOST_CELLS, Gatherer, TooLargeError
from healthsvc.telemetry.imports.nvidia_smi import Dialect, Tally
from healthsvc.telemetry.imports.text import ImportFileError, blocks
from healthsvc.telemetry.recording import NothingRecordedError, RecordingWriter
from healthsvc.telemetry.source import RawGrid

MOST_GPUS = 200_000
_GPU_ROWS = {row.metric: [other for other in GPU_ROWS if other.metric == row.metric] for row in GPU_ROWS}
_AS_WRITTEN = {metric.lower(): metric for metric in _GPU_ROWS}  # some pipelines write all names in small letters
WANTED = frozenset({*_GPU_ROWS, *_AS_WRITTEN, *(row.metric for row in ENVIRONMENT_ROWS)})


@dataclass(frozen=True)
class ImportSpec:
    """How to import.

    step_s: width of a column of the recording, whole seconds. zone: of log times that name none. host: of logs without
    a UUID, whose GPUs are otherwise told apart by file. columns: the fields of CSV logs without a header. most_samples:
    kept at once. now_s: later samples come from a clock that is ahead.
    """

    step_s: float = 60.0
    zone: str = "UTC"
    host: str = ""
    columns: tuple[str, ...] = ()
    most_samples: int = MOST_CELLS
    now_s: float = np.inf


@dataclass(frozen=True)
class FileReport:
    """What one file gave. samples: of signals that we know; note: why it gave none, or what is to be known of it."""

    path: Path
    kind: str
    rows: int
    samples: int
    note: str


@dataclass(frozen=True)
class Imported:
    """What was imported. signals: signal -> GPUs; rejected: (what, reason) -> samples, rows or cells."""

    folder: Path
    files: tuple[FileReport, ...]
    gpus: tuple[GpuId, ...]
    start_s: float
    end_s: float
    step_s: float
    signals: dict[str, int] = field(default_factory=dict)
    rejected: dict[tuple[str, str], int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def import_files(
    files: Sequence[Path], out: Path, spec: ImportSpec, progress: Callable[[float], None] = lambda share: None
) -> Imported:
    """Read `files` and write the recording `out`, which appears only when it is whole.

    Raises ImportFileError (nothing to import, too much of it, a broken file), OSError, FileExistsError.
    """
    gatherer, tallies = Gatherer(spec.step_s, owner_of, spec.most_samples), list[Tally]()
    sizes = [max(path.stat().st_size, 1) for path in files]
    names, done, reports = short_names(files), 0, []
    for path, size in zip(files, sizes, strict=True):

        def told(read: int, before: int = done) -> None:
            progress(min((before + read) / sum(sizes), 1.0))

        tally, before = Tally(), gatherer.samples
        try:
            for metric, samples in _read(
                blocks(path, told), Dialect(names[path], spec.zone, spec.host, spec.columns), tally
            ):
                gatherer.add(metric, samples)
        except TooLargeError as failure:
            raise ImportFileError(f"{path}: {failure}; import fewer files at a time, or with a longer --step") from None
        done += size
        given = gatherer.samples - before
        note = tally.note or ("" if given else _why_nothing(tally))
        reports.append(FileReport(path, tally.kind or "unknown", tally.rows, given, note))
        tallies.append(tally)
    if not gatherer.gpus:
        told_of = "; ".join(f"{report.path.name}: {report.note}" for report in reports[:3] if report.note)
        raise ImportFileError(
            f"no GPU sample in {len(files)} file(s); {told_of or 'give nvidia-smi or OpenMetrics logs'}"
        )
    if len(gatherer.gpus) > MOST_GPUS:
        raise ImportFileError(f"{len(gatherer.gpus):,} GPUs; at most {MOST_GPUS:,} can be imported at a time")
    rejected = _rejected(tallies)
    try:
        rejected["sample", "malformed"] += gatherer.senseless
        return _write(gatherer, out, spec, reports, tallies, rejected)
    except NothingRecordedError:
        told_of = ", ".join(f"{count:,} {what} {reason}" for (what, reason), count in rejected.items() if count)
        raise ImportFileError(f"every sample was rejected: {told_of}; check the times, and --timezone") from None


def _read(text: Iterator[str], dialect: Dialect, tally: Tally) -> Iterator[tuple[str, Samples]]:
    first = next(text, "")
    text = chain([first], text)
    if openmetrics.is_dump(first) and not nvidia_smi.is_log(first) and not dialect.columns:
        yield from openmetrics.read_dump(text, WANTED, tally)
    else:
        yield from nvidia_smi.read_log(text, dialect, WANTED, tally)


def owner_of(metric: str, labels: Mapping[str, str]) -> GpuId | None:
    """The GPU of a series, None where no row of the catalogue reads it as one of a GPU."""
    rows = _GPU_ROWS.get(metric) or _GPU_ROWS.get(_AS_WRITTEN.get(metric, ""), [])
    return gpu_id(labels) if any(predicate(row.matcher)(labels) for row in rows) else None


def _why_nothing(tally: Tally) -> str:
    if not tally.kind:
        return "neither an nvidia-smi log with a header nor OpenMetrics text; --columns names the fields of the former"
    if tally.rows:
        return "no column of a signal"
    return "no row with a time"


def short_names(files: Sequence[Path]) -> dict[Path, str]:
    """A name for each file: the shortest end of its path, without suffixes, that no other file has."""
    parts = {path: [*path.resolve().parts[1:-1], path.name.split(".")[0] or path.name] for path in files}
    names: dict[Path, str] = {}
    for path, own in parts.items():
        others = [p for other, p in parts.items() if other.resolve() != path.resolve()]
        length = next((n for n in range(1, len(own) + 1) if all(p[-n:] != own[-n:] for p in others)), len(own))
        names[path] = "/".join(own[-length:])
    return names


def _write(
    gatherer: Gatherer,
    out: Path,
    spec: ImportSpec,
    reports: list[FileReport],
    tallies: list[Tally],
    rejected: Counter[tuple[str, str]],
) -> Imported:
    """Frame day by day, and add to `rejected` what that rejects."""
    gpus = tuple(gatherer.gpus[device] for device in sorted(gatherer.gpus))
    reporting: dict[str, set[int]] = {}
    start_s, end_s, memory = np.inf, -np.inf, ReadMemory()
    about = {"imported": [report.path.name for report in reports if report.samples]}
    environment = [row for row in ENVIRONMENT_ROWS if row.metric in gatherer.metrics]
    rows: tuple[Row | EnvironmentRow, ...] = (*rows_in(gatherer.metrics), *environment)
    with RecordingWriter(out, gpus, spec.step_s, about) as writer:
        for day, samples in gatherer.days():
            grid = _frame(day, samples, rows, gpus, spec, memory)
            for (signal, reason), count in grid.rejected.items():
                rejected[signal.value, reason] += count
            for signal, values in grid.values.items():
                heard = np.flatnonzero(~np.isnan(values).all(axis=1)).tolist()
                reporting.setdefault(signal.value, set()).update(heard)
            if writer.add_day(grid):
                start_s, end_s = min(start_s, float(grid.times_s[0])), max(end_s, float(grid.times_s[-1]))
    rejected["sample", "duplicate_time"] += gatherer.duplicates
    counts = {signal: len(heard) for signal, heard in sorted(reporting.items()) if heard}
    unused = tuple(sorted(set().union(*(tally.unused for tally in tallies))))
    return Imported(
        out, tuple(reports), gpus, start_s, end_s, spec.step_s, counts, {k: n for k, n in rejected.items() if n}, unused
    )


def _rejected(tallies: Sequence[Tally]) -> Counter[tuple[str, str]]:
    """(signal or "row", reason) -> how many, over all files."""
    signal_of = {row.metric: row.signal.value for row in GPU_ROWS}
    total: Counter[tuple[str, str]] = Counter()
    for tally in tallies:
        for (what, reason), count in tally.rejected.items():
            total[signal_of.get(what, what), reason] += count
    return total


def _frame(
    day: int,
    samples: Mapping[str, Samples],
    rows: Sequence[Row | EnvironmentRow],
    gpus: tuple[GpuId, ...],
    spec: ImportSpec,
    memory: ReadMemory,
) -> RawGrid:
    """One day's grid, from its first sample to its last."""
    step_s = spec.step_s
    first_s = min(float(each.times_s.min()) for each in samples.values())
    last_s = max(float(each.times_s.max()) for each in samples.values())
    begin = max(np.ceil(first_s / step_s), np.ceil(day * DAY_S / step_s))
    times_s = np.arange(begin, np.ceil(last_s / step_s) + 1) * step_s
    framer = Framer(gpus, times_s, step_s, memory, spec.now_s)
    for row in rows:
        if row.metric in samples:
            framer.take(row, samples[row.metric])
    return framer.grid(sum(len(each.values) for each in samples.values()), ())
