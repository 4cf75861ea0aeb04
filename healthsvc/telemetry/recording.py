"""Writes a recording from windows of samples, a day at a time; `recorded.py` reads it and has the format.

The simulator writes its own, because it stands below telemetry; a test reads both with the same source.
"""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from healthsvc.fleet import COUNTERS, DAY_S, GpuId, PlaceSeries, Signal, rfc3339
from healthsvc.telemetry.recorded import FORMAT_VERSION, GPU_COLUMNS, day_file
from healthsvc.telemetry.source import RawGrid


class NothingRecordedError(ValueError):
    """No sample was given to be recorded."""


class RecordingWriter:
    """A context that writes a recording into `folder`, which appears only when all went well.

    gpus: every GPU of the recording; row i is `gpu` = i. about: further entries of recording.json. Times are kept in
    whole seconds. Raises FileExistsError if `folder` has something in it, and NothingRecordedError at the end if there
    was no sample.
    """

    def __init__(self, folder: Path, gpus: Sequence[GpuId], step_s: float, about: Mapping[str, Any]) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder}: not empty; give a new folder, or remove this one first")
        self.folder, self._gpus, self._step_s, self._about = folder, tuple(gpus), step_s, dict(about)
        self._row_of = {gpu.device_id: row for row, gpu in enumerate(self._gpus)}
        self._start_s, self._end_s = np.inf, -np.inf

    def __enter__(self) -> "RecordingWriter":
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._part = Path(tempfile.mkdtemp(prefix=f".{self.folder.name}.partial-", dir=self.folder.parent))
        self._part.chmod(0o755)
        (self._part / "telemetry").mkdir()
        (self._part / "environment").mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
                os.replace(self._part, self.folder)
        finally:
            shutil.rmtree(self._part, ignore_errors=True)

    def add_day(self, grid: RawGrid) -> int:
        """One UTC day of samples, all of whose columns lie in it. How many rows were written: none for silent GPUs."""
        columns = {s: v for s, v in grid.values.items() if not np.isnan(v).all()}
        if not columns:
            return 0
        seen = np.logical_or.reduce([~np.isnan(values) for values in columns.values()])
        row, column = np.nonzero(seen)
        rows = np.array([self._row_of[gpu.device_id] for gpu in grid.gpus], np.int32)
        table = {
            "gpu": pa.array(rows[row]),
            "time_s": pa.array(grid.times_s[column].astype(np.int64)),
        }
        for signal in sorted(columns):
            kind = np.float64 if signal in COUNTERS else np.float32
            table[signal.value] = pa.array(columns[signal][seen].astype(kind))
        day = int(grid.times_s[0] // DAY_S)
        pq.write_table(pa.table(table), day_file(self._part / "telemetry", day), compression="zstd")
        self._write_places(day, grid.environment, grid.times_s)
        heard_s = grid.times_s[seen.any(axis=0)]
        self._start_s, self._end_s = min(self._start_s, heard_s[0]), max(self._end_s, heard_s[-1])
        return len(row)

    def _write_places(self, day: int, environment: Mapping[Signal, PlaceSeries], times_s: Any) -> None:
        parts = []
        for signal in sorted(environment):
            places = environment[signal]
            row, column = np.nonzero(~np.isnan(places.values))
            parts.append(
                pa.table(
                    {
                        "layer": pa.array([places.layer] * len(row)),
                        "name": pa.array(np.array(places.names, np.str_)[row].tolist()),
                        "time_s": pa.array(times_s[column].astype(np.int64)),
                        signal.value: pa.array(places.values[row, column].astype(np.float32)),
                    }
                )
            )
        if parts:
            whole = pa.concat_tables(parts, promote_options="default")
            pq.write_table(whole, day_file(self._part / "environment", day), compression="zstd")

    def _finish(self) -> None:
        if not np.isfinite(self._start_s):
            raise NothingRecordedError(f"{self.folder}: no sample to record")
        _write_csv(self._part / "gpus.csv", GPU_COLUMNS, ([getattr(gpu, c) for c in GPU_COLUMNS] for gpu in self._gpus))
        about = {
            "format": FORMAT_VERSION,
            **self._about,
            "step_s": self._step_s,
            "start_s": float(self._start_s),
            "end_s": float(self._end_s),
            "start": rfc3339(self._start_s),
            "end": rfc3339(self._end_s),
        }
        (self._part / "recording.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
