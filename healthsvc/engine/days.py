"""Where finished days come from and where they go."""

from typing import Protocol

from healthsvc.fleet import DailyLedger, EventLog, GpuId, OnsetBins


class DayReader(Protocol):
    """Where finished days come from: the ledger, or a part of it in a rehearsal."""

    def read(self, first_day: int, last_day: int) -> tuple[DailyLedger, EventLog]:
        """The days of the span and what happened in them."""
        ...

    def events_of(self, gpus: tuple[GpuId, ...], first_day: int, last_day: int) -> EventLog:
        """What happened to these GPUs in the span, in their rows."""
        ...

    def onset_bins(self, gpus: tuple[GpuId, ...], first_day: int, last_day: int) -> tuple[OnsetBins, ...]:
        """What the onset of throttling is learned from, of these GPUs in their rows: one part a day that has any."""
        ...

    def partial_days(self, first_day: int, last_day: int) -> frozenset[int]:
        """Those days of the span that are not to be learned from."""
        ...


class DayWriter(Protocol):
    """Where a finished day goes: the ledger, or nowhere in a rehearsal."""

    def write_day(
        self, day: int, daily: DailyLedger, events: EventLog, now_s: float, *, complete: bool, bins: OnsetBins
    ) -> None:
        """Keep one day."""
        ...
