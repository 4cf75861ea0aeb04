"""Samples of any origin to a RawGrid: canonical names, base units, no blanks, all series of a device merged."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import GpuId, PlaceSeries, Signal, first_rows
from healthsvc.telemetry.catalogue import GPU_ROWS, EnvironmentRow, Row, to_base_units
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.identity import device_id, place_name
from healthsvc.telemetry.merge import merge_samples
from healthsvc.telemetry.source import RawGrid


class Framer:
    """Takes answers in any order, then gives the grid. gpus: the rows; series of others are left out."""

    def __init__(self, gpus: Sequence[GpuId], times_s: NDArray[np.float64], step_s: float) -> None:
        self._gpus, self._times_s, self._step_s = tuple(gpus), times_s, step_s
        self._row_of = first_rows(gpus)
        self._grids: dict[str, NDArray[np.float64]] = {}
        self._surroundings: defaultdict[EnvironmentRow, list[Samples]] = defaultdict(list)

    def take(self, row: Row | EnvironmentRow, samples: Samples, columns: slice = slice(None)) -> None:
        """The samples of one catalogue row, for these columns of the grid."""
        if isinstance(row, EnvironmentRow):
            self._surroundings[row].append(samples)
            return
        if row.metric not in self._grids:
            self._grids[row.metric] = np.full((len(self._row_of), len(self._times_s)), np.nan)
        rows = np.array([self._row_of.get(device_id(labels), -1) for labels in samples.labels], np.intp)
        scaled = replace(samples, values=to_base_units(samples.values, row.signal, row.scale))
        times_s = self._times_s[columns]
        merge_samples(self._grids[row.metric][:, columns], scaled, rows, times_s, self._step_s, row.merge)

    def grid(self, samples: int, warnings: Sequence[str]) -> RawGrid:
        """What was taken so far. samples: how many there were; warnings: what their source warned of."""
        places = {row.signal: self._places(row, answers) for row, answers in self._surroundings.items()}
        return RawGrid(
            self._gpus,
            self._times_s,
            self._coalesced(),
            {signal: series for signal, series in places.items() if series.names},
            samples,
            tuple(sorted(warnings)),
        )

    def _coalesced(self) -> dict[Signal, NDArray[np.float64]]:
        """One grid a signal: of its metrics the first in the catalogue wins, sample by sample; without samples none."""
        values: dict[Signal, NDArray[np.float64]] = {}
        for row in GPU_ROWS:
            grid = self._grids.get(row.metric)
            if grid is None or np.isnan(grid).all():
                continue
            earlier = values.get(row.signal)
            values[row.signal] = grid if earlier is None else np.where(np.isnan(earlier), grid, earlier)
        return values

    def _places(self, row: EnvironmentRow, answers: Sequence[Samples]) -> PlaceSeries:
        """The row's series by place, in order of name."""
        named = [[place_name(labels, row.place_labels) for labels in samples.labels] for samples in answers]
        names = tuple(sorted({name for each in named for name in each if name}))
        number = {name: i for i, name in enumerate(names)}
        grid = np.full((len(names), len(self._times_s)), np.nan)
        for samples, each in zip(answers, named, strict=True):
            rows = np.array([number.get(name, -1) for name in each], np.intp)
            cleaned = replace(samples, values=to_base_units(samples.values, row.signal))
            merge_samples(grid, cleaned, rows, self._times_s, self._step_s, row.merge)
        return PlaceSeries(row.layer, names, grid.astype(np.float32))
