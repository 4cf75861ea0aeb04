"""Slow, obvious twins of what the study of throttling_cascade counts."""

from collections.abc import Sequence


def first_fact(places: Sequence[Sequence[float]], within_s: float) -> float:
    """When half of the members of a place, and three at least, have begun within `within_s`; inf: never.

    places: of each place when its members began, inf = never.
    """
    found = float("inf")
    for began in places:
        needed = max(3, (len(began) + 1) // 2)
        for last in began:
            together = sum(1 for other in began if last - within_s <= other <= last < float("inf"))
            if together >= needed:
                found = min(found, last)
    return found


def dose_by_bin(times_s: Sequence[float], seconds: Sequence[float], start_s: float, bins: int) -> list[float]:
    """Seconds in each ten minutes (start, start + 600], counted from `start_s`; what lies at `start_s` is bin 0."""
    found = [0.0] * bins
    for at, dose in zip(times_s, seconds, strict=True):
        number = 0
        while start_s + 600.0 * number < at:
            number += 1
        found[number] += dose
    return found
