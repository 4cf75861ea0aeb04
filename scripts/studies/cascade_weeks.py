"""Weeks of a fleet's life, simulated a day at a time and looked at every ten minutes, with or without faults."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.daily import daily_row
from healthsvc.features.events import LEAD_IN_S, ONSET_BIN_S, ONSET_DOSE, detect_events
from healthsvc.features.onset_bins import grid_of_day, sample_bins
from healthsvc.features.windows import WINDOW_S as BIN_S
from healthsvc.features.windows import flow_by_gpu, inlet_by_gpu, summarise, thermal_throttle_seconds
from healthsvc.fleet import (
    DAY_S,
    MINUTE_S,
    DailyLedger,
    EventLog,
    FleetHistory,
    Floats,
    OnsetBins,
    build_topology,
)
from healthsvc.simulator.fleet import FleetSimulator
from healthsvc.simulator.scenario import parse_scenario
from scripts.studies.cascade_fleet import (
    START_S,
    WINDOW_S,
    Site,
    days_of,
    fleet_table,
    placement,
)
from scripts.studies.thermal_places import Seen, joined

CADENCE = 10  # minutes
BINS_A_DAY = round(DAY_S / BIN_S)
NORMAL_DAYS = 2  # before the first verdict
NODES_A_LOOP, RACKS_A_LOOP = 4, 2
Population = Mapping[str, Any]


def decoys(loops: int, days: float) -> list[Population]:
    """What makes healthy GPUs warm: weather of days, jobs that begin to work harder, boards that were always hot."""
    whole = [0.0, days]
    return [
        _population("heat_wave", days / 7, whole, [0.5, 2.0], rise_celsius=[3.0, 8.0], ramp_hours=[3.0, 12.0]),
        _population("workload_step", NODES_A_LOOP * loops * days / 10, whole, [0.2, 2.0], step_percent=[10.0, 40.0]),
        _population("constant_hot", 0.5 * loops, 0.0, None, excess_percent=[5.0, 12.0]),
    ]


def cooling_faults(loops: int, days: float) -> list[Population]:
    """Pumps and fans that fail at all speeds and to all depths, each repaired within hours."""
    whole = [0.0, days]
    return [
        _population(
            "loop_flow_loss",
            loops * days / 3,
            whole,
            [0.05, 0.3],
            ramp_minutes={"log_uniform": [1.0, 240.0]},
            remaining_ratio=[0.15, 0.9],
        ),
        _population(
            "node_fan_fault",
            NODES_A_LOOP * loops * days / 20,
            whole,
            [0.1, 0.5],
            ramp_hours=[0.0, 3.0],
            remaining_ratio=[0.3, 0.8],
        ),
    ]


def _population(kind: str, count: float, start: Any, lasts: Any, **severity: Any) -> Population:
    table = {"kind": kind, "count": max(round(count), 1), "start_day": start, **severity}
    if lasts is not None:
        table["lasts_days"] = lasts
    return table if kind in ("heat_wave", "loop_flow_loss") else {**table, "may_overlap": True}


@dataclass
class Life:
    """A fleet from its first day on; `histories` is to be run through once and leaves `dose` behind it.

    dose float32[gpu, bin]: seconds throttled by heat in each ten minutes since the beginning.
    """

    loops: int
    days: int
    populations: list[Population]
    seed: int
    site: Site = field(default_factory=Site)
    dose: Floats = field(init=False)
    _bins: tuple[OnsetBins, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        table = {"name": "weeks", "days": self.days, "fleet": fleet_table(self.loops), "population": self.populations}
        self.simulator = FleetSimulator(parse_scenario(table, "weeks"), np.random.default_rng(self.seed), START_S)
        self.topology = build_topology(self.simulator.gpus, placement(self.simulator.layout, self.site))
        self.dose = np.zeros((len(self.simulator.gpus), self.days * BINS_A_DAY + 1), np.float32)

    @property
    def throttles(self) -> NDArray[np.bool_]:
        """bool[gpu, bin]: for more than a hundredth of it."""
        return np.asarray(self.dose > ONSET_DOSE * BIN_S)

    def bin_at(self, now_s: float) -> int:
        """The bin that ends at `now_s`."""
        return round((now_s - START_S) / BIN_S)

    def histories(self) -> Iterator[FleetHistory]:
        """What is known every ten minutes, once the first days have said what is normal."""
        finished: list[DailyLedger] = []
        events, until_s = EventLog(), -np.inf
        node = self.topology.group("node", len(self.simulator.gpus))
        lead, columns = round(LEAD_IN_S / MINUTE_S) + CADENCE, round(WINDOW_S / MINUTE_S)
        for seen in days_of(self.simulator, self.site):
            window = seen.window
            self._note_dose(seen)
            daily = joined(finished) if finished else None
            new = (window.times_s % (CADENCE * MINUTE_S) == 0) & (np.arange(len(window.times_s)) >= columns)
            for end in np.flatnonzero(new & (window.times_s > until_s)) + 1:
                tail = window.columns(slice(end - lead, end))
                events = events.merged(detect_events(tail, node, until_s - ONSET_BIN_S))
                until_s = tail.now_s
                if daily is None or len(daily.days) < NORMAL_DAYS:
                    continue
                around = {s: replace(p, values=p.values[:, end - columns : end]) for s, p in seen.environment.items()}
                recent = window.columns(slice(end - columns, end))
                yield FleetHistory(recent, daily, events, self.topology, around, onset_bins=self._bins)
            finished.append(self._digest(seen))

    def _note_dose(self, seen: Seen) -> None:
        today = seen.window.times_s >= (seen.window.times_s[-1] // DAY_S) * DAY_S
        times_s = seen.window.times_s[today]
        seconds = np.nan_to_num(thermal_throttle_seconds(seen.window)[:, today])
        place = np.ceil((times_s - START_S) / BIN_S).astype(np.intp)
        bins, starts = np.unique(place, return_index=True)
        self.dose[:, bins] += np.add.reduceat(seconds, starts, axis=1)

    def _digest(self, seen: Seen) -> DailyLedger:
        """The ledger row of the day, and its sample of ten minutes kept."""
        window, gpus = seen.window, seen.window.gpus
        around = (seen.environment, self.topology, gpus, len(window.times_s))
        day = int(np.floor((window.times_s[-1] - 1.0) / DAY_S))
        whole = summarise(window, inlet_by_gpu(*around), flow_by_gpu(*around))
        whole = whole.within(day * DAY_S, (day + 1) * DAY_S)
        row = daily_row(whole, self.topology, window.step_s, day, unfinished=False)
        grid = grid_of_day(whole, row.get("gpu_log_resistance")[:, -1], self.topology)
        self._bins = (*self._bins, sample_bins(grid, self.topology, gpus))
        return row
