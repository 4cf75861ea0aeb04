"""Moments and spans as this interface writes them."""

from healthsvc.fleet import DAY_S, HOUR_S, MINUTE_S, rfc3339


def timestamp(at_s: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the millisecond."""
    return rfc3339(at_s, "milliseconds")


def horizon_label(horizon_s: float) -> str:
    """30m, 2h, 24h, 7d: the `horizon` label."""
    if horizon_s < HOUR_S:
        return f"{horizon_s / MINUTE_S:g}m"
    return f"{horizon_s / HOUR_S:g}h" if horizon_s <= 2 * DAY_S else f"{horizon_s / DAY_S:g}d"
