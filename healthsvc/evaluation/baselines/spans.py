"""From a flag at every step to alerts with a beginning and an end; and alerts by chance (b5)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts.policy import AlertPolicy
from healthsvc.evaluation.baselines.base import Flags
from healthsvc.fleet import CLASSES

CLEAR_S = AlertPolicy.class_clear_s  # a baseline's alert ends as our own do


@dataclass(frozen=True)
class AlarmSpans:
    """Alerts in order of raising: row int32, failure_class int8 (position in CLASSES), raised_s, cleared_s float64.

    cleared_s is inf while the alert stands.
    """

    row: NDArray[np.int32]
    failure_class: NDArray[np.int8]
    raised_s: NDArray[np.float64]
    cleared_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)


def episodes_of(steps: Iterable[tuple[float, Flags]], cooldown_s: float = 0.0) -> AlarmSpans:
    """Alerts from (now_s, bool[gpu, class]) in order of time, so that flapping does not count a thousand times.

    An alert is raised by its first flag and ends when the flag has been down for CLEAR_S, counted from the first
    step that shows it down (a gap between steps is no calm). Until `cooldown_s` after that it is not raised again.
    Memory: one step, whatever their number. Raises ValueError for steps out of order or of another shape.
    """
    parts: list[tuple[NDArray[Any], ...]] = []
    raised = calm = ended = np.zeros((0, len(CLASSES)))
    before_s = -np.inf
    for number, (now_s, flags) in enumerate(steps):
        if number == 0:
            raised, calm, ended = np.full((3, *flags.shape), [[[np.nan]], [[np.inf]], [[-np.inf]]])
        if flags.shape != raised.shape or now_s <= before_s:
            raise ValueError(
                f"step {number} at {now_s:.0f} s has shape {flags.shape}; needs {raised.shape} = [gpu, class], "
                f"later than {before_s:.0f} s: align the rows to one list of GPUs and pass the steps in order"
            )
        before_s = now_s
        calm = np.where(flags, np.inf, np.minimum(calm, now_s))
        over = ~np.isnan(raised) & (now_s - calm >= CLEAR_S)
        if over.any():
            parts.append((*np.nonzero(over), raised[over], np.full(int(over.sum()), now_s)))
            raised[over], ended[over] = np.nan, now_s
        raised[flags & np.isnan(raised) & (now_s - ended >= cooldown_s)] = now_s
    standing = ~np.isnan(raised)
    parts.append((*np.nonzero(standing), raised[standing], np.full(int(standing.sum()), np.inf)))
    row, failure_class, raised_s, cleared_s = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((failure_class, row, raised_s))
    return AlarmSpans(
        row[order].astype(np.int32), failure_class[order].astype(np.int8), raised_s[order], cleared_s[order]
    )


def draw_spans(alerts: int, gpu_count: int, start_s: float, end_s: float, rng: np.random.Generator) -> AlarmSpans:
    """b5: as many alerts as we raise, on GPUs, classes and at moments of [start, end) drawn uniformly.

    What it hits is what our number of alerts buys without any knowledge. Blind to everything. Raises ValueError
    without GPUs.
    """
    raised_s = np.sort(rng.uniform(start_s, end_s, alerts))
    return AlarmSpans(
        rng.integers(0, gpu_count, alerts, np.int32),
        rng.integers(0, len(CLASSES), alerts, np.int8),
        raised_s,
        raised_s + CLEAR_S,
    )
