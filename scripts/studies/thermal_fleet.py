"""A fleet's daily thermal features, made directly: thousands of GPUs over half a year in seconds.

What the full simulator shows after its telemetry has become ledger rows: daily log R with AR(1) noise of its own, node
fans that answer to the hottest GPU, inlet with season, weather and daily swing, job mixes, nodes without an inlet
sensor, days without steady load. `thermal.py equivalence` compares the two. Every part has a random stream of its own,
so that a decoy changes nothing but itself.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    DAY_S,
    DailyLedger,
    EventLog,
    FleetHistory,
    FleetWindow,
    Floats,
    GpuId,
    Signal,
    build_topology,
)

Numbers = NDArray[np.float64]
PER_NODE = 8
FIRST_DAY = 20_000
LIMIT_CELSIUS, SLOWDOWN_CELSIUS, MEMORY_LIMIT_CELSIUS = 87.0, 89.0, 95.0  # H100 SXM5, as nvidia-smi reports them
RESISTANCE, MEMORY_RESISTANCE = 0.058, 0.062  # kelvin per watt at full fan speed
CONVECTION = 0.65  # share of it that goes with flow to the -0.8
FAN_FROM_CELSIUS, FAN_TO_CELSIUS, FAN_LEAST = 60.0, 80.0, 0.5


@dataclass(frozen=True)
class Noise:
    """Deviations of daily log R and of what the fleet meets."""

    own: float = 0.01
    persistence: float = 0.4
    common: float = 0.004  # shared by a node: job mix
    per_watt: float = 0.02  # of log R for 100 % more power: leakage
    missing: float = 0.05  # share of days without twenty steady windows
    blind: float = 0.25  # share of nodes without an inlet sensor


@dataclass(frozen=True)
class Plan:
    """What happens to whom. growth_a_day [gpu] from start_day [gpu] on, compounding; the decoys apart from it.

    hot [gpu]: excess of resistance since ever. step_watts from step_day on nodes that were lightly loaded; wave_celsius
    during wave_days; cap_watts from cap_day on. memory_share: how much of the growth the memory shares.
    """

    growth_a_day: Numbers
    start_day: Numbers
    memory_share: Numbers
    hot: Numbers
    step_watts: float = 0.0
    step_day: float = 90.0
    wave_celsius: float = 0.0
    wave_days: tuple[float, float] = (100.0, 110.0)
    cap_watts: float = np.inf
    cap_day: float = 90.0


def quiet_plan(gpus: int) -> Plan:
    """Nothing happens."""
    zero = np.zeros(gpus)
    return Plan(zero, np.full(gpus, np.inf), zero, zero)


@dataclass(frozen=True)
class Run:
    """A run's ledger, and the truth: peak temperature without throttling [gpu, day] and log R [gpu, day]."""

    daily: DailyLedger
    peak_celsius: Numbers
    log_r: Numbers
    plan: Plan
    light: NDArray[np.bool_]

    @property
    def event_day(self) -> Numbers:
        """First day on which the peak meets the software limit [gpu], inf = never: the T2 event of this study."""
        reached = self.peak_celsius >= LIMIT_CELSIUS
        return np.where(reached.any(axis=1), np.argmax(reached, axis=1), np.inf)


def autocorrelated(rng: np.random.Generator, rows: int, days: int, persistence: float) -> Numbers:
    """Unit AR(1) noise [row, day]."""
    white = rng.standard_normal((rows, days))
    out = np.empty_like(white)
    out[:, 0] = white[:, 0]
    for day in range(1, days):
        out[:, day] = persistence * out[:, day - 1] + np.sqrt(1 - persistence**2) * white[:, day]
    return out


def fan_factor(hottest: Numbers) -> Numbers:
    """By how much resistance exceeds that at full speed when the hottest GPU of a node has this temperature."""
    speed = np.clip(
        FAN_LEAST + (1 - FAN_LEAST) * (hottest - FAN_FROM_CELSIUS) / (FAN_TO_CELSIUS - FAN_FROM_CELSIUS), FAN_LEAST, 1.0
    )
    return (1 - CONVECTION) + CONVECTION * speed**-0.8


def settle(inlet: Numbers, power: Numbers, base: Numbers) -> Numbers:
    """Fan factor of each node [node, day] in balance; inlet [node, day], power and base resistance [gpu, day]."""
    nodes = len(inlet)
    factor = np.ones_like(inlet)
    heat = (base * power).reshape(nodes, PER_NODE, -1).max(axis=1)
    for _ in range(30):
        factor = 0.5 * factor + 0.5 * fan_factor(inlet + factor * heat)
    return factor


def make_run(nodes: int, days: int, seed: int, plan: Plan, noise: Noise = Noise()) -> Run:
    """The whole run; the same seed gives the same fleet, weather, jobs and noise whatever the plan."""
    streams = np.random.default_rng(seed).spawn(10)
    gpus, node = nodes * PER_NODE, np.repeat(np.arange(nodes), PER_NODE)
    when = np.arange(days, dtype=np.float64)

    body = 0.05 * np.clip(streams[0].standard_normal(gpus), -2, 2)
    wander = noise.own * autocorrelated(streams[1], gpus, days, noise.persistence)
    age = np.maximum(when[None, :] + 0.5 - plan.start_day[:, None], 0.0)
    grown = np.where(np.isfinite(age), age, 0.0) * np.log1p(plan.growth_a_day)[:, None]
    base = RESISTANCE * np.exp(body[:, None] + wander + grown) * (1 + plan.hot[:, None])

    place = 0.8 * streams[2].standard_normal(nodes)[:, None]
    phase = streams[2].uniform(0, 365)
    season = 4.0 * np.sin(2 * np.pi * (when + phase) / 365)
    weather = 0.8 * autocorrelated(streams[3], 1, days, 0.7)
    wave = np.where((when >= plan.wave_days[0]) & (when < plan.wave_days[1]), plan.wave_celsius, 0.0)
    inlet = 23.0 + place + season + weather + wave  # mean of the day
    warm = inlet + 2.4  # q95 of a swing of 2.5

    light = np.repeat(streams[4].random(nodes) < 0.25, PER_NODE)
    mix = streams[5].random((nodes, days))
    level = np.where(light[::PER_NODE, None], 390 + 20 * mix, 600 + 80 * mix)
    peak_watts = level[node] * (1 + 0.01 * streams[6].standard_normal((gpus, 1)))
    stepped = light[:, None] & (when[None, :] >= plan.step_day)
    peak_watts = peak_watts + np.where(stepped, plan.step_watts, 0.0)
    peak_watts = np.minimum(peak_watts, np.where(when >= plan.cap_day, plan.cap_watts, np.inf)[None, :])
    usual_watts = peak_watts * (0.80 + 0.12 * streams[7].random((nodes, days)))[node]

    at_peak, at_usual = settle(warm, peak_watts, base), settle(inlet, usual_watts, base)
    peak = warm[node] + base * at_peak[node] * peak_watts
    mixed = noise.common * autocorrelated(streams[8], nodes, days, 0.4)[node]
    leak = noise.per_watt * (usual_watts / 600.0 - 1.0)
    true_log = np.log(base * at_usual[node]) + mixed + leak
    chance = streams[9]
    blind = np.repeat(chance.random(nodes) < noise.blind, PER_NODE)
    rise = np.exp(true_log) * usual_watts
    assumed = np.where(blind[:, None], 25.0, inlet[node])
    # A throttled GPU stands at its limit: it shows that much and no more, and its steady windows are gone.
    held = peak >= LIMIT_CELSIUS
    unseen = (chance.random((gpus, days)) < noise.missing) | (held & (inlet[node] + rise >= LIMIT_CELSIUS))
    shown = np.log(np.maximum(inlet[node] + rise - assumed, 1.0) / usual_watts)
    memory_noise = 0.5 * noise.own * autocorrelated(chance, gpus, days, noise.persistence)
    memory = np.log(MEMORY_RESISTANCE / RESISTANCE) + true_log - grown * (1 - plan.memory_share[:, None]) + memory_noise
    memory = memory + 0.04 * chance.standard_normal((nodes, days))[node]  # how hard jobs use it

    memory = np.log(np.maximum(inlet[node] + np.exp(memory) * usual_watts - assumed, 1.0) / usual_watts)

    def column(values: Numbers, missing: NDArray[np.bool_] | None = None) -> Floats:
        full = np.broadcast_to(values, (gpus, days))
        return np.where(missing, np.nan, full).astype(np.float32) if missing is not None else full.astype(np.float32)

    features: dict[str, Floats] = {
        "gpu_log_resistance": column(shown, unseen),
        "memory_log_resistance": column(memory, unseen),
        "steady_windows": column(np.where(unseen, 5.0, 90.0)),
        "power_q95_watts": column(peak_watts),
        "inlet_q95_celsius": column(np.where(blind[:, None], 27.0, warm[node])),
        "inlet_measured_ratio": column(np.where(blind, 0.0, 1.0)[:, None]),
        "gpu_temperature_q95_celsius": column(np.minimum(peak, LIMIT_CELSIUS)),
        "gpu_max_operating_limit_celsius": column(np.array(LIMIT_CELSIUS)),
        "gpu_slowdown_limit_celsius": column(np.array(SLOWDOWN_CELSIUS)),
        "memory_max_operating_limit_celsius": column(np.array(MEMORY_LIMIT_CELSIUS)),
    }
    ids = tuple(
        GpuId(f"GPU-{row:06d}", f"node-{row // PER_NODE:05d}", str(row % PER_NODE), "NVIDIA H100 80GB HBM3")
        for row in range(gpus)
    )
    exposure = np.full((gpus, days), 24.0, np.float32)
    known_days = FIRST_DAY + np.arange(days, dtype=np.int64)
    daily = DailyLedger(ids, known_days, features, exposure, np.ones((gpus, days), np.float32))
    return Run(daily, peak, np.log(base * at_peak[node]), plan, light)


def history_at(run: Run, day: int, window_days: int) -> FleetHistory:
    """What the service knows at the end of `day` (0-based): that many days of ledger and a living recent window."""
    daily, columns = run.daily, slice(max(0, day + 1 - window_days), day + 1)
    seen = replace(
        daily,
        days=daily.days[columns],
        features={name: values[:, columns] for name, values in daily.features.items()},
        exposure_h=daily.exposure_h[:, columns],
        completeness=daily.completeness[:, columns],
    )
    now_s = float(daily.days[day] + 1) * DAY_S
    alive = np.full((len(daily.gpus), 2), 60.0, np.float32)
    recent = FleetWindow(
        daily.gpus, np.array([now_s - 60.0, now_s]), {Signal.GPU_TEMPERATURE: alive, Signal.POWER: 10 * alive}
    )
    return FleetHistory(recent, seen, EventLog(), build_topology(daily.gpus))
