"""Altered copies of a history: what the rules do to a fleet to see who notices."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.daily import DAILY_FEATURES
from healthsvc.fleet import DAY_S, OPEN, DailyLedger, EventKind, EventLog, FleetHistory, FleetWindow, Signal

WEEK_S = 7 * DAY_S
CODES = (48.0, 63.0, 79.0, 119.0)  # double-bit error, remap recorded, off the bus, GSP timeout


def silenced(history: FleetHistory, rows: NDArray[np.bool_], ledger: bool = True) -> FleetHistory:
    """The GPUs `rows` [gpu] report nothing in the recent window, and nothing in the ledger if `ledger`."""
    recent, daily = history.recent, history.daily
    blank = rows[:, None]
    values = {s: np.where(blank, np.nan, v).astype(v.dtype) for s, v in recent.values.items()}
    history = replace(history, recent=replace(recent, values=values))
    if not ledger:
        return history
    features = {k: np.where(blank, np.nan, v).astype(v.dtype) for k, v in daily.features.items()}
    exposure = np.where(blank, 0, daily.exposure_h).astype(daily.exposure_h.dtype)
    completeness = np.where(blank, 0, daily.completeness).astype(daily.completeness.dtype)
    return replace(history, daily=replace(daily, features=features, exposure_h=exposure, completeness=completeness))


def without_signals(history: FleetHistory, signals: frozenset[Signal]) -> FleetHistory:
    """Nobody reports `signals`: not now, and no day of the ledger has what cannot be had without them."""
    needs = {name: feature.requires for name, feature in DAILY_FEATURES.items()}
    recent = {s: np.full_like(v, np.nan) if s in signals else v for s, v in history.recent.values.items()}
    features = {
        k: np.full_like(v, np.nan) if any(group <= signals for group in needs.get(k, ())) else v
        for k, v in history.daily.features.items()
    }
    return replace(
        history,
        recent=replace(history.recent, values=recent),
        daily=replace(history.daily, features=features),
    )


def alarmed(history: FleetHistory, rows: NDArray[np.bool_]) -> FleetHistory:
    """The GPUs `rows` [gpu] read higher in every signal and feature, and every kind of event strikes them."""
    loud = rows[:, None]
    recent, daily = history.recent, history.daily
    values = {s: np.where(loud, v + 0.3 * np.abs(v) + 1, v).astype(v.dtype) for s, v in recent.values.items()}
    features = {k: np.where(loud, v + 0.1 * np.abs(v) + 1, v).astype(v.dtype) for k, v in daily.features.items()}
    changed = replace(history, recent=replace(recent, values=values), daily=replace(daily, features=features))
    return struck(changed, rows)


def struck(history: FleetHistory, rows: NDArray[np.bool_]) -> FleetHistory:
    """Every kind of event strikes the GPUs `rows` [gpu] an hour ago, and nothing else changes."""
    return replace(history, events=history.events.merged(_everything(np.flatnonzero(rows), history.now_s - 3600.0)))


def _everything(rows: NDArray[np.intp], start_s: float) -> EventLog:
    """One event of every kind for each of `rows`, and one of each of CODES; still open."""
    kinds = [(kind, 1.0) for kind in EventKind if kind != EventKind.XID] + [(EventKind.XID, c) for c in CODES]
    row = np.repeat(rows, len(kinds)).astype(np.int32)
    start = np.full(len(row), start_s)
    return EventLog(
        row,
        start,
        np.full(len(row), OPEN),
        np.tile(np.array([kind for kind, _ in kinds], np.int16), len(rows)),
        np.tile(np.array([value for _, value in kinds]), len(rows)),
    )


def with_future(history: FleetHistory) -> FleetHistory:
    """The same moment, in a log that also knows how things went on: what broke in the hours and days after."""
    every = np.arange(len(history.gpus))
    events = history.events
    for ahead_s in (30.0, 3600.0, 5 * DAY_S):
        events = events.merged(_everything(every, history.now_s + ahead_s))
    ended = np.where(np.isinf(events.end_s), history.now_s + 7200.0, events.end_s)
    return replace(history, events=replace(events, end_s=ended))


def shifted(history: FleetHistory, weeks: int) -> FleetHistory:
    """Everything happened `weeks` whole weeks later (earlier if negative)."""
    by_s = weeks * WEEK_S
    events, recent, daily = history.events, history.recent, history.daily
    return replace(
        history,
        recent=replace(recent, times_s=recent.times_s + by_s),
        daily=replace(daily, days=daily.days + 7 * weeks),
        events=replace(events, start_s=events.start_s + by_s, end_s=events.end_s + by_s),
    )


def without_days(history: FleetHistory) -> FleetHistory:
    """A first start: there is a recent window and not one day of ledger."""
    none = np.zeros((len(history.gpus), 0), np.float32)
    features = {k: v[:, :0] for k, v in history.daily.features.items()}
    return replace(history, daily=DailyLedger(history.gpus, np.zeros(0, np.int64), features, none, none))


def cut(history: FleetHistory, columns: int) -> FleetHistory:
    """As it stood `columns` steps ago, with the log of today: what a back-test that walks the history hands over."""
    recent: FleetWindow = history.recent.columns(slice(None, -columns))
    around = {s: replace(each, values=each.values[:, :-columns]) for s, each in history.environment.items()}
    return replace(history, recent=recent, environment=around)
