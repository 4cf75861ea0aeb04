"""One metric's series made fit for the grid: in order of time, in base units, without what is no measurement."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import LIVENESS, Signal
from healthsvc.telemetry.catalogue.rows import EnvironmentRow, Row
from healthsvc.telemetry.framing.hygiene import keep_forward, reject_blanks, reject_implausible, reject_jumps, without
from healthsvc.telemetry.framing.readings import Readings
from healthsvc.telemetry.framing.units import (
    UNITS,
    Unit,
    UnitJudge,
    contradicts,
    prove_slope,
    slopes,
    split_clock,
    split_share,
)
from healthsvc.telemetry.identity.labels import HOST_LABELS, place_name

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Series of known rows: labels[i] has the next counts[i] of times_s and values, and belongs to rows[i]."""

    signal: Signal
    labels: Sequence[Mapping[str, str]]
    rows: NDArray[np.intp]
    values: Floats
    times_s: Floats
    counts: NDArray[np.int64]

    @property
    def signal_of_life(self) -> bool:
        """Whether these samples tell how often the GPU is asked."""
        return self.signal in LIVENESS

    def chosen(self, which: NDArray[np.bool_]) -> "Series":
        """Only these series."""
        if which.all():
            return self
        kept = np.repeat(which, self.counts)
        return replace(
            self,
            labels=[labels for labels, good in zip(self.labels, which.tolist(), strict=True) if good],
            rows=self.rows[which],
            values=self.values[kept],
            times_s=self.times_s[kept],
            counts=self.counts[which],
        )


def clean(
    series: Series,
    row: Row | EnvironmentRow,
    judge: UnitJudge,
    readings: Readings | None,
    rejected: Counter[str],
    now_s: float,
) -> Series:
    """`series` in base units; what is rejected is NaN or gone, and counted in `rejected`."""
    values, times_s, counts = series.values, series.times_s, series.counts
    kept = keep_forward(times_s, counts, now_s, rejected)
    if kept is not None:
        values, times_s, counts = without(kept, values, times_s, counts)
    series = replace(series, values=reject_blanks(values, rejected), times_s=times_s, counts=counts)
    if isinstance(row, Row):
        if row.code_label:
            if readings is not None:
                readings.add(row, row.by_name, series.rows, "")
            return series
        series = replace(series, values=_in_base_units(series, row, judge, readings))
    values = reject_implausible(series.values, row.signal, rejected)
    return replace(series, values=reject_jumps(values, times_s, counts, row.signal, rejected))


def _in_base_units(series: Series, row: Row, judge: UnitJudge, readings: Readings | None) -> Floats:
    by_name = row.by_name
    if by_name.family == "clock":
        return _clocks(series, row, readings)
    if by_name.family == "share":
        return _shares(series, row, judge, readings)
    if by_name.family in ("energy", "time"):
        return _counters(series, row, judge, readings)
    if readings is not None:
        readings.add(row, by_name, series.rows, "")
    return series.values if by_name.factor == 1.0 else series.values * by_name.factor


def _clocks(series: Series, row: Row, readings: Readings | None) -> Floats:
    """Every sample tells its unit by itself."""
    values, hertz, megahertz = series.values, UNITS["hertz"], UNITS["megahertz"]
    if not len(values):
        return values
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    if high < 1e6:
        unit, why = (megahertz, "no clock is below 1 MHz") if high > 0 else (row.by_name, "")
        _tell(readings, row, unit, series.rows, why)
        return values * megahertz.factor
    if low >= 1e6:
        _tell(readings, row, hertz, series.rows, "no clock is above 1 THz")
        return values
    slow = split_clock(values) & (values > 0)
    own = np.repeat(np.arange(len(series.rows)), series.counts)
    _tell(readings, row, megahertz, series.rows[np.unique(own[slow])], "no clock is below 1 MHz")
    _tell(readings, row, hertz, series.rows[np.unique(own[values >= 1e6])], "no clock is above 1 THz")
    return np.where(slow, values * megahertz.factor, values)


def _shares(series: Series, row: Row, judge: UnitJudge, readings: Readings | None) -> Floats:
    """Every sample tells its unit by itself, but for 0 and 1, which go with their neighbours."""
    values, ratio, percent = series.values, UNITS["ratio"], UNITS["percent"]
    if not len(values):
        return values
    by_name = row.by_name
    above = values > 1.0
    between = (values > 0.0) & (values < 1.0)
    if by_name is percent and not between.any() and not judge.knows(row.metric):
        _tell(readings, row, percent, series.rows, "its values exceed 1" if above.any() else "")
        return values * percent.factor
    if by_name is ratio and not above.any() and not judge.knows(row.metric):
        _tell(readings, row, ratio, series.rows, "its values lie between 0 and 1" if between.any() else "")
        return values
    hosts = _hosts(series)
    default = np.array([judge.unit(row.metric, host, by_name) is percent for host in hosts], bool)
    own = np.repeat(np.arange(len(series.rows)), series.counts)
    # What one GPU of a host proves holds for its idle neighbours too.
    default = _spread(default, hosts, own[above], own[between])
    in_percent = split_share(values, own, default)
    last = np.cumsum(series.counts) - 1
    for proven, unit, why in ((above, percent, "its values exceed 1"), (between, ratio, "they lie between 0 and 1")):
        which = np.unique(own[proven])
        _tell(readings, row, unit, series.rows[which], why)
    silent = np.setdiff1d(np.arange(len(series.rows)), np.unique(own[above | between]))
    for unit, chosen in ((percent, silent[default[silent]]), (ratio, silent[~default[silent]])):
        _tell(readings, row, unit, series.rows[chosen], "")
    newest = {hosts[i]: percent if in_percent[last[i]] else ratio for i in np.unique(own[above | between]).tolist()}
    for host, unit in newest.items():
        judge.learn(row.metric, (host,), unit, by_name)
    return np.where(in_percent, values * percent.factor, values)


def _spread(
    default: NDArray[np.bool_], hosts: Sequence[str], percent: NDArray[np.intp], ratio: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """`default` [series] with the verdict of those series of a host that prove one, where they agree."""
    said: dict[str, set[bool]] = {}
    for proven, found in ((True, percent), (False, ratio)):
        for i in np.unique(found).tolist():
            said.setdefault(hosts[i], set()).add(proven)
    agreed = {host: next(iter(each)) for host, each in said.items() if len(each) == 1}
    return np.array([agreed.get(host, bool(known)) for host, known in zip(hosts, default, strict=True)], bool)


def _counters(series: Series, row: Row, judge: UnitJudge, readings: Readings | None) -> Floats:
    """A counter's slope tells its unit; series too short to have one go with their host, else with the name."""
    by_name = row.by_name
    slope = slopes(series.values, series.times_s, series.counts)
    typical = float(np.nanmedian(slope)) if not np.isnan(slope).all() else float("nan")
    if not contradicts(by_name, slope) and not judge.knows(row.metric):
        _tell(readings, row, by_name, series.rows, prove_slope(by_name.family, typical).why)
        return series.values if by_name.factor == 1.0 else series.values * by_name.factor
    evidence = [prove_slope(by_name.family, each) for each in slope.tolist()]
    hosts = _hosts(series)
    proven: dict[str, Unit] = {}
    why: dict[str, str] = {}
    for host, each in zip(hosts, evidence, strict=True):
        if each.unit is not None:
            proven[host], why[host] = each.unit, each.why
    for host, unit in proven.items():
        judge.learn(row.metric, (host,), unit, by_name)
    units = [proven.get(host) or judge.unit(row.metric, host, by_name) for host in hosts]
    for unit in sorted(set(units), key=lambda unit: unit.name):
        which = [i for i, each in enumerate(units) if each is unit]
        told = next((why[hosts[i]] for i in which if hosts[i] in why), "")
        _tell(readings, row, unit, series.rows[which], told)
    factors = np.array([unit.factor for unit in units], np.float64)
    scaled: Floats = series.values * np.repeat(factors, series.counts)
    return scaled


def _hosts(series: Series) -> list[str]:
    return [place_name(labels, HOST_LABELS) for labels in series.labels]


def _tell(readings: Readings | None, row: Row, unit: Unit, rows: NDArray[np.intp], why: str) -> None:
    if readings is not None:
        readings.add(row, unit, rows, why)
