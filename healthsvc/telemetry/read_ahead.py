"""A source read a day at a time and served a step at a time: what a walk through the past needs of a real server.

Exact, because a grid column depends on the samples of its own step only. It reads ahead but never shows ahead: an
answer holds the columns that were asked for, and the GPUs that have a sample in them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, GpuId, Placement, align_rows, first_rows, join_places
from healthsvc.telemetry.framing.grid import step_of, uniform_times
from healthsvc.telemetry.source import RawGrid, Source

KEPT_CHUNKS = 2


@dataclass
class ReadAhead:
    """whole: the real source. only: show these GPUs and no others (a shard), None: all. Not for several threads."""

    whole: Source
    only: tuple[GpuId, ...] | None = None
    chunk_s: float = DAY_S
    _chunks: "OrderedDict[tuple[int, float], RawGrid]" = field(default_factory=OrderedDict, init=False, repr=False)

    @property
    def name(self) -> str:
        return self.whole.name

    def placement(self) -> Placement | None:
        """As the source's own."""
        return self.whole.placement()

    def span(self) -> tuple[float, float] | None:
        """As the source's own."""
        return self.whole.span()

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        """The source's own GPUs, those of the shard."""
        found = self.whole.discover(start_s, end_s)
        if self.only is None:
            return found
        mine = first_rows(self.only)
        return tuple(gpu for gpu in found if gpu.device_id in mine)

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        """The columns `times_s`, as the source itself would give them. Raises SourceError."""
        step_s = step_of(times_s, step_s, 0.0)
        if not step_s or self.chunk_s % step_s or not len(times_s):
            return self.whole.read(times_s, self.only if gpus is None else gpus, step_s or None)
        numbers = np.ceil(times_s / self.chunk_s).astype(np.int64) - 1  # chunk n holds (n, n + 1] x chunk_s
        parts = []
        for number in np.unique(numbers).tolist():
            chunk = self._chunk(number, step_s)
            column = np.searchsorted(chunk.times_s, times_s[numbers == number])
            parts.append(_columns(chunk, column))
        raw = parts[0] if len(parts) == 1 else _joined(parts)
        return _rows(raw, gpus) if gpus is not None else raw

    def _chunk(self, number: int, step_s: float) -> RawGrid:
        key = (number, step_s)
        if key not in self._chunks:
            times = uniform_times(number * self.chunk_s, (number + 1) * self.chunk_s, step_s)
            self._chunks[key] = self.whole.read(times, self.only)
        self._chunks.move_to_end(key)
        while len(self._chunks) > KEPT_CHUNKS:
            self._chunks.popitem(last=False)
        return self._chunks[key]


def _columns(raw: RawGrid, column: NDArray[np.intp]) -> RawGrid:
    """Some columns, and the GPUs that have a sample in them."""
    values = {signal: grid[:, column] for signal, grid in raw.values.items()}
    seen = np.zeros(len(raw.gpus), bool)
    samples = 0
    for grid in values.values():
        present = ~np.isnan(grid)
        seen |= present.any(axis=1)
        samples += int(present.sum())
    rows = np.flatnonzero(seen)
    until_s = float(raw.times_s[column[-1]]) if len(column) else -np.inf
    told = tuple(sighting for sighting in raw.sightings if sighting.at_s <= until_s)
    then = {sighting.gpu.device_id: sighting for sighting in told}  # who they were, not who they will be
    later = {sighting.gpu.device_id for sighting in raw.sightings}
    cut = {device: instances for device, instances in raw.partitions.items() if device not in later}
    cut |= {device: sighting.instances for device, sighting in then.items() if sighting.instances}
    began_s = float(raw.times_s[column[0]]) if len(column) else np.inf
    gpus = tuple(raw.gpus[int(i)] for i in rows)
    places = {signal: replace(series, values=series.values[:, column]) for signal, series in raw.environment.items()}
    return RawGrid(
        tuple(then[gpu.device_id].gpu if gpu.device_id in then else gpu for gpu in gpus),
        raw.times_s[column],
        {signal: grid[rows] for signal, grid in values.items()},
        places,
        samples,
        raw.warnings,
        readings=raw.readings,
        incomplete=raw.incomplete,
        partitions=cut,
        sightings=tuple(sighting for sighting in told if sighting.at_s >= began_s),
    )


def _rows(raw: RawGrid, gpus: Sequence[GpuId]) -> RawGrid:
    """The grid of exactly these GPUs, NaN where one has nothing."""
    known = first_rows(raw.gpus)
    rows = np.array([known.get(gpu.device_id, -1) for gpu in gpus], np.intp)
    return replace(raw, gpus=tuple(gpus), values={s: align_rows(grid, rows) for s, grid in raw.values.items()})


def _joined(parts: Sequence[RawGrid]) -> RawGrid:
    """Grids one behind the other, for the GPUs of any of them; what one part lacks is NaN there."""
    gpus = tuple({gpu.device_id: gpu for part in parts for gpu in part.gpus}.values())
    aligned = [_rows(part, gpus) for part in parts]
    shapes = [(len(gpus), len(part.times_s)) for part in parts]
    signals = {signal for part in parts for signal in part.values}
    return RawGrid(
        gpus,
        np.concatenate([part.times_s for part in parts]),
        {
            signal: np.concatenate(
                [part.values.get(signal, np.full(shape, np.nan)) for part, shape in zip(aligned, shapes, strict=True)],
                axis=1,
            )
            for signal in signals
        },
        join_places([(part.environment, len(part.times_s)) for part in parts]),
        sum(part.samples for part in parts),
        tuple(sorted({warning for part in parts for warning in part.warnings})),
        readings=tuple(dict.fromkeys(reading for part in parts for reading in part.readings)),
        incomplete=any(part.incomplete for part in parts),
        partitions={device: cut for part in parts for device, cut in part.partitions.items()},
        sightings=tuple(sighting for part in parts for sighting in part.sightings),
    )
