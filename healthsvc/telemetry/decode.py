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


class _Bare(msgspec.Struct):
    """What stands around every answer. `infos` are left out: hints at the wording of a query, not at its answer."""

    status: str
    error: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)
    isPartial: bool = False  # noqa: N815 - VictoriaMetrics' spelling

    @property
    def told(self) -> tuple[str, ...]:
        """What the server says is missing or wrong."""
        return (*self.warnings, *(["the server says that its answer is partial"] if self.isPartial else []))


class _Envelope(_Bare, Generic[T]):
    data: T | None = None


_LINES = bytes.maketrans(b"]", b"\n")
_MATRIX = msgspec.json.Decoder(_Envelope[_Matrix])
_VECTOR = msgspec.json.Decoder(_Envelope[_Vector], strict=False)  # "4.5" -> 4.5
_BARE = msgspec.json.Decoder(_Bare)


@dataclass(frozen=True)
class Samples:
    """Raw samples of many series end to end: labels[i] has the next counts[i] of times_s and values, both [sample].

    warnings: what the server itself says is missing or wrong; any at all means that the answer may be incomplete.
    """

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
    return envelope.data, envelope.told


def _parsed(series: list[bytes]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and values of all series: each pair becomes a line of CSV, which Arrow parses (NaN and +Inf included)."""
    import pyarrow as pa
    from pyarrow import csv

    if not series:
        return np.zeros(0), np.zeros(0)
    # [[1,"2"],[3,"4"]] and [[5,"6"]] -> ,1,2 ,3,4 ,5,6 each on a line, with empty ones in between, which are skipped.
    # Neither quotes nor spaces can be part of a number, and some proxies lay JSON out prettily.
    text = b"".join((b",", b",".join(series))).translate(_LINES, b'[" \t\r\n')
    kinds = {"time": pa.float64(), "value": pa.float64()}
    try:
        table = csv.read_csv(
            pa.py_buffer(text),
            read_options=csv.ReadOptions(column_names=["", *kinds], use_threads=False, block_size=len(text) + 1),
            convert_options=csv.ConvertOptions(column_types=kinds, include_columns=list(kinds)),
        )
    except pa.ArrowInvalid as failure:
        raise MalformedAnswerError(f"samples that are no numbers: {str(failure)[:200]}") from None
    return table["time"].to_numpy(), table["value"].to_numpy()


def decode_samples(body: bytes) -> Samples:
    """The answer to a range-vector selector. Raises MalformedAnswerError."""
    matrix, warnings = _opened(_MATRIX, body)
    raw = [bytes(series.values) for series in matrix.result]
    # A pair each ends in a bracket, and so does the list.
    counts = np.array([values.count(b"]") - 1 for values in raw], np.int64)
    if (counts < 0).any():
        raise MalformedAnswerError("a series whose values are no list")
    times_s, values = _parsed([values for values, count in zip(raw, counts, strict=True) if count])
    if len(times_s) != counts.sum():
        raise MalformedAnswerError(f"{len(times_s)} samples where {counts.sum()} were announced")
    return Samples(tuple(series.metric for series in matrix.result), counts, times_s, values, warnings)


def decode_points(body: bytes) -> Points:
    """The answer to an instant query with one value a label set. Raises MalformedAnswerError."""
    vector, warnings = _opened(_VECTOR, body)
    values = np.array([point.value[1] for point in vector.result], np.float64)
    return Points(tuple(point.metric for point in vector.result), values, warnings)


def decode_warnings(body: bytes) -> tuple[str, ...]:
    """The warnings of an answer of any kind. Raises MalformedAnswerError."""
    try:
        return _BARE.decode(body).told
    except msgspec.MsgspecError as failure:
        raise MalformedAnswerError(str(failure)) from None


def error_text(body: bytes) -> str:
    """What the server says went wrong, in at most 300 characters."""
    try:
        text = _BARE.decode(body).error
    except msgspec.MsgspecError:
        text = body[:300].decode("utf-8", "replace").strip()
    return text[:300]
