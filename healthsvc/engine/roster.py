"""Who is in the fleet right now: newcomers join, swapped and departed GPUs leave, lost ones are kept in sight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId, first_rows


class _Index:
    """What is asked of a fleet every cycle, worked out once as long as the fleet stays the same."""

    def __init__(self, gpus: tuple[GpuId, ...]) -> None:
        self.gpus = gpus

    @cached_property
    def row(self) -> Mapping[str, int]:
        """device_id -> row."""
        return first_rows(self.gpus)

    @cached_property
    def places(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
        """Number of each GPU's node and socket [gpu], and whether the socket is named: a nameless one is not taken."""
        nodes: dict[tuple[str, str], int] = {}
        sockets: dict[tuple[str, str, str], int] = {}
        node = [nodes.setdefault((gpu.cluster, gpu.hostname), len(nodes)) for gpu in self.gpus]
        socket = [sockets.setdefault(gpu.place, len(sockets)) for gpu in self.gpus]
        named = [bool(gpu.hostname and gpu.place[2]) for gpu in self.gpus]
        return np.array(node, np.intp), np.array(socket, np.intp), np.array(named, bool)


@dataclass(frozen=True)
class Roster:
    """gpus in stable order, and when each last gave a sample (float64[gpu], data time; -inf never)."""

    gpus: tuple[GpuId, ...] = ()
    last_seen_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _index: _Index = field(default_factory=lambda: _Index(()), repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._index.gpus is not self.gpus:
            object.__setattr__(self, "_index", _Index(self.gpus))

    def rows_of(self, gpus: Sequence[GpuId]) -> NDArray[np.intp]:
        """Row in this roster of each of `gpus`, -1 where it is not in it."""
        known = self._index.row
        return np.fromiter(map(known.get, [gpu.device_id for gpu in gpus], repeat(-1)), np.intp, len(gpus))

    def seen(self, gpus: Sequence[GpuId], at_s: NDArray[np.float64]) -> "Roster":
        """With `gpus` seen at `at_s` (NaN or -inf: not seen now); their newest labels win, newcomers come last."""
        at = np.where(np.isnan(at_s), -np.inf, at_s)
        rows = self.rows_of(gpus)
        merged, last = list(self.gpus), self.last_seen_s.copy()
        np.maximum.at(last, rows[rows >= 0], at[rows >= 0])
        for row, gpu in zip(rows.tolist(), gpus, strict=True):
            if row >= 0:
                merged[row] = gpu
        fresh = np.flatnonzero(rows < 0)
        now = (*merged, *(gpus[int(i)] for i in fresh))
        # An unchanged fleet stays the same object: whoever keeps something per fleet can tell at once.
        return Roster(self.gpus if now == self.gpus else now, np.concatenate([last, at[fresh]]), self._index)

    def staying(self, now_s: float, departed_after_s: float, lost_for_s: float) -> NDArray[np.bool_]:
        """bool[gpu]: False for GPUs whose socket a newer device has taken, and for those unseen for too long.

        A GPU that is gone beside a live node is lost and kept for `lost_for_s`; one that went with its whole node is
        kept for `departed_after_s`, then it has departed.
        """
        node, socket, named = self._index.places
        seen_s = self.last_seen_s
        node_seen_s, socket_seen_s = np.full(len(seen_s), -np.inf), np.full(len(seen_s), -np.inf)
        np.maximum.at(node_seen_s, node, seen_s)
        np.maximum.at(socket_seen_s, socket, seen_s)
        swapped = named & (socket_seen_s[socket] > seen_s)
        beside_live = node_seen_s[node] > now_s - departed_after_s
        return ~swapped & (now_s - seen_s <= np.where(beside_live, lost_for_s, departed_after_s))

    def take(self, rows: NDArray[np.intp]) -> "Roster":
        """A subset, in the order of `rows`."""
        return Roster(tuple(self.gpus[int(i)] for i in rows), self.last_seen_s[rows])
