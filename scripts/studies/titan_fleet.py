"""The 30,207 GPUs of Titan and their failures, as far as they were known at a moment: GPU life data, not telemetry.

Source: TitanGPULife (Ostrouchov et al., SC 2020): when each board was put where and taken out, and with which event. A
row without a date of insertion is one more event within a stay. One outcome a GPU and origin: an event of the kind
within 30 days, while it is in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from healthsvc.features.hazard import PersonTime
from healthsvc.features.recurrence import merge_episodes
from healthsvc.fleet import DAY_S, EventKind, EventLog

NAME = "titan-gpu-life"  # the folder among the shared data
KINDS: Mapping[str, tuple[str, ...]] = {"DBE": ("DBE",), "off the bus": ("OTB",), "either": ("DBE", "OTB")}
FIRST_ORIGIN = "2015-01-01"
HORIZON_S = 30 * DAY_S
BLOCK_S = 30 * DAY_S
YEAR_DAYS = 365.25

Numbers = NDArray[np.float64]


def moment_s(date: str) -> float:
    """Midnight of a date, in seconds."""
    return float(pd.Timestamp(date, tz="UTC").timestamp())


def origins_s(begin: str, end: str) -> list[float]:
    """Every 30 days from 2015-01-01 on, those in [begin, end)."""
    last = moment_s(end)
    steps = np.arange(moment_s(FIRST_ORIGIN), last, HORIZON_S)
    return [float(step) for step in steps if step >= moment_s(begin)]


@dataclass(frozen=True)
class Titan:
    """One row a GPU: serial; stays and events one entry each, `stay_*` and events' `row` numbering the GPUs.

    first_s [gpu]: the first known insertion; batch [gpu]: the first digits of the serial; stay_cage: 0 the lowest of
    the three in a cabinet, which the cool air meets first, NaN unknown.
    """

    serial: tuple[str, ...]
    batch: NDArray[np.str_]
    first_s: Numbers
    stay_row: NDArray[np.intp]
    stay_begin_s: Numbers
    stay_end_s: Numbers
    stay_cage: Numbers
    events: Mapping[str, EventLog]
    _episodes: dict[str, EventLog] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def batches(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.batch.tolist())))

    def episodes(self, kind: str) -> EventLog:
        """One a GPU and day, in order of GPU and start."""
        if kind not in self._episodes:
            self._episodes[kind] = merge_episodes(self.events[kind])
        return self._episodes[kind]

    def in_place(self, now_s: float) -> NDArray[np.intp]:
        """The stay of each GPU that was in the machine at the moment; of two at once the later row."""
        there = np.flatnonzero((self.stay_begin_s <= now_s) & (self.stay_end_s > now_s))
        newest = {int(self.stay_row[stay]): int(stay) for stay in there.tolist()}
        return np.array(sorted(newest.values()), np.intp)

    def failed_within(self, kind: str, rows: NDArray[np.intp], now_s: float) -> Numbers:
        """1 for each GPU of `rows` with an event of the kind in (now, now + 30 days]."""
        log = self.events[kind]
        soon = log.row[(log.start_s > now_s) & (log.start_s <= now_s + HORIZON_S)]
        return np.isin(rows, soon).astype(np.float64)

    def covariates(self, stays: NDArray[np.intp], at_s: Numbers) -> Numbers:
        """[stay, covariate]: log of years since the first insertion, cage less the middle one, one column a batch."""
        rows = self.stay_row[stays]
        years = np.maximum(at_s - self.first_s[rows], DAY_S) / (YEAR_DAYS * DAY_S)
        cage = np.where(np.isnan(self.stay_cage[stays]), 0.0, self.stay_cage[stays] - 1.0)
        batch = (self.batch[rows][:, None] == np.array(self.batches)[None, :]).astype(np.float64)
        return np.concatenate([np.log(years)[:, None], cage[:, None], batch], axis=1)

    def person_time(self, kind: str, begin_s: float, end_s: float) -> tuple[PersonTime, NDArray[np.intp]]:
        """What was lived through in [begin, end), and the stay of each cell: days of GPUs that have had an event, whose
        hazard moves from day to day; 30 days of the others."""
        log = self.events[kind]
        struck = np.isin(self.stay_row, log.row[log.start_s < end_s])
        parts = []
        for rows, step_s in ((struck, DAY_S), (~struck, BLOCK_S)):
            edges = np.arange(begin_s, end_s, step_s)
            stays = np.flatnonzero(rows & (self.stay_begin_s < end_s) & (self.stay_end_s > begin_s))
            start = np.maximum(edges[None, :], self.stay_begin_s[stays][:, None])
            stop = np.minimum(np.minimum(edges[None, :] + step_s, end_s), self.stay_end_s[stays][:, None])
            stay, edge = np.nonzero(stop > start)
            parts.append((stays[stay], start[stay, edge], stop[stay, edge]))
        stays, start, stop = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return PersonTime(self.stay_row[stays], start, stop, stop - start), stays


def load(folder: Path) -> Titan:
    """Read gc_full.csv. Raises FileNotFoundError naming it."""
    table = pd.read_csv(folder / "gc_full.csv", dtype={"SN": str, "location": str, "event": str})
    for column in ("insert", "remove"):
        table[column] = pd.to_datetime(table[column], utc=True)
    seconds = {name: (table[name] - pd.Timestamp(0, tz="UTC")).dt.total_seconds() for name in ("insert", "remove")}
    serial = tuple(sorted(set(table["SN"])))
    number = {name: row for row, name in enumerate(serial)}
    row = table["SN"].map(number).to_numpy(np.intp)
    begin, end = (seconds[name].to_numpy(np.float64) for name in ("insert", "remove"))
    stay = ~np.isnan(begin)
    first = np.full(len(serial), np.inf)
    np.minimum.at(first, row[stay], begin[stay])
    cage = table["location"].str.extract(r"c\d+-\d+c(\d)s")[0].astype(float).to_numpy()
    return Titan(
        serial,
        np.array([name[:4] for name in serial]),
        np.where(np.isfinite(first), first, np.nan),
        row[stay],
        begin[stay],
        end[stay] + 1.0,  # the event that ended a stay lies within it
        cage[stay],
        {kind: _log(row, end, table["event"].isin(codes).to_numpy()) for kind, codes in KINDS.items()},
    )


def _log(row: NDArray[np.intp], at_s: Numbers, chosen: NDArray[np.bool_]) -> EventLog:
    """Events by their moment; what kind of memory or bus error it was is the caller's to know."""
    order = np.flatnonzero(chosen)[np.argsort(at_s[chosen], kind="stable")]
    return EventLog(
        row[order].astype(np.int32),
        at_s[order],
        at_s[order],
        np.full(len(order), EventKind.DOUBLE_BIT_ERROR, np.int16),
        np.ones(len(order)),
    )
