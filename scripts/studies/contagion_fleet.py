"""A fleet whose GPUs begin to throttle ten minutes by ten minutes, from the hazard that the onset model assumes.

Log odds = node's and rack's own level + margin, load step, inlet and its change + gamma x log(1 + throttling neighbours
of the node). What is shared makes onsets come together without any contagion: weather, heat waves, a rack's place, hot
spells of a rack, and jobs that load a whole node.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.onset_bins import BinGrid
from healthsvc.features.pseudo_inlet import pseudo_inlet
from healthsvc.features.windows import WINDOW_S
from healthsvc.fleet import DAY_S, GpuId, Placement, Topology, build_topology
from healthsvc.fleet.onset_bins import INLET_MEASURED, INLET_REFERENCE_CELSIUS

Numbers = NDArray[np.float64]
START_S = 20_454 * DAY_S  # 2026-01-01
A_NODE, NODES_A_RACK, NODES_A_LOOP = 8, 4, 16
BINS_A_DAY, BINS_AN_HOUR = 144, 6
CLEAR_BINS = 3
LIMIT_CELSIUS, POWER_LIMIT_WATTS, KELVIN_A_WATT = 87.0, 700.0, 0.058
MARGIN, LOAD_CHANGE, INLET, INLET_CHANGE = -0.35, 1.5, 0.15, 0.3  # log odds a unit, as the model's covariates
NODE_SD, RACK_SD = 0.5, 0.4
TOLD_SD = 0.01  # of log R, as well as a ledger knows it
ONSETS_A_GPU_DAY = 0.13  # expected without contagion; so large that a month of 512 GPUs has well over a thousand
LASTS = 0.45  # probability that a throttling GPU still does ten minutes later


@dataclass(frozen=True)
class Size:
    """Nodes of eight, four to a rack and sixteen to a loop, and days."""

    nodes: int
    days: int


@dataclass(frozen=True)
class Fleet:
    """grid: with the inlet measured; pseudo float32[gpu, bin]: what a node's other GPUs tell of it."""

    gpus: tuple[GpuId, ...]
    topology: Topology
    grid: BinGrid
    pseudo: NDArray[np.float32]


def make_fleet(seed: int, number: int, gamma: float, size: Size) -> Fleet:
    """The number-th fleet of a seed, whose neighbours pull with gamma."""
    rng = np.random.default_rng((seed, number, round(1000 * gamma)))
    nodes, bins, count = size.nodes, size.days * BINS_A_DAY, size.nodes * A_NODE
    gpus = tuple(GpuId(f"GPU-{i:05d}", f"node-{i // A_NODE:03d}", str(i % A_NODE)) for i in range(count))
    places = {
        f"node-{n:03d}": {"rack": f"r{n // NODES_A_RACK:02d}", "cooling_loop": f"l{n // NODES_A_LOOP}"}
        for n in range(nodes)
    }
    topology = build_topology(gpus, Placement(places))
    node = np.repeat(np.arange(nodes), A_NODE)
    inlet = _inlet(rng, nodes, bins)[node]
    watts = _load(rng, nodes, bins)[node] * rng.normal(1.0, 0.015, (count, bins))
    resistance = KELVIN_A_WATT * np.exp(rng.normal(0.0, 0.05, count))
    celsius = inlet + resistance[:, None] * watts + rng.normal(0.0, 0.4, watts.shape)
    level = rng.normal(0.0, NODE_SD, nodes)[node] + rng.normal(0.0, RACK_SD, nodes)[node // NODES_A_RACK]
    odds = MARGIN * (LIMIT_CELSIUS - celsius) + LOAD_CHANGE * _change(watts) / POWER_LIMIT_WATTS
    odds += INLET * (inlet - INLET_REFERENCE_CELSIUS) + INLET_CHANGE * _change(inlet) + level[:, None]
    odds += np.log(ONSETS_A_GPU_DAY * count * size.days / np.exp(odds).sum())
    shown = np.floor(celsius).astype(np.float32)
    told = np.log(resistance) + rng.normal(0.0, TOLD_SD, count)
    grid = BinGrid(
        ends_s=START_S + WINDOW_S * np.arange(1.0, bins + 1),
        throttled_ratio=_throttled(rng, odds, gamma, nodes).astype(np.float32),
        temperature_celsius=shown,
        power_watts=watts.astype(np.float32),
        inlet_celsius=inlet.astype(np.float32),
        inlet_source=np.full(watts.shape, INLET_MEASURED, np.int8),
        flow_ratio=np.full(watts.shape, np.nan, np.float32),
        limit_celsius=np.full(count, LIMIT_CELSIUS, np.float32),
        power_limit_watts=np.full(count, POWER_LIMIT_WATTS, np.float32),
    )
    pseudo = pseudo_inlet(shown, grid.power_watts, told.astype(np.float32), topology.group("node", count))
    return Fleet(gpus, topology, grid, pseudo)


def _change(values: Numbers) -> Numbers:
    return np.diff(values, axis=1, prepend=values[:, :1])


def _inlet(rng: np.random.Generator, nodes: int, bins: int) -> Numbers:
    """Of each node [node, bin] in celsius."""
    hours, racks = np.arange(bins) / BINS_AN_HOUR, -(-nodes // NODES_A_RACK)
    shared = INLET_REFERENCE_CELSIUS + 2.0 * np.sin(2 * np.pi * hours / 24.0) + _wander(rng, 1, bins, 48.0, 1.5)[0]
    for at in rng.uniform(0.0, hours[-1], max(1, round(hours[-1] / 240.0))):  # heat waves
        shared += rng.uniform(2.0, 5.0) * np.clip(1.5 - np.abs(hours - at) / 18.0, 0.0, 1.0)
    rack = rng.normal(0.0, 0.8, racks)[:, None] + _wander(rng, racks, bins, 6.0, 0.6)
    for spell in range(rng.poisson(racks * hours[-1] / 72.0)):  # one a rack every three days, of an hour or two
        at, long = rng.uniform(0.0, hours[-1]), rng.uniform(0.5, 1.5)
        rack[spell % racks] += rng.uniform(2.0, 6.0) * np.clip(1.5 - np.abs(hours - at) / long, 0.0, 1.0)
    own = _wander(rng, nodes, bins, 2.0, 0.3)
    return np.asarray(shared + rack[np.arange(nodes) // NODES_A_RACK] + own)


def _wander(rng: np.random.Generator, count: int, bins: int, hours: float, sd: float) -> Numbers:
    """AR(1) with this time constant and deviation [count, bin]."""
    keep = float(np.exp(-1.0 / (BINS_AN_HOUR * hours)))
    noise = rng.normal(0.0, sd * np.sqrt(1 - keep**2), (count, bins))
    noise[:, 0] = rng.normal(0.0, sd, count)
    for t in range(1, bins):
        noise[:, t] += keep * noise[:, t - 1]
    return noise


def _load(rng: np.random.Generator, nodes: int, bins: int) -> Numbers:
    """Watts of each node's GPUs [node, bin]: jobs of eight hours on average."""
    starts = rng.random((nodes, bins)) < 1.0 / (8 * BINS_AN_HOUR)
    starts[:, 0] = True
    job = np.cumsum(starts, axis=1) - 1
    level = POWER_LIMIT_WATTS * (0.5 + 0.48 * rng.beta(2.5, 1.3, (nodes, int(job.max()) + 1)))
    return np.take_along_axis(level, job, axis=1)


def _throttled(rng: np.random.Generator, odds: Numbers, gamma: float, nodes: int) -> NDArray[np.bool_]:
    """Who throttles, bool[gpu, bin]; odds [gpu, bin]: of an onset in the bin that follows."""
    throttled = np.zeros(odds.shape, bool)
    for t in range(1, odds.shape[1]):
        now = throttled[:, t - 1]
        others = np.repeat(now.reshape(nodes, A_NODE).sum(axis=1), A_NODE) - now
        clear = ~throttled[:, max(t - CLEAR_BINS, 0) : t].any(axis=1)
        chance = 1.0 / (1.0 + np.exp(-(odds[:, t - 1] + gamma * np.log1p(others))))
        throttled[:, t] = (clear & (rng.random(len(now)) < chance)) | (now & (rng.random(len(now)) < LASTS))
    return throttled
