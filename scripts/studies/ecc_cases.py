"""Memory that wears out, bursts that mean nothing, and the storm that nobody saw: what ecc_growth says, and when.

Made ledgers and events of fleets of 10,240 GPUs, so that a fault in 250 GPUs does not become the fleet's own rate;
ordinary double-bit errors come at the prior's rate. Rows of a wearing memory die when the simulator says
(memory_faults.wear_days), with the severities of the proof fleet. The service learns anew each day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.features.site import SITE_RATIO
from healthsvc.fleet import (
    DAY_S,
    HORIZON_NAMES,
    HOUR_S,
    LIVENESS,
    OPEN,
    Arrays,
    DailyLedger,
    EventKind,
    EventLog,
    FleetHistory,
    FleetWindow,
    Floats,
    Forecast,
    GpuId,
    Signal,
    build_topology,
)
from healthsvc.forecasters import shipped_forecasters
from healthsvc.forecasters.ecc_growth import EccGrowth
from healthsvc.simulator.memory_faults import wear_days

GPUS, LEDGER_DAYS, RUN_DAYS = 10_240, 60, 120
WEARS, BURSTS = 41, 80  # a seed; five seeds give 205 and 400
FIRST_DAY = 20_500
STEP_S = 600.0
COLUMNS = 12
WEEK, MONTH, T2 = HORIZON_NAMES.index("7d"), HORIZON_NAMES.index("30d"), 0
REMAPPED_XID = 63.0
LEADS_H = (24, 72)
STORM_PER_S, STORM_REMAPS = 17_700.0, 8.0  # NVIDIA/DCGM issue 313
STORMS = 24  # onsets a seed, minutes spread over the hour
Figures = dict[str, Any]


@dataclass(frozen=True)
class Fleet:
    """counts {feature: [gpu, day]} of the whole run, from FIRST_DAY on, and its events."""

    gpus: tuple[GpuId, ...]
    counts: Mapping[str, NDArray[np.float64]]
    events: EventLog


@lru_cache(maxsize=1)
def forecaster() -> EccGrowth:
    """As it ships."""
    return next(f for f in shipped_forecasters(load_priors()) if isinstance(f, EccGrowth))


def thresholds() -> tuple[float, float]:
    """(failure threshold on P(T2, 7 d), degrading threshold on change_p), as they ship."""
    shipped = load_priors()["ecc_growth"]["thresholds"]
    return float(shipped["failure_p_7d"]), float(shipped["degrading_p"])


def make_fleet(seed: int) -> tuple[Fleet, NDArray[np.float64]]:
    """A fleet, and when the memory of its first WEARS nodes' first GPUs fails for good [wear], in days."""
    rng = np.random.default_rng(seed)
    gpus = tuple(GpuId(f"GPU-{i:05d}", f"node-{i // 8:04d}", str(i % 8), "NVIDIA H100 80GB HBM3") for i in range(GPUS))
    noisy = rng.random(GPUS) < 0.08
    level = np.where(noisy, 6.0 * np.exp(rng.normal(0, 1.0, GPUS)), 0.02)
    counts = {
        "sbe_errors": rng.poisson(level[:, None], (GPUS, RUN_DAYS)).astype(np.float64),
        "correctable_remaps_rows": np.zeros((GPUS, RUN_DAYS)),
        "uncorrectable_remaps_rows": np.zeros((GPUS, RUN_DAYS)),
    }
    rows, days = [], []
    usual = rng.poisson(GPUS * RUN_DAYS / 365.25 * forecaster().base_t2_per_gpu_year)
    rows.append(rng.integers(0, GPUS, usual))
    days.append(rng.uniform(0, RUN_DAYS, usual))
    last = np.zeros(WEARS)
    for number in range(WEARS):
        life, remaps = rng.uniform(10, 40), int(rng.integers(4, 11))
        moments = rng.uniform(LEDGER_DAYS - 20, RUN_DAYS - 45) + wear_days(life, remaps, 1.5, rng)
        rows.append(np.full(remaps - 1, 8 * number))
        days.append(moments[:-1])
        last[number] = moments[-1]
    row, day = np.concatenate(rows), np.concatenate(days)
    np.add.at(counts["uncorrectable_remaps_rows"], (row, day.astype(int)), 1.0)
    return Fleet(gpus, counts, _events(row, FIRST_DAY * DAY_S + day * DAY_S)), last


def history_at(fleet: Fleet, now_s: float, recent: Mapping[Signal, NDArray[np.float64]] | None = None) -> FleetHistory:
    """What the service sees: LEDGER_DAYS of finished days, the events so far, and a window of two hours."""
    today = int(now_s // DAY_S) - FIRST_DAY
    span = slice(max(today - LEDGER_DAYS, 0), today)
    features: dict[str, Floats] = {name: values[:, span] for name, values in fleet.counts.items()}
    shape = (len(fleet.gpus), span.stop - span.start)
    daily = DailyLedger(
        fleet.gpus,
        FIRST_DAY + np.arange(span.start, span.stop, dtype=np.int64),
        features,
        np.full(shape, 24.0, np.float32),
        np.ones(shape, np.float32),
    )
    times = np.asarray(now_s + np.arange(1 - COLUMNS, 1) * STEP_S, np.float64)
    values: dict[Signal, Floats] = {
        signal: np.ones((len(fleet.gpus), COLUMNS), np.float32) for signal in LIVENESS | {Signal.UNCORRECTABLE_REMAPS}
    }
    values[Signal.UNCORRECTABLE_REMAPS] *= 0
    values[Signal.SBE_AGGREGATE] = np.zeros((len(fleet.gpus), COLUMNS), np.float32)
    values |= {signal: array.astype(np.float32) for signal, array in (recent or {}).items()}
    window = FleetWindow(fleet.gpus, times, values)
    return FleetHistory(window, daily, fleet.events.known_at(now_s), build_topology(fleet.gpus))


def wear(seed: int) -> Figures:
    """P(T2 or worse, 7 d) of each wearing memory 24 and 72 hours before it fails for good."""
    fleet, last = make_fleet(seed)
    found: dict[str, list[float]] = {str(lead): [] for lead in LEADS_H}
    trained: dict[int, Any] = {}
    for number, failure in enumerate(last.tolist()):
        for lead in LEADS_H:
            now_s = np.floor((FIRST_DAY + failure - lead / 24.0) * DAY_S / HOUR_S) * HOUR_S
            history = history_at(fleet, float(now_s))
            day = int(now_s // DAY_S)
            if day not in trained:
                trained[day] = forecaster().fit(history_at(fleet, day * DAY_S))
            found[str(lead)].append(float(_chance(forecaster().forecast(trained[day], history), WEEK)[8 * number]))
    return {"p": found}


def bursts(seed: int) -> Figures:
    """Single bursts of 500 to 20,000 errors, after which a row is remapped (XID 63) and waits for a reset: whose P(T2,
    7 d) reaches the failure threshold within a day, who is called out of character, and who is at watch at all."""
    rng = np.random.default_rng(seed)
    fleet, _ = make_fleet(seed)
    failure, degrading = thresholds()
    struck = rng.choice(_calm(fleet), BURSTS, replace=False)
    begin_s = (FIRST_DAY + LEDGER_DAYS + 20) * DAY_S
    hour = rng.integers(0, 22, BURSTS)
    size = np.exp(rng.uniform(np.log(500), np.log(20_000), BURSTS))
    state = forecaster().fit(history_at(fleet, begin_s))
    reached, odd, watched = (np.zeros(BURSTS, bool) for _ in range(3))
    for at in range(1, 25):
        errors, pending = np.zeros((2, GPUS, COLUMNS))
        now, done = struck[hour == at - 1], hour < at
        errors[now[:, None], np.arange(COLUMNS - 6, COLUMNS)] = size[hour == at - 1][:, None] / 6
        pending[struck[done]] = 1.0
        recent = {Signal.SBE_AGGREGATE: errors, Signal.REMAP_PENDING: pending}
        history = history_at(fleet, begin_s + at * HOUR_S, recent)
        forecast = forecaster().forecast(
            state, _repaired(history, struck[done], np.asarray(begin_s + (hour[done] + 1) * HOUR_S))
        )
        reached |= _chance(forecast, WEEK)[struck] >= failure
        odd |= forecast.change_p[struck] < degrading
        watched |= _chance(forecast, MONTH)[struck] >= _watch_p(state)
    return {
        "bursts": BURSTS,
        "failure": int(reached.sum()),
        "odd": int(odd.sum()),
        "watched": int((odd | watched).sum()),
    }


def storms(seed: int) -> Figures:
    """Onsets, their minutes spread over an hour: how many are at watch when that hour ends, and by which minutes of
    storm at least; who reaches the failure threshold. Eight rows are remapped, the siblings have no errors."""
    rng = np.random.default_rng(seed)
    fleet, _ = make_fleet(seed)
    failure, degrading = thresholds()
    begin_s = (FIRST_DAY + LEDGER_DAYS + 20) * DAY_S
    state = forecaster().fit(history_at(fleet, begin_s))
    seen, failed = 0, 0
    for row, minutes in zip(rng.choice(_calm(fleet), STORMS).tolist(), np.linspace(0, 59, STORMS), strict=True):
        errors = np.zeros((GPUS, COLUMNS))
        lasts = np.clip(np.arange(1, 7) * 600.0 - 60.0 * minutes, 0.0, 600.0)  # of the hour's ten-minute steps
        errors[row, COLUMNS - 6 :] = STORM_PER_S * lasts
        history = history_at(fleet, begin_s + HOUR_S, {Signal.SBE_AGGREGATE: errors})
        rows = np.repeat(row, int(STORM_REMAPS))
        forecast = forecaster().forecast(
            state, _repaired(history, rows, np.repeat(begin_s + 60.0 * minutes, len(rows)))
        )
        seen += int(forecast.change_p[row] < degrading)
        failed += int(_chance(forecast, WEEK)[row] >= failure)
    return {"storms": STORMS, "seen": seen, "failure": failed}


def over(seeds: Sequence[int]) -> Figures:
    """All three over the seeds."""
    failure, degrading = thresholds()
    worn = [wear(seed)["p"] for seed in seeds]
    p = {lead: np.concatenate([np.array(each[lead]) for each in worn]) for lead in worn[0]}
    burst, storm = [bursts(seed) for seed in seeds], [storms(seed) for seed in seeds]
    return {
        "seeds": list(seeds),
        "failure_p_7d": failure,
        "degrading_p": degrading,
        "wears": len(p[str(LEADS_H[0])]),
        "wears_above": {lead: int((values >= failure).sum()) for lead, values in p.items()},
        "bursts": {name: sum(each[name] for each in burst) for name in burst[0]},
        "storms": {name: sum(each[name] for each in storm) for name in storm[0]},
    }


def _calm(fleet: Fleet) -> NDArray[np.intp]:
    """Those to whom nothing happens."""
    return np.flatnonzero(~np.isin(np.arange(GPUS), fleet.events.row))


def _chance(forecast: Forecast, horizon: int) -> NDArray[np.float64]:
    return 1.0 - np.exp(-forecast.cumulative_hazard[:, T2, horizon].astype(np.float64))


def _watch_p(state: Arrays) -> float:
    """P(T2, 30 d) from which a GPU of this site is at watch."""
    return class_priors(load_priors())["memory"].at_site(float(state[SITE_RATIO])).watch_p_30d


def _repaired(history: FleetHistory, rows: NDArray[np.signedinteger[Any]], at_s: NDArray[np.float64]) -> FleetHistory:
    """The history with one more row remapped for correctable errors of each of `rows`, and its XID 63 at the moment."""
    remapped = history.daily.get("correctable_remaps_rows").copy()
    np.add.at(remapped[:, -1], rows, 1.0)
    daily = replace(history.daily, features={**history.daily.features, "correctable_remaps_rows": remapped})
    order = np.argsort(at_s, kind="stable")
    log = history.events
    for kind, value in ((EventKind.XID, REMAPPED_XID), (EventKind.CORRECTABLE_REMAP, 1.0)):
        told, values = np.full(len(rows), kind, np.int16), np.full(len(rows), value)
        log = log.merged(EventLog(rows[order].astype(np.int32), at_s[order], at_s[order], told, values))
    return replace(history, daily=daily, events=log)


def _events(row: NDArray[np.intp], at_s: NDArray[np.float64]) -> EventLog:
    """An uncorrectable error with its row remapped, at each moment."""
    log = EventLog()
    for kind in (EventKind.DOUBLE_BIT_ERROR, EventKind.UNCORRECTABLE_REMAP):
        order = np.argsort(at_s, kind="stable")
        ends = np.full(len(row), OPEN)
        told = np.full(len(row), kind, np.int16)
        log = log.merged(EventLog(row[order].astype(np.int32), at_s[order], ends, told, np.ones(len(row))))
    return log
