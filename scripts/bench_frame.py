"""How fast decoded samples become a fleet window, and how much memory a whole day needs.

speed: one read of some hours, every check on its way included, samples a CPU second. day: a day read as the historian
reads it, a stretch at a time into one window; its own peak memory. Prints one line of JSON.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.fleet import COUNTERS, FleetWindow, GpuId, Signal
from healthsvc.telemetry.catalogue import GPU_ROWS, Row
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.framing.grid import CounterCarry, frame, uniform_times
from healthsvc.telemetry.framing.read_memory import ReadMemory

START_S = 1_700_006_400.0
STEP_S = 30.0
STRETCH_S = 3600.0
# The default CSV of a classic exporter (the XID gauge, remapped rows and replays included), and throttling.
METRICS = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_THERMAL_VIOLATION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
)
LEVELS = {Signal.GPU_TEMPERATURE: (55, 80), Signal.MEMORY_TEMPERATURE: (60, 90), Signal.POWER: (80, 690)}
LEVELS |= {Signal.SM_CLOCK: (345, 1980), Signal.GPU_UTILIZATION: (0, 101)}


def fleet(gpus: int) -> tuple[tuple[GpuId, ...], tuple[Mapping[str, str], ...]]:
    """The GPUs, and their labels as a classic exporter writes them."""
    ids, labels = [], []
    for n in range(gpus):
        device, node = f"GPU-{n:08x}-52a3-4f3c-9d5e-{n:012x}", f"gpu-node-{n // 8:05d}"
        ids.append(GpuId(device, node, str(n % 8), "NVIDIA H100 80GB HBM3", f"00000000:{n % 8:02X}:00.0"))
        labels.append(
            {
                "UUID": device,
                "gpu": str(n % 8),
                "device": f"nvidia{n % 8}",
                "modelName": "NVIDIA H100 80GB HBM3",
                "Hostname": node,
                "pci_bus_id": f"00000000:{n % 8:02X}:00.0",
                "DCGM_FI_DRIVER_VERSION": "550.90.07",
                "instance": f"{node}:9400",
                "job": "dcgm-exporter",
            }
        )
    return tuple(ids), tuple(labels)


def answers(
    labels: tuple[Mapping[str, str], ...], start_s: float, columns: int, seed: int
) -> list[tuple[Row, Samples]]:
    """One answer a metric: a sample a column, each target scraped at its own moment."""
    rng = np.random.default_rng(seed)
    gpus, rows = len(labels), {row.metric: row for row in GPU_ROWS}
    offset_s = rng.uniform(0.1, STEP_S - 0.1, gpus)[:, None]
    times_s = (start_s + STEP_S * np.arange(columns) + np.round(offset_s, 3)).reshape(-1)
    counts = np.full(gpus, columns, np.int64)
    elapsed_s = (start_s - START_S) + STEP_S * np.arange(columns)
    found = []
    for metric in METRICS:
        row = rows[metric]
        if row.signal in LEVELS:
            values = rng.integers(*LEVELS[row.signal], (gpus, columns)).astype(np.float64)
        elif row.signal is Signal.ENERGY:
            values = 1e12 + np.broadcast_to(650e3 * elapsed_s, (gpus, columns))
        elif row.signal is Signal.THERMAL_THROTTLE:
            values = 1e12 + np.broadcast_to(1e8 * elapsed_s, (gpus, columns))
        else:
            values = np.zeros((gpus, columns))
        found.append((row, Samples(labels, counts, times_s, np.ascontiguousarray(values).reshape(-1))))
    return found


def speed(gpus: int, hours: float, rounds: int) -> dict[str, float]:
    """Samples a CPU second from decoded arrays to the raw grid, and to the window of increments; the best round."""
    columns = int(hours * 3600 / STEP_S)
    ids, labels = fleet(gpus)
    taken = answers(labels, START_S, columns, 1)
    times_s = uniform_times(START_S, START_S + columns * STEP_S, STEP_S)
    samples, framed, windowed = sum(len(each.values) for _, each in taken), [], []
    for _ in range(rounds):
        began = time.process_time()
        framer = Framer(ids, times_s, STEP_S, ReadMemory())
        for row, each in taken:
            framer.take(row, each, slice(0, columns))
        raw = framer.grid(samples, ())
        framed.append(time.process_time() - began)
        frame(raw)
        windowed.append(time.process_time() - began)
        if sum(int(np.count_nonzero(~np.isnan(values))) for values in raw.values.values()) != samples or raw.rejected:
            raise SystemExit(f"{samples} samples taken, but the grid holds others; rejected: {dict(raw.rejected)}")
    return {
        "samples": samples,
        "frame_samples_s": round(samples / min(framed)),
        "window_samples_s": round(samples / min(windowed)),
    }


def day(gpus: int, hours: float) -> dict[str, float]:
    """Peak memory of one window of that many hours, read a stretch at a time."""
    ids, labels = fleet(gpus)
    columns, width = int(hours * 3600 / STEP_S), int(min(STRETCH_S, hours * 3600) / STEP_S)
    signals = [row.signal for row in GPU_ROWS if row.metric in METRICS]
    values = {signal: np.full((gpus, columns), np.nan, np.float32) for signal in dict.fromkeys(signals)}
    carry, memory, began = CounterCarry(), ReadMemory(), time.process_time()
    for first in range(0, columns, width):
        start_s = START_S + first * STEP_S
        times_s = uniform_times(start_s, start_s + width * STEP_S, STEP_S)
        framer, samples = Framer(ids, times_s, STEP_S, memory), 0
        for row, each in answers(labels, start_s, width, first):
            framer.take(row, each, slice(0, width))
            samples += len(each.values)
        part, carry = frame(framer.grid(samples, ()), carry)
        for signal, framed in part.values.items():
            if signal in values:
                values[signal][:, first : first + width] = framed
    window = FleetWindow(ids, uniform_times(START_S, START_S + columns * STEP_S, STEP_S), values)
    missing = sum(int(np.isnan(each).sum()) for each in window.values.values())
    if missing:
        raise SystemExit(f"{missing} cells of the day are empty")
    return {
        "gpus": gpus,
        "cells": len(values) * gpus * columns,
        "counters": len(COUNTERS & values.keys()),
        "day_cpu_s": round(time.process_time() - began, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "day"])
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.what == "speed":
        print(json.dumps(speed(given.gpus, given.hours, given.rounds)))
    else:
        print(json.dumps(day(given.gpus, given.hours)))


if __name__ == "__main__":
    main()
