"""Disjoint half hours: a test that is made once in each means what its threshold says, however short a cycle is."""

from healthsvc.fleet import FleetHistory

HALF_HOUR_S = 1800.0


def half_hour_ends(history: FleetHistory) -> bool:
    """Whether this cycle is the first after the end of a half hour."""
    now_s, step_s = history.now_s, history.recent.step_s
    return now_s // HALF_HOUR_S != (now_s - step_s) // HALF_HOUR_S
