"""Recorded step responses: two poles fitted to real boards, and what the service says of runs of five minutes."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.signal import lfilter

from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.features.daily import daily_row
from healthsvc.features.windows import summarise
from healthsvc.fleet import DAY_S, Band, EventLog, FleetHistory, FleetWindow, GpuId, Signal, build_topology
from scripts.studies.lines import Panel, draw

Numbers = NDArray[np.float64]
BENCHMARK, H100 = "gpu-power-benchmark", "h100x8-telemetry-10hz"
STEPS = ("3090_TR", "4090_TR", "A100_TR", "A5000_TR", "K40m_TR")  # idle, six seconds of load, idle: 16 s
STEP_S = 10.0


@dataclass(frozen=True)
class Trace:
    """One GPU's record on a uniform grid: seconds, watts, celsius."""

    name: str
    seconds: Numbers
    watts: Numbers
    celsius: Numbers


@dataclass(frozen=True)
class TwoPoles:
    """T = base + R1 P * e1 + R2 P * e2, e the response of a first-order pole; base is T without power."""

    resistance: tuple[float, float]
    tau_s: tuple[float, float]
    base_celsius: float
    rmse_celsius: float
    fitted: Numbers


def respond(watts: Numbers, step_s: float, resistance: float, tau_s: float) -> Numbers:
    """One pole, exact for power that is constant over a step; in balance at the start."""
    keep = np.exp(-step_s / tau_s)
    gain = (1 - keep) * resistance
    risen, _ = lfilter([gain], [1.0, -keep], watts - watts[0], zi=np.zeros(1))
    return np.asarray(risen + resistance * watts[0], np.float64)


def fit_two_poles(trace: Trace) -> TwoPoles:
    """Least squares, the best of several beginnings; half a degree is added, as sensors give the integer below."""
    step_s = float(trace.seconds[1] - trace.seconds[0])
    span = float(trace.seconds[-1])
    seen = trace.celsius + 0.5

    def model(p: Numbers) -> Numbers:
        fast, slow, tau_fast, tau_slow = np.exp(p[:4])
        both = respond(trace.watts, step_s, fast, tau_fast) + respond(trace.watts, step_s, slow, tau_slow)
        return np.asarray(both - (fast + slow) * trace.watts[0] + p[4])

    def off(p: Numbers) -> Numbers:
        return model(p) - seen

    best: Any = None
    for tau_fast, tau_slow in ((0.5, 5.0), (2.0, 20.0), (10.0, 100.0)):
        start = np.array([np.log(0.03), np.log(0.03), np.log(tau_fast), np.log(tau_slow), seen[0]])
        low = np.array([np.log(1e-5), np.log(1e-5), np.log(0.5 * step_s), np.log(0.5 * step_s), 0.0])
        high = np.array([np.log(2.0), np.log(2.0), np.log(3 * span), np.log(10 * span), 120.0])
        done = least_squares(off, np.clip(start, low + 1e-6, high - 1e-6), bounds=(low, high))
        best = done if best is None or done.cost < best.cost else best
    fast, slow, tau_fast, tau_slow = np.exp(best.x[:4]).tolist()
    order = np.argsort([tau_fast, tau_slow])
    resistance, tau = np.array([fast, slow])[order].tolist(), np.array([tau_fast, tau_slow])[order].tolist()
    rmse = float(np.sqrt(np.mean((model(best.x) - seen) ** 2)))
    base = float(best.x[4]) - (fast + slow) * float(trace.watts[0])
    return TwoPoles((resistance[0], resistance[1]), (tau[0], tau[1]), base, rmse, model(best.x) - 0.5)


def on_grid(name: str, seconds: Numbers, watts: Numbers, celsius: Numbers, step_s: float) -> Trace:
    """Power averaged over each step, so that no energy is lost; the temperature nearest to its end."""
    seconds = seconds - seconds[0]
    ends = np.arange(step_s, seconds[-1], step_s)
    number = np.minimum(np.searchsorted(ends, seconds), len(ends) - 1)
    count = np.bincount(number, minlength=len(ends))
    mean = np.bincount(number, watts, len(ends)) / np.maximum(count, 1)
    mean = np.interp(ends, ends[count > 0], mean[count > 0])
    nearest = np.clip(np.searchsorted(seconds, ends, "right") - 1, 0, len(seconds) - 1)
    return Trace(name, ends, mean, celsius[nearest])


def read_benchmark(path: Path, name: str, step_s: float) -> Trace:
    """An nvidia-smi log of the power benchmark."""
    rows = list(csv.DictReader(path.read_text().splitlines(), skipinitialspace=True))
    times = np.array([datetime.strptime(r["timestamp"], "%Y/%m/%d %H:%M:%S.%f").timestamp() for r in rows])  # noqa: DTZ007
    # The instant where it is told: the average over a second lags behind the heat that it makes.
    column = next(name for name in ("power.draw.instant [W]", "power.draw [W]") if name in rows[0])
    watts = np.array([float(r[column]) for r in rows])
    return on_grid(name, times, watts, np.array([float(r["temperature.gpu"]) for r in rows]), step_s)


def read_h100(path: Path) -> dict[int, Mapping[str, Numbers]]:
    """{gpu: columns} of one run of the H100 node."""
    columns: dict[int, dict[str, list[float]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            mine = columns.setdefault(
                int(row["gpu"]), {name: [] for name in ("timestamp", "power_w", "temp_c", "energy_mj")}
            )
            for name, values in mine.items():
                values.append(float(row[name]))
    return {gpu: {name: np.array(values) for name, values in mine.items()} for gpu, mine in columns.items()}


def service_says(run: Mapping[int, Mapping[str, Numbers]]) -> dict[str, Any]:
    """The run as the service would have read it, and its report: one node of 8 GPUs at 10 s."""
    gpus = tuple(GpuId(f"GPU-{gpu}", "node", str(gpu), "NVIDIA H100 80GB HBM3") for gpu in sorted(run))
    first = min(float(mine["timestamp"][0]) for mine in run.values())
    last = max(float(mine["timestamp"][-1]) for mine in run.values())
    end = np.ceil(last / STEP_S) * STEP_S
    times = end + np.arange(-719.0, 1.0) * STEP_S
    shape = (len(gpus), len(times))
    values = {s: np.full(shape, np.nan, np.float32) for s in (Signal.GPU_TEMPERATURE, Signal.POWER, Signal.ENERGY)}
    for row, gpu in enumerate(sorted(run)):
        mine = run[gpu]
        at = np.searchsorted(mine["timestamp"], times, "right") - 1
        here = (times >= first) & (times - STEP_S < last) & (at >= 0)
        values[Signal.GPU_TEMPERATURE][row, here] = mine["temp_c"][at[here]]
        values[Signal.POWER][row, here] = mine["power_w"][at[here]]
        values[Signal.ENERGY][row, here] = np.diff(mine["energy_mj"][at[here]], prepend=np.nan) / 1000.0
    window = FleetWindow(gpus, times, values)
    topology = build_topology(gpus)
    summaries = summarise(window, np.full(shape, np.nan, np.float32))
    today = int(end // DAY_S)
    daily = daily_row(summaries, topology, STEP_S, today, unfinished=True)
    history = FleetHistory(window, daily, EventLog(), topology)
    documents = load_priors()
    scorer = make_scorer(documents, class_priors(documents))
    report = scorer.score(scorer.train(history), history, None, end).report
    column = report.classes.index("thermal")
    alerting = (report.band >= Band.WATCH) & report.observed[:, column]
    return {
        "gpus": len(gpus),
        "thermal_unknown": int((~report.observed[:, column]).sum()),
        "thermal_alerts": int(alerting.sum() + (report.change_p[:, column] < 1).sum()),
        "incidents": len(report.incidents),
        "reason": report.reasons.get(0, ("",))[-1],
    }


def told(fit: TwoPoles, trace: Trace) -> dict[str, Any]:
    """A fit's figures; a pole slower than the record is long, or faster than its samples, is not determined by it."""
    return {
        "name": trace.name,
        "seconds": round(float(trace.seconds[-1])),
        "rise_celsius": float(trace.celsius.max() - trace.celsius.min()),
        "resistance_kelvin_per_watt": list(fit.resistance),
        "tau_s": list(fit.tau_s),
        "fast_determined": bool(fit.tau_s[0] > trace.seconds[1] - trace.seconds[0]),
        "slow_determined": bool(fit.tau_s[1] < trace.seconds[-1]),
        "rmse_celsius": fit.rmse_celsius,
    }


def benchmark_traces(folder: Path) -> Iterator[Trace]:
    """The step responses of the power benchmark."""
    for name in STEPS:
        yield read_benchmark(folder / "Transient_Response" / name / "gpudata.csv", name.replace("_TR", " step"), 0.05)


def study(data: Path, out: Path | None) -> dict[str, Any]:
    """Figures, and pictures into `out`. Without the recorded data: says so and no more.

    The H100 record has no licence: its samples stay where they are, only what was fitted to them is shown.
    """
    if not (data / BENCHMARK).is_dir():
        return {"missing": f"no recorded step responses in {data.name}/{BENCHMARK}"}
    fits, panels = [], []
    for trace in benchmark_traces(data / BENCHMARK):
        fit = fit_two_poles(trace)
        fits.append(told(fit, trace))
        panels.append(Panel(f"{trace.name}, rmse {fit.rmse_celsius:.2f} C", trace.seconds, (trace.celsius, fit.fitted)))
    runs = {name: read_h100(data / H100 / f"{name}_telemetry.csv") for name in ("t3", "b1")}
    siblings, responses = [], []
    ahead = np.arange(0.0, 600.0, 5.0)
    for gpu, mine in sorted(runs["t3"].items()):
        trace = on_grid(f"H100 t3 GPU {gpu}", mine["timestamp"], mine["power_w"], mine["temp_c"], 0.1)
        fit = fit_two_poles(trace)
        siblings.append(told(fit, trace))
        step = np.where(ahead > 0, 100.0, 0.0)
        responses.append(sum(respond(step, 5.0, r, tau) for r, tau in zip(fit.resistance, fit.tau_s, strict=True)))
    whole = np.array([sum(each["resistance_kelvin_per_watt"]) for each in siblings])
    panels.append(Panel("8 H100 of a node: fitted answer to +100 W", ahead, tuple(np.asarray(r) for r in responses)))
    if out is not None:
        (out / "step_responses.svg").write_text(draw(panels, "seconds", "celsius"))
    return {
        "benchmark": fits,
        "siblings": siblings,
        "sibling_resistance_median": float(np.median(whole)),
        "sibling_resistance_spread": float(np.std(np.log(whole), ddof=1)),
        "sibling_resistance_range": [float(whole.min()), float(whole.max())],
        "service": {name: service_says(run) for name, run in runs.items()},
    }
