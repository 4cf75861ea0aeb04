"""Slow, obvious twins of the episodes of throttling. None stands for "no sample"."""

import math
from collections.abc import Sequence

Maybe = float | None
Episode = tuple[float, float, float]  # start_s, end_s, dose_s_per_hour


def episodes(times_s: Sequence[float], throttled_s: Sequence[Maybe]) -> list[Episode]:
    """Of one GPU, walking through the five-minute bins one by one."""
    bins: dict[int, float] = {}
    for at_s, seconds in zip(times_s, throttled_s, strict=True):
        number = math.ceil(at_s / 300)
        bins[number] = bins.get(number, 0.0) + (seconds or 0.0)
    spans: list[list[int]] = []
    for number in sorted(bins):
        if bins[number] <= 3.0:
            continue
        if spans and number - spans[-1][1] <= 6:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    now_s = times_s[-1]
    found: list[Episode] = []
    for first, last in spans:
        start_s, end_s = (first - 1) * 300.0, last * 300.0
        lasts = now_s - end_s < 1800
        hours = ((now_s if lasts else end_s) - start_s) / 3600
        dose_s = sum(bins[number] for number in range(first, last + 1))
        found.append((start_s, math.inf if lasts else end_s, min(dose_s / hours, 3600.0)))
    return found
