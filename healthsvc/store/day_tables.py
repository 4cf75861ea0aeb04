"""Days as Arrow tables: the columns on disk and the arrays in memory, with no file in sight."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from healthsvc.fleet import ONSET_COVARIATES, DailyLedger, EventLog, GpuId, OnsetBins

IDENTITY = tuple(field.name for field in fields(GpuId))
COVERAGE = ("exposure_h", "completeness")
EVENT_VALUES = {"start_s": np.float64, "end_s": np.float64, "kind": np.int16, "value": np.float64}
BIN_VALUES = {"start_s": np.float64, "onset": np.bool_, "share": np.float32, "inlet_source": np.int8}
ONSET_VERSION = 1  # raise it whenever the bins or a covariate of theirs are worked out in another way
ONSET_FACTS = {b"healthsvc.onsets": json.dumps([ONSET_VERSION, *ONSET_COVARIATES]).encode()}


@dataclass(frozen=True)
class DayFacts:
    """What a daily file says of itself, kept as key-value metadata of the Parquet file."""

    definitions: Mapping[str, str]
    written_at_s: float
    complete: bool

    def encode(self) -> dict[bytes, bytes]:
        return {
            b"healthsvc.definitions": json.dumps(dict(self.definitions), sort_keys=True).encode(),
            b"healthsvc.written_at_s": repr(float(self.written_at_s)).encode(),
            b"healthsvc.complete": json.dumps(self.complete).encode(),
        }

    @staticmethod
    def decode(schema: Any) -> "DayFacts":
        """Raises KeyError or ValueError if the metadata is not ours."""
        metadata = schema.metadata
        return DayFacts(
            dict(json.loads(metadata[b"healthsvc.definitions"])),
            float(metadata[b"healthsvc.written_at_s"]),
            bool(json.loads(metadata[b"healthsvc.complete"])),
        )

    def stale(self, today: Mapping[str, str]) -> tuple[str, ...]:
        """Features that `today` defines otherwise, or that this day did not know."""
        return tuple(name for name, digest in today.items() if self.definitions.get(name) != digest)


def daily_table(daily: DailyLedger) -> Any:
    """One row a GPU: labels, features as given (float32 or float64, NaN stays NaN), exposure and completeness."""
    labels = {name: pa.array([getattr(gpu, name) for gpu in daily.gpus], pa.string()) for name in IDENTITY}
    numbers = {**daily.features, **{name: getattr(daily, name) for name in COVERAGE}}
    return pa.table({**labels, **{name: pa.array(values[:, 0]) for name, values in numbers.items()}})


def event_table(gpus: Sequence[GpuId], events: EventLog) -> Any:
    """One row an event; rows of the fleet become device_ids, which mean the same tomorrow."""
    ids = pa.array([gpu.device_id for gpu in gpus], pa.string()).take(pa.array(events.row))
    values = {name: pa.array(getattr(events, name).astype(kind)) for name, kind in EVENT_VALUES.items()}
    return pa.table({"device_id": ids, **values})


def bin_table(gpus: Sequence[GpuId], bins: OnsetBins) -> Any:
    """One row a bin, one column a covariate."""
    ids = pa.array([gpu.device_id for gpu in gpus], pa.string()).take(pa.array(bins.row))
    values = {name: pa.array(getattr(bins, name).astype(kind)) for name, kind in BIN_VALUES.items()}
    x = {name: pa.array(np.ascontiguousarray(bins.x[:, k])) for k, name in enumerate(ONSET_COVARIATES)}
    return pa.table({"device_id": ids, **values, **x})


def bins_in(table: Any, ids: Any) -> OnsetBins:
    """The bins of a table, rows as in `ids`; those of other GPUs are left out."""
    rows, known = rows_of(table, ids)
    values = {name: table[name].to_numpy()[known].astype(kind) for name, kind in BIN_VALUES.items()}
    x = np.stack([table[name].to_numpy()[known] for name in ONSET_COVARIATES], axis=1)
    return OnsetBins(row=rows.astype(np.int32), x=x.astype(np.float32, copy=False), **values)


def same_onsets(schema: Any) -> bool:
    """Whether a file of bins was worked out as today."""
    return all((schema.metadata or {}).get(key) == value for key, value in ONSET_FACTS.items())


def replaced(old: Any, new: Any, ids: Any) -> Any:
    """`new`, and those rows of `old` that belong to none of `ids`; a column that one of them lacks is null there."""
    kept = old.filter(pc.invert(pc.is_in(old["device_id"], value_set=pc.unique(ids))))
    return pa.concat_tables([kept, new], promote_options="permissive")


def rows_of(table: Any, ids: Any) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Which of `ids` each known line of `table` belongs to, and which lines are known."""
    rows = pc.fill_null(pc.index_in(table["device_id"], value_set=ids), -1).to_numpy()
    known = rows >= 0
    return rows[known].astype(np.intp), known


def identities(table: Any) -> list[GpuId]:
    """The GPUs of a daily table, in its order."""
    return [GpuId(*labels) for labels in zip(*(table[name].to_pylist() for name in IDENTITY), strict=True)]
