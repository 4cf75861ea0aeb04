"""Samples written down by hand, framed as a source would."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from healthsvc.fleet import GpuId, Signal
from healthsvc.telemetry.catalogue import GPU_ROWS, rows_in
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.exposition import Exposition
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.framing.read_memory import ReadMemory
from healthsvc.telemetry.source import RawGrid
from tests.telemetry.scrapes import devices_of, parse

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
EXPOSITIONS = ROOT / "data" / "fixtures" / "exposition"
GPU = "GPU-0000000a-0000-0000-0000-000000000000"
OTHER = "GPU-0000000b-0000-0000-0000-000000000000"
Pairs = Sequence[tuple[float, float]]


def samples(*series: tuple[Mapping[str, str], Pairs]) -> Samples:
    """Series with labels and (time, value) pairs."""
    pairs = [pair for _, each in series for pair in each]
    return Samples(
        tuple(labels for labels, _ in series),
        np.array([len(each) for _, each in series], np.int64),
        np.array([time_s for time_s, _ in pairs], np.float64),
        np.array([value for _, value in pairs], np.float64),
    )


def of(device: str = GPU, **labels: str) -> dict[str, str]:
    """Labels of one GPU's series."""
    return {"UUID": device, "gpu": "0", "Hostname": "node-a", **labels}


def grid(
    answers: Mapping[str, Samples],
    times_s: np.ndarray,
    step_s: float = 60.0,
    *,
    memory: ReadMemory | None = None,
    now_s: float = np.inf,
    gpus: Sequence[GpuId] | None = None,
    partial: bool = False,
) -> RawGrid:
    """What a source gives for these answers by metric."""
    framer = Framer(devices_of(answers) if gpus is None else gpus, times_s, step_s, memory, now_s)
    for row in rows_in(answers):
        framer.take(row, answers[row.metric])
    return framer.grid(sum(len(each.values) for each in answers.values()), (), partial)


def scrape(text: str, at_s: float = 600.0) -> tuple[Exposition, RawGrid]:
    """One exposition, framed in one column."""
    shown = parse(text, at_s)
    return shown, grid(shown.samples, np.array([at_s]))


def line(raw: RawGrid, signal: Signal, row: int = 0) -> list[float | None]:
    """One GPU's line of a signal; None: no sample."""
    if signal not in raw.values:
        return [None] * len(raw.times_s)
    return [None if np.isnan(value) else float(value) for value in raw.values[signal][row]]


def first_metric(signal: Signal) -> str:
    """The classic name of a signal."""
    return next(row.metric for row in GPU_ROWS if row.signal is signal and row.metric.startswith("DCGM_FI"))
