"""Moments and spans as people and protocols write them."""

from datetime import UTC, datetime

HOUR_S, DAY_S = 3600, 86_400


def rfc3339(at_s: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def horizon_label(horizon_s: float) -> str:
    """30m, 2h, 24h, 7d: the `horizon` label."""
    if horizon_s < HOUR_S:
        return f"{horizon_s / 60:g}m"
    return f"{horizon_s / HOUR_S:g}h" if horizon_s <= 2 * DAY_S else f"{horizon_s / DAY_S:g}d"
