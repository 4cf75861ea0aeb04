"""Prometheus API answers to arrays. Most of reading is decoding, so the samples never become Python objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class MalformedAnswerError(ValueError):
    """The body is no answer of the Prometheus API."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw  # [[1700000000.123,"4.5"],...]


class _Matrix(msgspec.Struct, tag_field="resultType", tag="matrix"):
    result: list[_Series]


class _Point(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, float]


class _Vector(msgspec.Struct, tag_field="resultType", tag="vector"):
    result: list[_Point]


class _Envelope(msgspec.Struct, Generic[T]):
    status: str
    data: T | None = None
    error: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)
    infos: list[str] = msgspec.field(default_factory=list)
    isPartial: bool = False  # noqa: N815 - VictoriaMetrics' spelling


_MATRIX = msgspec.json.Decoder(_Envelope[_Matrix])
_VECTOR = msgspec.json.Decoder(_Envelope[_Vector], strict=False)  # "4.5" -> 4.5
_ERROR = msgspec.json.Decoder(_Envelope[msgspec.Raw])


@dataclass(frozen=True)
class Samples:
    """Raw samples of many series end to end: labels[i] has the next counts[i] of times_s and values, both [sample]."""

    labels: tuple[Mapping[str, str], ...]
    counts: NDArray[np.int64]
    times_s: NDArray[np.float64]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Points:
    """One value a label set."""

    labels: tuple[Mapping[str, str], ...]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()


def _opened(decoder: "msgspec.json.Decoder[_Envelope[T]]", body: bytes) -> tuple[T, tuple[str, ...]]:
    try:
        envelope = decoder.decode(body)
    except msgspec.MsgspecError as failure:
        raise MalformedAnswerError(str(failure)) from None
    if envelope.status != "success" or envelope.data is None:
        raise MalformedAnswerError(envelope.error or "an answer without data")
    partial = ["the server says that its answer is partial"] if envelope.isPartial else []
    return envelope.data, (*envelope.warnings, *envelope.infos, *partial)


def _parsed(values: list[bytes]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and values of all series: the pairs become lines of CSV, which Arrow parses (NaN and +Inf included)."""
    import pyarrow as pa
    from pyarrow import csv

    # [[1,2],[3,4]] and [[5,6]] -> 1,2 3,4 5,6
    text = b"\n".join(v[2:-2] for v in values if len(v) > 4).replace(b"],[", b"\n")
    if not text:
        return np.zeros(0), np.zeros(0)
    kinds = {"time": pa.float64(), "value": pa.float64()}
    try:
        table = csv.read_csv(
            pa.py_buffer(text),
            read_options=csv.ReadOptions(column_names=list(kinds), use_threads=False, block_size=len(text) + 1),
            convert_options=csv.ConvertOptions(column_types=kinds),
        )
    except pa.ArrowInvalid as failure:
        raise MalformedAnswerError(f"samples that are no numbers: {failure}") from None
    return table["time"].to_numpy(), table["value"].to_numpy()


def decode_samples(body: bytes) -> Samples:
    """The answer to a range-vector selector. Raises MalformedAnswerError."""
    matrix, warnings = _opened(_MATRIX, body)
    # Neither quotes nor spaces can be part of a number, and some proxies lay JSON out prettily.
    raw = [bytes(series.values).translate(None, b'" \t\r\n') for series in matrix.result]
    counts = np.array([v.count(b"],[") + 1 if len(v) > 4 else 0 for v in raw], np.int64)
    times_s, values = _parsed(raw)
    if len(times_s) != counts.sum():
        raise MalformedAnswerError(f"{len(times_s)} samples where {counts.sum()} were announced")
    return Samples(tuple(series.metric for series in matrix.result), counts, times_s, values, warnings)


def decode_points(body: bytes) -> Points:
    """The answer to an instant query with one value a label set. Raises MalformedAnswerError."""
    vector, warnings = _opened(_VECTOR, body)
    values = np.array([point.value[1] for point in vector.result], np.float64)
    return Points(tuple(point.metric for point in vector.result), values, warnings)


def error_text(body: bytes) -> str:
    """What the server says went wrong, in at most 300 characters."""
    try:
        text = _ERROR.decode(body).error
    except msgspec.MsgspecError:
        text = body[:300].decode("utf-8", "replace").strip()
    return text[:300]
