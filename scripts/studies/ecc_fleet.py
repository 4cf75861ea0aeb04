"""Made fleets of correctable errors, hour by hour: who makes them, in bursts or evenly. No telemetry, only counts.

Three kinds. `few`: like the counts that domain reports give, 1 % of the GPUs hold about three quarters of all errors
and the variance of a GPU's total is some hundreds of times its mean. `wild`: the simulator's healthy errors, and beside
them GPUs that burst by the thousand again and again, and single bursts on any GPU. `waves`: GPUs whose rate rises
twentyfold for a week or two and falls again, on a fleet that makes many errors anyway.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    DAY_S,
    HOUR_S,
    Arrays,
    DailyLedger,
    EventLog,
    FleetHistory,
    FleetWindow,
    GpuId,
    Signal,
    build_topology,
)
from healthsvc.forecasters.base import device_ids
from healthsvc.forecasters.ecc.rates import fit_rates

KINDS = ("few", "wild", "waves")
HOURS = 24
FIRST_DAY = 20_000
PRODUCTS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB")


@dataclass(frozen=True)
class Run:
    """errors float64[gpu, hour] from midnight of FIRST_DAY on; who bursts always, bool[gpu]; the hour in which a single
    burst begins [gpu], -1 without one."""

    gpus: tuple[GpuId, ...]
    errors: NDArray[np.float64]
    bursts_always: NDArray[np.bool_]
    single_hour: NDArray[np.int64]

    @property
    def days(self) -> int:
        return len(self.errors[0]) // HOURS


def make_run(kind: str, gpus: int, days: int, seed: int) -> Run:
    """The errors of a healthy fleet of one of KINDS; nodes of eight, three models."""
    rng = np.random.default_rng(seed)
    hours = days * HOURS
    load = np.clip(0.6 + 0.4 * np.sin(2 * np.pi * (np.arange(hours) % HOURS) / HOURS), 0.1, 1.0) / 0.6
    rate, always = _rates(kind, gpus, rng)
    level = np.repeat(rate[:, None], hours, axis=1) * load / HOURS
    if kind == "waves":
        for row in np.flatnonzero(rng.random(gpus) < 0.05 * days / 30.0):
            begins, lasts = rng.integers(0, hours), round(rng.uniform(7, 14) * HOURS)
            level[row, begins : begins + lasts] *= 20.0
    errors = rng.poisson(level).astype(np.float64)
    if kind != "few":  # an error is often read twice or three times
        errors = errors + rng.binomial(errors.astype(np.int64), 0.4) + rng.binomial(errors.astype(np.int64), 0.1)
    median = {"few": 45.0, "wild": 1500.0, "waves": 600.0}[kind]
    for burster in np.flatnonzero(always).tolist():
        own = median * np.exp(rng.normal(0, 0.7))
        for begins in np.flatnonzero(rng.random(hours) < rng.uniform(0.03, 0.15) / HOURS):
            _burst(errors, burster, int(begins), own * np.exp(rng.normal(0, 1.0)), rng)
    single = np.full(gpus, -1)
    if kind == "wild":
        for struck in np.flatnonzero(rng.random(gpus) < days / 2000.0).tolist():
            single[struck] = rng.integers(0, hours)
            _burst(errors, struck, int(single[struck]), 3000.0 * np.exp(rng.normal(0, 1.0)), rng)
    ids = tuple(GpuId(f"GPU-{i:05d}", f"node-{i // 8:04d}", str(i % 8), PRODUCTS[i // 8 % 3]) for i in range(gpus))
    return Run(ids, errors, always, single)


def _rates(kind: str, gpus: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Errors a day without bursts, and who bursts always [gpu]."""
    always = rng.random(gpus) < 0.01
    if kind == "few":
        return rng.gamma(0.5, 0.02 / 0.5, gpus), always
    if kind == "wild":
        noisy = rng.random(gpus) < 0.08
        return np.where(noisy, 6.0 * np.exp(rng.normal(0, 1.0, gpus)), 0.02), always
    return rng.gamma(1.5, 5.0 / 1.5, gpus), always


def _burst(errors: NDArray[np.float64], row: int, begins: int, size: float, rng: np.random.Generator) -> None:
    """`size` errors within one to five hours."""
    lasts = int(rng.integers(1, 6))
    shares = rng.dirichlet(np.ones(lasts))
    for ahead, share in enumerate(shares[: errors.shape[1] - begins]):
        errors[row, begins + ahead] += rng.poisson(size * share)


def history_at(run: Run, hour: int, days: int = 90) -> FleetHistory:
    """What the service sees at the end of `hour` (counted from the beginning): `days` of ledger, the last two hours."""
    day = hour // HOURS
    first = max(0, day - days)
    whole = run.errors[:, first * HOURS : day * HOURS].reshape(len(run.gpus), day - first, HOURS).sum(axis=2)
    now_s = FIRST_DAY * DAY_S + (hour + 1) * HOUR_S
    exposure = np.full(whole.shape, 24.0, np.float32)
    daily = DailyLedger(
        run.gpus,
        FIRST_DAY + np.arange(first, day, dtype=np.int64),
        {"sbe_errors": whole},
        exposure,
        np.ones(whole.shape, np.float32),
    )
    recent = FleetWindow(
        run.gpus,
        np.array([now_s - HOUR_S, now_s]),
        {Signal.SBE_AGGREGATE: run.errors[:, hour - 1 : hour + 1].astype(np.float32)},
    )
    return FleetHistory(recent, daily, EventLog(), build_topology(run.gpus))


def fit(history: FleetHistory) -> Arrays:
    """The trained arrays as the forecaster keeps them."""
    return {**fit_rates(history), "device_id": device_ids(history.gpus)}


def with_hour(history: FleetHistory, errors: NDArray[np.float64], hour: int) -> FleetHistory:
    """`history` with the hour before `hour` and `hour` itself of errors [gpu, hour] as its recent window."""
    end_s = FIRST_DAY * DAY_S + (hour + 1) * HOUR_S
    values = {Signal.SBE_AGGREGATE: errors[:, hour - 1 : hour + 1].astype(np.float32)}
    return replace(history, recent=replace(history.recent, times_s=np.array([end_s - HOUR_S, end_s]), values=values))
