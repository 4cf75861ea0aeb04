"""The recent window as it grows at its new end and is cut at its old one, without being copied every cycle.

New columns are written behind the window into room set aside, and the window is a view: what was handed out before
never changes, because nobody writes into columns that it shows. When the room is used up, the window moves once.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import FleetWindow, Signal

SPARE_SHARE = 0.25  # room for new columns, as a share of those kept: memory against how often the window moves


@dataclass
class Trail:
    """`window`: the newest `keep` columns. Its GPUs stay the same for the life of a trail."""

    window: FleetWindow
    keep: int
    _room: dict[Signal, NDArray[np.float32]] = field(default_factory=dict, init=False, repr=False)
    _used: int = field(default=0, init=False, repr=False)  # columns
    _capacity: int = field(default=0, init=False, repr=False)

    def append(self, after: FleetWindow) -> FleetWindow:
        """The window with the columns of `after` at its end; a signal that either of them lacks is NaN there."""
        after = after.columns(slice(-self.keep, None))
        if self._used + len(after.times_s) > self._capacity:
            self._move(len(after.times_s))
        fresh = slice(self._used, self._used + len(after.times_s))
        for signal in after.values.keys() - self._room.keys():
            self._room[signal] = self._columns(np.nan)
        for signal, room in self._room.items():
            room[:, fresh] = after.get(signal)
        shown = slice(max(fresh.stop - self.keep, 0), fresh.stop)
        times = np.concatenate([self.window.times_s, after.times_s])[-self.keep :]
        self.window = FleetWindow(after.gpus, times, {signal: room[:, shown] for signal, room in self._room.items()})
        self._used = fresh.stop
        return self.window

    def _move(self, width: int) -> None:
        """To fresh arrays with room for `width` columns and the spare ones."""
        kept = self.window.columns(slice(-self.keep, None))
        self._used = len(kept.times_s)
        self._capacity = self._used + width + round(SPARE_SHARE * self.keep)
        self._room = {}
        for signal, values in kept.values.items():
            self._room[signal] = self._columns()
            self._room[signal][:, : self._used] = values

    def _columns(self, fill: float | None = None) -> NDArray[np.float32]:
        """Room [gpu, column] of one signal. A column is contiguous, so that adding or cutting some is a block copy."""
        shape = (len(self.window.gpus), self._capacity)
        return np.empty(shape, np.float32, "F") if fill is None else np.full(shape, fill, np.float32, "F")
