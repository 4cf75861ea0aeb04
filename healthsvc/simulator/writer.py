"""A recording: the folder that a simulated run leaves behind, and that a recorded source reads."""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from healthsvc.fleet import COUNTERS, DAY_S, GpuId, Signal
from healthsvc.simulator.fleet import Chunk, FleetSimulator
from healthsvc.simulator.label import COLUMNS, moment
from healthsvc.simulator.labels import Labeller
from healthsvc.simulator.openmetrics import OpenMetricsWriter
from healthsvc.simulator.projection import Projection
from healthsvc.simulator.scenario import PROJECTED_DAYS, Scenario
from healthsvc.simulator.spec import ScenarioError
from healthsvc.simulator.truth import Truth

FORMAT_VERSION = 1  # healthsvc.telemetry.recorded reads this one; raise both when the folder changes
GPU_COLUMNS = tuple(f.name for f in fields(GpuId))
TOPOLOGY_COLUMNS = ("tray", "rack", "cooling_loop", "row", "power_feed")


def write_recording(
    scenario: Scenario,
    out_dir: Path,
    seed: int,
    start_s: float | None = None,
    openmetrics: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> Path:
    """Simulates `scenario` into the new folder `out_dir`; the same arguments write the same bytes.

    `start_s` outranks the scenario's own start. `openmetrics`: also write all samples there as text, for `promtool tsdb
    create-blocks-from openmetrics`. `progress` hears the share that is done (0-1). The folder appears only when it is
    whole. recording.json lists the faults as drawn; incidents.csv reaches 30 days past the last sample. Raises
    ScenarioError if there is no start or a population finds too few targets, FileExistsError if `out_dir` has something
    in it.
    """
    if start_s is None and scenario.start is None:
        raise ScenarioError(f"{scenario.name}: start: missing; add start = 2026-01-05T00:00:00Z, or give the start")
    if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
        raise FileExistsError(f"{out_dir}: not empty; give a new folder, or remove this one first")
    begin_s = scenario.start.timestamp() if start_s is None and scenario.start else float(start_s or 0.0)
    simulator = FleetSimulator(scenario, np.random.default_rng(seed), begin_s)
    times = simulator.times_s
    last_s = float(times[-1]) + PROJECTED_DAYS * DAY_S
    truth = Truth(simulator.layout.node_of, float(times[0]), float(times[-1]), scenario.step_s, last_s)
    projection = Projection(simulator, truth)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    whole = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.partial-", dir=out_dir.parent))
    try:
        whole.chmod(0o755)
        (whole / "telemetry").mkdir()
        (whole / "environment").mkdir()
        with ExitStack() as stack:
            text = stack.enter_context(OpenMetricsWriter(openmetrics, simulator.gpus)) if openmetrics else None
            for chunk in simulator.chunks(progress):
                truth.watch(chunk)
                projection.watch(chunk)
                _write_day(whole, chunk)
                if text:
                    text.add(chunk)
        projection.add()
        _write_tables(whole, simulator, truth)
        about = {
            "format": FORMAT_VERSION,
            "scenario": scenario.name,
            "seed": seed,
            "step_s": scenario.step_s,
            "start_s": float(times[0]),
            "end_s": float(times[-1]),
            "start": moment(float(times[0])),
            "end": moment(float(times[-1])),
            "labels_end": moment(last_s),
            "healthy_ratio": simulator.scenario.healthy_ratio,
            "faults": [fault.model_dump() for fault in simulator.scenario.fault],
        }
        (whole / "recording.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")
        os.replace(whole, out_dir)
    except BaseException:
        shutil.rmtree(whole, ignore_errors=True)
        raise
    return out_dir


def _write_day(folder: Path, chunk: Chunk) -> None:
    """One file of GPU samples, sorted by GPU and time, without rows for GPUs that were silent; one of the places."""
    seen = ~np.all([np.isnan(v) for v in chunk.values.values()], axis=0)
    row, column = np.nonzero(seen)
    columns: dict[str, pa.Array] = {
        "gpu": pa.array(row.astype(np.int32)),
        "time_s": pa.array(chunk.times_s[column].astype(np.int64)),
    }
    for signal in sorted(chunk.values):
        kind = np.float64 if signal in COUNTERS else np.float32
        columns[signal.value] = pa.array(chunk.values[signal][seen].astype(kind))
    day = f"{datetime.fromtimestamp(chunk.times_s[0], UTC):%Y-%m-%d}.parquet"
    pq.write_table(pa.table(columns), folder / "telemetry" / day, compression="zstd")

    layers: dict[tuple[str, tuple[str, ...]], list[Signal]] = {}
    for signal in sorted(chunk.environment):
        series = chunk.environment[signal]
        layers.setdefault((series.layer, series.names), []).append(signal)
    parts = []
    for (layer, names), signals in layers.items():
        table = {
            "layer": pa.array([layer] * len(names) * len(chunk.times_s)),
            "name": pa.array(np.repeat(names, len(chunk.times_s)).tolist()),
            "time_s": pa.array(np.tile(chunk.times_s.astype(np.int64), len(names))),
        }
        table |= {s.value: pa.array(np.asarray(chunk.environment[s].values, np.float32).ravel()) for s in signals}
        parts.append(pa.table(table))
    environment = pa.concat_tables(parts, promote_options="default")
    pq.write_table(environment, folder / "environment" / day, compression="zstd")


def _write_tables(folder: Path, simulator: FleetSimulator, truth: Truth) -> None:
    gpus, layout = simulator.gpus, simulator.layout
    _write_csv(folder / "gpus.csv", GPU_COLUMNS, ([getattr(gpu, c) for c in GPU_COLUMNS] for gpu in gpus))
    places = layout.placement().by_hostname.items()
    rows = ([hostname, *(place[c] for c in TOPOLOGY_COLUMNS)] for hostname, place in places)
    _write_csv(folder / "topology.csv", ("hostname", *TOPOLOGY_COLUMNS), rows)
    labels = Labeller(simulator.scenario, layout, gpus, truth).labels()
    _write_csv(folder / "incidents.csv", COLUMNS, (label.row() for label in labels))


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
