"""Which samples are no measurement: DCGM's blanks, readings that no hardware can have, times that run backwards.

Pure: arrays in, arrays out. A rejected value becomes NaN and is counted by its reason (source.REASONS). Samples lie end
to end, series after series, as in decode.Samples.
"""

from collections import Counter
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import COUNTERS, THERMAL_THROTTLE_SOURCES, YEAR_S, Signal
from healthsvc.telemetry.framing.units import HIGHEST_WATTS, SLACK_S

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# DCGM writes "blank, not found, not supported, not permitted" as the last numbers of each type (dcgm_structs.h). In
# float64 the four int64 values are one. They are matched exactly: 2**47 ns is 39 h of throttling, so "at least 2**47"
# would throw away legal counters.
BLANKS = np.array([*(2147483632.0 + k for k in range(4)), *(2.0**47 + k for k in range(4)), 2.0**63])

_LARGEST = 1e30  # in any unit; beyond it a change of unit could leave the range of numbers
_TEMPERATURE = (-20.0, 150.0)
_LIMIT_TEMPERATURE = (1.0, 150.0)
_LIFE_S = 20 * YEAR_S
_THROTTLED = (*THERMAL_THROTTLE_SOURCES, Signal.POWER_BRAKE_THROTTLE)
# In the InfoROM for life; NVIDIA allows 512 remaps and 64 pages.
_REPAIRS = (
    Signal.RETIRED_PAGES_SBE,
    Signal.RETIRED_PAGES_DBE,
    Signal.CORRECTABLE_REMAPS,
    Signal.UNCORRECTABLE_REMAPS,
)
PLAUSIBLE = MappingProxyType(
    {
        Signal.GPU_TEMPERATURE: _TEMPERATURE,
        Signal.MEMORY_TEMPERATURE: (1.0, 150.0),
        Signal.GPU_TEMPERATURE_MARGIN: (-50.0, 150.0),  # signed: beyond the limit it is negative
        Signal.POWER: (0.0, 20_000.0),
        Signal.SM_CLOCK: (0.0, 1e10),
        Signal.GPU_UTILIZATION: (0.0, 1.0),
        Signal.POWER_LIMIT: (1.0, 20_000.0),
        Signal.GPU_MAX_OPERATING_LIMIT: _LIMIT_TEMPERATURE,
        Signal.GPU_SLOWDOWN_LIMIT: _LIMIT_TEMPERATURE,
        Signal.GPU_SHUTDOWN_LIMIT: _LIMIT_TEMPERATURE,
        Signal.MEMORY_MAX_OPERATING_LIMIT: _LIMIT_TEMPERATURE,
        Signal.CLOCK_EVENT_REASONS: (0.0, 2.0**63 - 1024),
        Signal.XID: (0.0, 9_999.0),
        Signal.RETIRED_PAGES_PENDING: (0.0, 1.0),
        Signal.REMAP_FAILURE: (0.0, 1.0),
        Signal.REMAP_PENDING: (0.0, 1.0),
        Signal.SRAM_THRESHOLD: (0.0, 1.0),
        Signal.UNREPAIRABLE: (0.0, 1.0),
        Signal.INLET: _TEMPERATURE,
        Signal.COOLANT_SUPPLY: _TEMPERATURE,
        Signal.COOLANT_FLOW: (0.0, 1e6),
        Signal.RATED_COOLANT_FLOW: (1e-6, 1e6),
    }
    | dict.fromkeys(COUNTERS, (0.0, 1e13))  # errors: 17,700 a second, the most ever seen, for 18 years
    | {Signal.ENERGY: (0.0, HIGHEST_WATTS * _LIFE_S)}
    | dict.fromkeys(_THROTTLED, (0.0, _LIFE_S))
    | dict.fromkeys((*_REPAIRS, Signal.BANKS_LOW, Signal.BANKS_NONE), (0.0, 65_536.0))
)
# What reports 0 where the board lacks the sensor, the limit or the counter, and is never 0 where it has it
# (dcgm-exporter 460; T4, L4, L40S, vGPU). The energy counter is 0 for no longer than a driver takes to load.
ZERO_IS_ABSENT = frozenset(
    {
        Signal.MEMORY_TEMPERATURE,
        Signal.POWER_LIMIT,
        Signal.GPU_MAX_OPERATING_LIMIT,
        Signal.GPU_SLOWDOWN_LIMIT,
        Signal.GPU_SHUTDOWN_LIMIT,
        Signal.MEMORY_MAX_OPERATING_LIMIT,
        Signal.ENERGY,
    }
)

# A gauge that leaves both its neighbours by more than this within SPIKE_S, in one direction, is no measurement. Power,
# clocks and utilisation may step anywhere in an instant and are not judged. A die heats by at most about 60 degrees
# when full load meets an idle board (H100: 30 to 87 celsius), and its cooler then needs minutes to give that back.
SPIKES = MappingProxyType({Signal.GPU_TEMPERATURE: 60.0, Signal.MEMORY_TEMPERATURE: 60.0, Signal.INLET: 25.0})
SPIKE_S = 300.0
# A counter cannot rise faster than this a second: a board's watts; a second of throttling a second. SLACK_S comes on
# top, since samples may be older than their scrape.
FASTEST = MappingProxyType({Signal.ENERGY: HIGHEST_WATTS, **dict.fromkeys(_THROTTLED, 1.0)})
_FARTHEST_S = 1e12  # of any time from 1970: 31,000 years, or milliseconds that were taken for seconds
# What is kept for life falls only if somebody clears it, and then stays low: a fall that is taken back never was.
FOR_LIFE = frozenset({*_REPAIRS, Signal.SBE_AGGREGATE, Signal.DBE_AGGREGATE})


def reject_blanks(raw: Floats, rejected: Counter[str]) -> Floats:
    """`raw` with blanks and what is no number as NaN; itself where there is none. Blanks are matched before scaling.

    A NaN is no number whether the exporter wrote it or the series ended (Prometheus' stale marker is a NaN).
    """
    if not len(raw):
        return raw
    highest = raw.max()
    if highest < BLANKS[0] and raw.min() > -_LARGEST:  # one NaN makes both comparisons false
        return raw
    number = np.isfinite(raw)
    with np.errstate(invalid="ignore"):
        absurd = number & (np.abs(raw) > _LARGEST)
    large = np.flatnonzero(raw >= BLANKS[0])
    blank = large[np.isin(raw[large], BLANKS)]
    rejected["blank"] += len(blank)
    rejected["not_a_number"] += int(np.count_nonzero(~number))
    rejected["out_of_range"] += int(np.count_nonzero(absurd))
    cleaned: Floats = np.where(number & ~absurd, raw, np.nan)
    cleaned[blank] = np.nan
    return cleaned


def reject_implausible(values: Floats, signal: Signal, rejected: Counter[str]) -> Floats:
    """`values` in base units with NaN where no hardware can have them; itself where all are plausible.

    A 0 of what is never 0 means that the board has no such sensor. Blind to a wrong reading inside the range.
    """
    low, high = PLAUSIBLE.get(signal, (-np.inf, np.inf))
    zero = signal in ZERO_IS_ABSENT
    if not len(values):
        return values
    with np.errstate(invalid="ignore"):
        least = values.min()
        if least >= low and values.max() <= high and not (zero and least <= 0.0):
            return values
        absent = values == 0.0 if zero else np.zeros(0, bool)
        outside = (values < low) | (values > high)
    if zero:
        rejected["no_sensor"] += int(np.count_nonzero(absent))
        outside &= ~absent
    rejected["out_of_range"] += int(np.count_nonzero(outside))
    cleaned = np.where(outside, np.nan, values)
    if zero:
        cleaned[absent] = np.nan
    return cleaned


def reject_jumps(values: Floats, times_s: Floats, counts: Counts, signal: Signal, rejected: Counter[str]) -> Floats:
    """`values` without readings that leave their neighbours as no hardware can; itself where there is none.

    Equal readings in a row count as one, because an exporter's reading is scraped more than once. A reading at an end
    of its series stays unless the one before it is confirmed by another. Blind to a wrong level that stays for longer
    than SPIKE_S, for that is a step; and to what one read alone cannot see: the neighbours before and after it.
    """
    if len(values) < 2 or not (signal in SPIKES or signal in FASTEST or signal in FOR_LIFE):
        return values
    if signal in SPIKES and np.nanmax(values, initial=-np.inf) - np.nanmin(values, initial=np.inf) <= SPIKES[signal]:
        return values
    ends = np.cumsum(counts)
    with np.errstate(invalid="ignore"):
        suspect = ~_ordinary(np.diff(values), np.diff(times_s), signal)  # a NaN hides the step across it
    suspect[ends[(ends > 0) & (ends < len(values))] - 1] = False  # from one series to the next
    places = np.flatnonzero(suspect)
    if not len(places):
        return values
    cleaned = values.copy()
    for number in np.unique(np.searchsorted(ends, places, side="right")).tolist():  # few: series with a jump
        part = slice(int(ends[number] - counts[number]), int(ends[number]))
        wrong = _spikes(values[part], times_s[part], signal)
        cleaned[part][wrong] = np.nan
        rejected["impossible_jump"] += len(wrong)
    return cleaned


def _ordinary(rise: Floats, apart_s: Floats, signal: Signal) -> NDArray[np.bool_]:
    """Steps that need no second look. A fall of a counter does: it is a reset, or it is taken back."""
    if signal in SPIKES:
        small: NDArray[np.bool_] = np.abs(rise) <= SPIKES[signal]
        return small
    if signal in FASTEST:
        return (rise >= 0) & (rise <= FASTEST[signal] * (apart_s + SLACK_S))
    forward: NDArray[np.bool_] = rise >= 0
    return forward


def _spikes(values: Floats, times_s: Floats, signal: Signal) -> NDArray[np.intp]:
    """Positions of one series' impossible readings: there and back again within SPIKE_S."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2:
        return known[:0]
    v, t = values[known], times_s[known]
    new = np.append(True, v[1:] != v[:-1])
    begins = np.flatnonzero(new)  # runs of equal readings
    level, first, last = v[begins], t[begins], t[np.append(begins[1:], len(v)) - 1]
    step, apart_s = np.diff(level), first[1:] - last[:-1]
    if signal in SPIKES:
        near = apart_s <= SPIKE_S
        up, down = near & (step > SPIKES[signal]), near & (step < -SPIKES[signal])
    elif signal in FASTEST:
        up, down = step > FASTEST[signal] * (apart_s + SLACK_S), step < 0
    else:
        up, down = np.zeros(len(step), bool), step < 0
    taken_back = np.zeros(len(level), bool)
    if len(level) > 2:
        restored = level[2:] >= level[:-2] if signal in FOR_LIFE else up[1:]
        taken_back[1:-1] = (up[:-1] & down[1:]) | (down[:-1] & restored)
        # The newest reading, after one that its own predecessor confirms. A fall of a counter there is a reset.
        fell = down[-1] if signal in SPIKES else False
        taken_back[-1] = (up[-1] or fell) and not (up[-2] or down[-2])
    taken_back &= last - first <= SPIKE_S
    wrong: NDArray[np.intp] = known[taken_back[np.cumsum(new) - 1]]
    return wrong


def keep_forward(times_s: Floats, counts: Counts, now_s: float, rejected: Counter[str]) -> NDArray[np.bool_] | None:
    """Which samples come after all earlier ones of their series and not from the future; None: all of them.

    Of two samples with one time the first stays, as in Prometheus. now_s: the latest time that is believed.
    """
    if not len(times_s):
        return None
    ends = np.cumsum(counts)
    inside = ends[(ends > 0) & (ends < len(times_s))] - 1
    rising = times_s[1:] > times_s[:-1]
    rising[inside] = True
    now_s = min(now_s, _FARTHEST_S)
    if rising.all() and times_s.max() <= now_s and times_s.min() >= -_FARTHEST_S:  # NaN makes them false
        return None
    series = np.repeat(np.arange(len(counts)), counts)
    with np.errstate(invalid="ignore"):
        known = np.isfinite(times_s) & (times_s >= -_FARTHEST_S)
    future = known & (times_s > now_s)
    usable = known & ~future
    # Series lie apart on one axis, so that one running maximum serves all of them.
    low = times_s[usable].min() if usable.any() else 0.0
    width = (times_s[usable].max() - low if usable.any() else 0.0) + 1.0
    placed = np.where(usable, times_s - low, -1.0) + series * (2.0 * width)
    newest = np.append(-np.inf, np.maximum.accumulate(placed)[:-1])
    kept: NDArray[np.bool_] = usable & (placed > newest)
    rejected["future"] += int(np.count_nonzero(future))
    rejected["not_a_number"] += int(np.count_nonzero(~known))
    rejected["duplicate_time"] += int(np.count_nonzero(usable & (placed == newest)))
    rejected["out_of_order"] += int(np.count_nonzero(usable & (placed < newest)))
    return kept


def without(kept: NDArray[np.bool_], values: Floats, times_s: Floats, counts: Counts) -> tuple[Floats, Floats, Counts]:
    """Values, times and counts of the samples that are kept."""
    series = np.repeat(np.arange(len(counts)), counts)
    return values[kept], times_s[kept], np.bincount(series[kept], minlength=len(counts)).astype(np.int64)
