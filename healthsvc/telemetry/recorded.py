"""A recording on disk as a source: what a server once held, or what a simulator wrote.

recording.json            format, step_s, start_s, end_s (the first and last sample)
gpus.csv, topology.csv    who they are, where they stand; row i of gpus.csv is `gpu` = i below
telemetry/YYYY-MM-DD.parquet      gpu, time_s, and a column a signal; a row only where the GPU answered
environment/YYYY-MM-DD.parquet    layer, name, time_s, and a column a signal
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from healthsvc.fleet import (
    DAY_S,
    ENVIRONMENT,
    GPU_SIGNALS,
    LAYERS,
    GpuId,
    Placement,
    PlaceSeries,
    Signal,
    day_name,
    join_places,
)
from healthsvc.telemetry.framing.grid import step_of
from healthsvc.telemetry.source import RawGrid, SourceError

FORMAT_VERSION = 1
GPU_COLUMNS = tuple(field.name for field in fields(GpuId))
DAYS_KEPT = 2  # a window of some hours touches two days at most, and replay asks for the same ones again and again
CURE = "Write it anew with `healthsvc simulate`, or give another folder"


def day_file(folder: Path, day: int) -> Path:
    """The file of one UTC day, given in days since 1970-01-01."""
    return folder / f"{day_name(day)}.parquet"


@dataclass(frozen=True)
class _Day:
    """One day in memory: times_s [time]; values [gpu, time]; places {signal: PlaceSeries on the same times}."""

    times_s: NDArray[np.float64]
    values: Mapping[Signal, NDArray[Any]]
    places: Mapping[Signal, PlaceSeries]


class RecordedSource:
    """Implements `Source` over a folder. Keeps the days read last; not for use from several threads at once."""

    def __init__(self, directory: Path) -> None:
        """Reads the folder's small files. Raises SourceError if it is no recording, or not one of this version."""
        self.directory = directory
        self.name = f"recording {directory.name}"
        if not directory.is_dir():
            raise self._broken(directory, "no such folder")
        about = self._about()
        self._span = (float(about["start_s"]), float(about["end_s"]))
        self.step_s = float(about["step_s"])
        self.labels_end: str | None = about.get("labels_end")  # how far beyond the telemetry incidents.csv is complete
        self.gpus = tuple(GpuId(**{c: row.get(c, "") for c in GPU_COLUMNS}) for row in self._table("gpus.csv"))
        if not self.gpus or not all(gpu.device_id for gpu in self.gpus):
            raise self._broken(directory / "gpus.csv", "no GPU in it, or one without device_id")
        self._rows = {gpu.device_id: row for row, gpu in enumerate(self.gpus)}
        self._days: dict[int, _Day] = {}
        self._placement: Placement | None = None

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        """Every GPU with a sample in [start, end]. Raises SourceError."""
        seen = np.zeros(len(self.gpus), bool)
        for day in self._days_in(start_s, end_s):
            path = day_file(self.directory / "telemetry", day)
            if path.exists() and not seen.all():
                table = self._parquet(path, ["gpu", "time_s"])
                time_s, gpu = self._numbers(table, "time_s", path, "iu"), self._gpu_column(table, path)
                seen[gpu[(time_s >= start_s) & (time_s <= end_s)]] = True
        return tuple(gpu for gpu, present in zip(self.gpus, seen, strict=True) if present)

    def placement(self) -> Placement | None:
        """topology.csv, if there is one; further columns are kept. Read once. Raises SourceError."""
        if self._placement is None:
            self._placement = self._read_placement()
        return self._placement

    def _read_placement(self) -> Placement | None:
        if not (self.directory / "topology.csv").exists():
            return None
        places = {}
        for row in self._table("topology.csv"):
            hostname = row.pop("hostname", "")
            if not hostname:
                raise self._broken(self.directory / "topology.csv", "a row without hostname")
            places[hostname] = MappingProxyType({k: v for k, v in row.items() if v})
        return Placement(MappingProxyType(places))

    def span(self) -> tuple[float, float]:
        """First and last sample of the recording."""
        return self._span

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        """Samples on the grid `times_s` for `gpus` (one that is not in the recording is all NaN), or for every GPU that
        has any there; environment of all places. A column is the last sample in (t - step, t]. Raises SourceError.
        """
        step_s = step_of(times_s, step_s, self.step_s)
        parts: list[tuple[_Day, slice]] = []
        if len(times_s):
            for number in self._days_in(times_s[0] - step_s, times_s[-1]):
                day = self._day(number)
                first, last = np.searchsorted(day.times_s, (times_s[0] - step_s, times_s[-1]), side="right")
                if last > first:
                    parts.append((day, slice(int(first), int(last))))
        recorded_s = np.concatenate([day.times_s[part] for day, part in parts]) if parts else np.zeros(0)
        grid = _Grid(recorded_s, times_s, step_s)
        wanted = self.gpus if gpus is None else tuple(gpus)
        rows = np.array([self._rows.get(gpu.device_id, -1) for gpu in wanted], np.intp)
        values = {}
        for signal in sorted({s for day, _ in parts for s in day.values}):
            found = [day.values[signal][:, part] if signal in day.values else None for day, part in parts]
            values[signal] = grid.lay(_joined(found, parts, len(self.gpus)), rows)
        if gpus is None:
            wanted, values = _present(wanted, values)
        samples = sum(int(np.count_nonzero(~np.isnan(array))) for array in values.values())
        return RawGrid(wanted, times_s, MappingProxyType(values), self._environment(parts, grid), samples)

    def _environment(self, parts: list[tuple[_Day, slice]], grid: "_Grid") -> Mapping[Signal, PlaceSeries]:
        stretches = [
            ({s: replace(p, values=p.values[:, part]) for s, p in day.places.items()}, part.stop - part.start)
            for day, part in parts
        ]
        places = {}
        for signal, series in join_places(stretches).items():
            laid = grid.lay(series.values, np.arange(len(series.names)))
            places[signal] = replace(series, values=laid.astype(np.float32))
        return MappingProxyType(places)

    def _days_in(self, start_s: float, end_s: float) -> Iterator[int]:
        first, last = max(start_s, self._span[0]), min(end_s, self._span[1])
        yield from range(int(first // DAY_S), int(last // DAY_S) + 1) if first <= last else ()

    def _day(self, number: int) -> _Day:
        if number not in self._days:
            while len(self._days) >= DAYS_KEPT:
                self._days.pop(next(iter(self._days)))
            self._days[number] = self._load(number)
        self._days[number] = self._days.pop(number)  # used last, dropped last
        return self._days[number]

    def _load(self, number: int) -> _Day:
        path = day_file(self.directory / "telemetry", number)
        if not path.exists():
            return _Day(np.zeros(0), {}, {})
        table = self._parquet(path)
        gpu = self._gpu_column(table, path)
        times_s, column = np.unique(self._numbers(table, "time_s", path, "iu"), return_inverse=True)
        shape = (len(self.gpus), len(times_s))
        values = {}
        for signal in GPU_SIGNALS:
            if signal.value in table.column_names:
                values[signal] = _spread(self._numbers(table, signal.value, path), gpu, column, shape)
        return _Day(times_s.astype(np.float64), values, self._load_places(number, times_s))

    def _load_places(self, number: int, times_s: NDArray[Any]) -> Mapping[Signal, PlaceSeries]:
        path = day_file(self.directory / "environment", number)
        if not path.exists() or not len(times_s):
            return {}
        table = self._parquet(path)
        places = {}
        layers = np.array(self._column(table, "layer", path).to_pylist())
        all_names = np.array(self._column(table, "name", path).to_pylist())
        at_s = self._numbers(table, "time_s", path, "iu")
        for layer in sorted(set(layers.tolist()) & set(LAYERS)):
            here = layers == layer
            names, row = np.unique(all_names[here], return_inverse=True)
            # A place is read at the GPUs' moments: its last sample up to each of them.
            column = np.searchsorted(times_s, at_s[here])
            inside = column < len(times_s)
            for signal in sorted(ENVIRONMENT & set(table.column_names)):
                samples = self._numbers(table, signal, path)[here]
                known = inside & ~np.isnan(samples)
                if known.any():
                    shape = (len(names), len(times_s))
                    spread = _spread(samples[known].astype(np.float32), row[known], column[known], shape)
                    places[Signal(signal)] = PlaceSeries(layer, tuple(names.tolist()), spread)
        return places

    def _about(self) -> dict[str, Any]:
        path = self.directory / "recording.json"
        try:
            about = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise self._broken(path, "missing, so this is no recording, or half of one") from None
        except (OSError, ValueError) as failure:
            raise self._broken(path, f"cannot be read: {failure}") from None
        if not isinstance(about, dict) or about.get("format") != FORMAT_VERSION:
            found = about.get("format") if isinstance(about, dict) else about
            raise self._broken(path, f"format = {found!r}, and this version reads {FORMAT_VERSION}")
        for key in ("start_s", "end_s", "step_s"):
            if not isinstance(about.get(key), int | float):
                raise self._broken(path, f"{key} = {about.get(key)!r}, and should be a number of seconds")
        return about

    def _table(self, name: str) -> list[dict[str, str]]:
        path = self.directory / name
        try:
            with path.open(encoding="utf-8", newline="") as file:
                return [{k: v or "" for k, v in row.items() if k} for row in csv.DictReader(file)]
        except FileNotFoundError:
            raise self._broken(path, "missing") from None
        except (OSError, ValueError, csv.Error) as failure:
            raise self._broken(path, f"cannot be read: {failure}") from None

    def _parquet(self, path: Path, columns: list[str] | None = None) -> pa.Table:
        try:
            return pq.read_table(path, columns=columns, partitioning=None)
        except (OSError, pa.ArrowException) as failure:
            raise self._broken(path, f"cannot be read: {failure}") from None

    def _column(self, table: pa.Table, name: str, path: Path) -> pa.ChunkedArray:
        if name not in table.column_names:
            raise self._broken(path, f"has no column {name}")
        return table[name]

    def _numbers(self, table: pa.Table, name: str, path: Path, kinds: str = "iuf") -> NDArray[Any]:
        column: NDArray[Any] = self._column(table, name, path).to_numpy()
        if column.dtype.kind not in kinds:
            raise self._broken(path, f"column {name} is {column.dtype}, and should be numbers without gaps")
        return column

    def _gpu_column(self, table: pa.Table, path: Path) -> NDArray[np.int32]:
        gpu = self._numbers(table, "gpu", path, "iu")
        if len(gpu) and (gpu.min() < 0 or gpu.max() >= len(self.gpus)):
            raise self._broken(path, f"gpu = {gpu.max()}, and gpus.csv has {len(self.gpus)} rows")
        return gpu

    def _broken(self, path: Path, what: str) -> SourceError:
        return SourceError(str(path), what, CURE, permanent=True)


class _Grid:
    """Lays recorded moments onto a grid: which recorded columns each grid column may take, newest first."""

    def __init__(self, recorded_s: NDArray[np.float64], times_s: NDArray[np.float64], step_s: float) -> None:
        self.newest = np.searchsorted(recorded_s, times_s, side="right") - 1
        self.oldest = np.searchsorted(recorded_s, times_s - step_s, side="right")
        self.depth = int((self.newest - self.oldest).max(initial=-1)) + 1
        self.whole = len(times_s) == len(recorded_s) and bool((self.newest == np.arange(len(times_s))).all())

    def lay(self, values: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """float64[row, grid] from values [gpu, recorded]; row -1 is all NaN."""
        known = rows >= 0
        chosen = values if len(rows) == len(values) and (rows == np.arange(len(rows))).all() else values[rows]
        if self.whole and self.depth == 1:
            laid = chosen.astype(np.float64)
        else:
            laid = np.full((len(rows), len(self.newest)), np.nan)
            for back in range(self.depth):
                column = self.newest - back
                open_columns = np.flatnonzero(column >= self.oldest)
                missing = np.isnan(laid[:, open_columns])
                if back and not missing.any():
                    break
                laid[:, open_columns] = np.where(missing, chosen[:, column[open_columns]], laid[:, open_columns])
        if not known.all():
            laid[~known] = np.nan
        return laid


def _spread(samples: NDArray[Any], row: NDArray[Any], column: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Samples as an array [row, column], NaN where there is none."""
    kind = samples.dtype if samples.dtype in (np.float32, np.float64) else np.float64
    full = np.full(shape, np.nan, kind)
    full[row, column] = samples
    return full


def _joined(found: list[Any], parts: list[tuple[_Day, slice]], rows: int) -> NDArray[Any]:
    """Pieces of several days side by side; NaN where a day has none."""
    pieces = [
        piece if piece is not None else np.full((rows, part.stop - part.start), np.nan, np.float32)
        for piece, (_, part) in zip(found, parts, strict=True)
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)


def _present(
    gpus: tuple[GpuId, ...], values: dict[Signal, NDArray[np.float64]]
) -> tuple[tuple[GpuId, ...], dict[Signal, NDArray[np.float64]]]:
    """Only the GPUs that have a sample of anything."""
    seen = np.zeros(len(gpus), bool)
    for array in values.values():
        if seen.all():
            return gpus, values
        seen |= ~np.isnan(array).all(axis=1)
    if seen.all():
        return gpus, values
    kept = tuple(gpu for gpu, present in zip(gpus, seen, strict=True) if present)
    return kept, {signal: array[seen] for signal, array in values.items()}
