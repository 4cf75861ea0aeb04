"""Who is in the fleet right now: newcomers join, swapped and departed GPUs leave, lost ones are kept in sight."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId


@dataclass(frozen=True)
class Roster:
    """gpus in stable order, and when each last gave a sample (float64[gpu], data time; -inf never)."""

    gpus: tuple[GpuId, ...] = ()
    last_seen_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def rows_of(self, gpus: Sequence[GpuId]) -> NDArray[np.intp]:
        """Row in this roster of each of `gpus`, -1 where it is not in it."""
        known = {gpu.device_id: row for row, gpu in enumerate(self.gpus)}
        return np.fromiter((known.get(gpu.device_id, -1) for gpu in gpus), np.intp, len(gpus))

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
        return Roster((*merged, *(gpus[int(i)] for i in fresh)), np.concatenate([last, at[fresh]]))

    def staying(self, now_s: float, departed_after_s: float, lost_for_s: float) -> NDArray[np.bool_]:
        """bool[gpu]: False for GPUs whose socket a newer device has taken, and for those unseen for too long.

        A GPU that is gone beside a live node is lost and kept for `lost_for_s`; one that went with its whole node is
        kept for `departed_after_s`, then it has departed.
        """
        newest_in: dict[tuple[str, str, str], float] = {}
        node_seen: dict[tuple[str, str], float] = {}
        for gpu, seen in zip(self.gpus, self.last_seen_s.tolist(), strict=True):
            node = (gpu.cluster, gpu.hostname)
            newest_in[gpu.place] = max(newest_in.get(gpu.place, -np.inf), seen)
            node_seen[node] = max(node_seen.get(node, -np.inf), seen)
        keep = np.ones(len(self.gpus), bool)
        for row, (gpu, seen) in enumerate(zip(self.gpus, self.last_seen_s.tolist(), strict=True)):
            swapped = bool(gpu.place[2]) and newest_in[gpu.place] > seen
            beside_live = node_seen[(gpu.cluster, gpu.hostname)] > now_s - departed_after_s
            limit_s = lost_for_s if beside_live else departed_after_s
            keep[row] = not swapped and now_s - seen <= limit_s
        return keep

    def take(self, rows: NDArray[np.intp]) -> "Roster":
        """A subset, in the order of `rows`."""
        return Roster(tuple(self.gpus[int(i)] for i in rows), self.last_seen_s[rows])
