"""In which unit a metric's values are: its name says so, and their range proves it or proves the name wrong.

One name has carried two units (DCGM 4.6 calls a percentage GPU_UTIL_RATIO, 4.7 a ratio; energy in mJ or J; operators
type any name into the exporter's CSV), so a name alone is not enough:

- share: nothing but a percentage is above 1, nothing but a ratio lies between 0 and 1 (NVML counts whole percents).
  Decided sample by sample, since an upgrade changes it in the middle of a series; 1 itself goes with its neighbours.
- clock: no processor runs below 1 MHz or above 1 THz, so a number below 1e6 is megahertz.
- energy: a board draws 3 W to 3 kW, so the slope of its counter falls into one of three bands that do not overlap.
  A slope needs SLACK_S: between two scrapes a counter may hold the energy of a whole interval of the exporter, or none.
- time: a throttle counter rises by at most a second a second. A slope above 2e6 proves nanoseconds (NVML's unit,
  whatever help texts say); a smaller one proves nothing, since throttling may have been partial.

Sources: DCGM dcgm_fields.h and DcgmCacheManager (fields 156, 203, 240, 241), dcgm-exporter PR 589, DCGM PR 266.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Family = Literal["", "share", "clock", "energy", "time"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """base unit = value * factor. Units of one family can be told apart by their values."""

    name: str
    factor: float = 1.0
    family: Family = ""


UNITS = MappingProxyType(
    {
        unit.name: unit
        for unit in (
            *map(Unit, ("celsius", "watts", "count", "bool", "bitmask", "code", "liters_per_minute")),
            Unit("milliwatts", 1e-3),
            Unit("ratio", 1.0, "share"),
            Unit("percent", 1e-2, "share"),
            Unit("hertz", 1.0, "clock"),
            Unit("megahertz", 1e6, "clock"),
            Unit("joules", 1.0, "energy"),
            Unit("millijoules", 1e-3, "energy"),
            Unit("microjoules", 1e-6, "energy"),
            Unit("seconds", 1.0, "time"),
            Unit("microseconds", 1e-6, "time"),
            Unit("nanoseconds", 1e-9, "time"),
        )
    }
)
HIGHEST_WATTS = 3_000.0  # of one board
LOWEST_WATTS = 3.0
# A counter's sample may be this much older than its scrape: exporters collect every 30 s, or more seldom, and repeat
# the value in between. What rises within less time than that tells no slope.
SLACK_S = 120.0
_LEAST_HERTZ = 1e6
_SURE_NANOSECONDS = 2e6
_SPANS_LOOKED_AT = 16  # enough for a median, whatever the length of the history


@dataclass(frozen=True)
class Evidence:
    """What the values of one series prove: its unit (None: nothing), and in words why."""

    unit: Unit | None
    why: str


def slopes(values: Floats, times_s: Floats, counts: NDArray[np.int64]) -> Floats:
    """Typical rise per second of each series' counter [series]; NaN if it never rose, or is shorter than SLACK_S.

    The median over at most 17 spans of SLACK_S or more in which it rose and never fell, so that one wrong reading
    proves nothing; the last of them is the whole series.
    """
    found = np.full(len(counts), np.nan)
    ends = np.cumsum(counts)
    some = np.flatnonzero(counts > 1)
    some = some[times_s[ends[some] - 1] - times_s[ends[some] - counts[some]] >= SLACK_S]
    if not len(some):
        return found
    first, last = (ends - counts)[some], ends[some] - 1
    steps_of = counts[some] - 1
    # One more than the usual spacing asks for, since spacings differ a little.
    reach = np.ceil(SLACK_S * steps_of / (times_s[last] - times_s[first])).astype(np.int64) + 1
    places = np.linspace(0.0, 1.0, _SPANS_LOOKED_AT)
    start = first[:, None] + np.floor(places * np.maximum(steps_of - reach, 0)[:, None]).astype(np.int64)
    start = np.column_stack([start, first])
    end = np.column_stack([np.minimum(start[:, :-1] + reach[:, None], last[:, None]), last])
    with np.errstate(invalid="ignore"):
        falls = np.append(0, np.cumsum(values[1:] < values[:-1]))
        rise, apart = values[end] - values[start], times_s[end] - times_s[start]
        usable = (rise > 0) & (apart >= SLACK_S) & (falls[end] == falls[start])
    rose = usable.any(axis=1)
    slope = np.where(usable[rose], rise[rose] / np.where(usable[rose], apart[rose], 1.0), np.nan)
    found[some[rose]] = np.nanmedian(slope, axis=1)
    return found


def prove_slope(family: Family, slope: float) -> Evidence:
    """What a counter that rises by `slope` a second is counted in. NaN proves nothing."""
    if family == "energy" and slope > 0:
        for name in ("joules", "millijoules", "microjoules"):
            watts = slope * UNITS[name].factor
            if LOWEST_WATTS <= watts < HIGHEST_WATTS:
                return Evidence(UNITS[name], f"its values rise by {slope:.3g} a second: {name} at {watts:.3g} W")
        return Evidence(None, f"its values rise by {slope:.3g} a second, which is no board's energy in any unit")
    if family == "time" and slope > _SURE_NANOSECONDS:
        return Evidence(UNITS["nanoseconds"], f"its values rise by {slope:.3g} a second: nanoseconds")
    return Evidence(None, "")


def contradicts(unit: Unit, slope: Floats) -> bool:
    """Whether any of these slopes [series] can prove another unit than this one."""
    with np.errstate(invalid="ignore"):
        if unit.family == "energy":
            watts = slope * unit.factor
            return bool(((watts < LOWEST_WATTS) | (watts >= HIGHEST_WATTS)).any())
        return unit.name != "nanoseconds" and bool((slope > _SURE_NANOSECONDS).any())


def split_clock(values: Floats) -> NDArray[np.bool_]:
    """Which samples are in megahertz [sample]; 0 and NaN are in neither, and count as such."""
    megahertz: NDArray[np.bool_] = values < _LEAST_HERTZ
    return megahertz


def split_share(values: Floats, series: NDArray[np.intp], percent_by_default: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which samples are percentages [sample].

    series[sample]: the series of each, in one piece each. Samples that prove nothing (0, 1, NaN) go with the newest
    one of their series that does, else with the first that does, else by `percent_by_default`[series].
    """
    percent = values > 1.0
    proven = percent | ((values > 0.0) & (values < 1.0))
    if proven.all():
        return percent
    index = np.arange(len(values))
    newest = np.maximum.accumulate(np.where(proven, index, -1))
    after = np.minimum.accumulate(np.where(proven, index, len(values))[::-1])[::-1]
    has_newest = (newest >= 0) & (series[newest] == series)
    behind = np.minimum(after, len(values) - 1)
    has_after = (after < len(values)) & (series[behind] == series)
    found: NDArray[np.bool_] = np.where(
        has_newest, percent[newest], np.where(has_after, percent[behind], percent_by_default[series])
    )
    return found


@dataclass
class UnitJudge:
    """What is known of metrics whose values contradict their names, by (metric, host): hosts are upgraded one by one.

    A source keeps one for its life, so that a read of two samples is understood like a read of a day. It need not
    outlive the process: the first read that proves something knows it again. Blind to a counter whose unit changes
    while all reads are shorter than SLACK_S.
    """

    contradicted: dict[tuple[str, str], str] = field(default_factory=dict)

    def unit(self, metric: str, host: str, by_name: Unit) -> Unit:
        """The unit to use where the samples at hand prove nothing."""
        known = self.contradicted.get((metric, host))
        return by_name if known is None else UNITS[known]

    def learn(self, metric: str, hosts: Iterable[str], proven: Unit, by_name: Unit) -> None:
        """The samples of `metric` on `hosts` proved to be in `proven`, whatever was proved before."""
        for host in hosts:
            if proven is by_name:
                self.contradicted.pop((metric, host), None)
            else:
                self.contradicted[metric, host] = proven.name

    def knows(self, metric: str) -> bool:
        """Whether any host contradicts the metric's name."""
        return any(known == metric for known, _ in self.contradicted)
