"""Spans of time, and moments as files and protocols write them."""

from datetime import UTC, date, datetime, timedelta

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
YEAR_S = 365.25 * DAY_S
MONTH_S = YEAR_S / 12
EPOCH = date(1970, 1, 1)


def rfc3339(at_s: float, timespec: str = "auto") -> str:
    """Unix seconds as RFC 3339 in UTC; empty for a moment that never comes (inf). timespec: as `isoformat` takes it."""
    if at_s == float("inf"):
        return ""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def day_name(day: int) -> str:
    """Days since 1970-01-01 as YYYY-MM-DD: the name of a UTC day in files."""
    return (EPOCH + timedelta(days=day)).isoformat()
