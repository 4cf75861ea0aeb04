"""Logs of `nvidia-smi --query-gpu=... --format=csv` and of `nvidia-smi dmon -o DT`, in their many dialects.

A field becomes the metric of the same name that nvidia_gpu_exporter makes of it, so that one catalogue reads both.
Logs that were appended to each other may change their columns at every header. Blind to GPUs that a log does not
tell apart: without uuid, serial number, bus id and index, all rows with one name are one GPU.
Sources: `nvidia-smi --help-query-gpu`, `nvidia-smi dmon -h`, logs and captures of ten boards.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.imports.columns import Column, column_of, numbers, trimmed
from healthsvc.telemetry.imports.times import unix_seconds

_CELL = r"[ \t]*[a-z_][\w.]*(?:[ \t]*\[[^\],\n]*\])?[ \t]*"
_HEADER = re.compile(rf"^(?:timestamp[ \t]*|{_CELL}(?:,{_CELL})+)$", re.MULTILINE)
# dmon's column -> nvidia-smi's field. `sm` is the share of time in which a kernel ran, what utilization.gpu says too.
_DMON = {
    "gpu": "index",
    "pwr": "power.draw [W]",
    "gtemp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu [%]",
    "pclk": "clocks.current.sm [MHz]",
    "sbecc": "ecc.errors.corrected.aggregate.total",
    "dbecc": "ecc.errors.uncorrected.aggregate.total",
}
_DMON_HEADER = re.compile(r"^#[ \t]*(?:Date[ \t]+Time[ \t]+)?gpu[ \t].*$", re.MULTILINE | re.IGNORECASE)
_DMON_BEGIN = re.compile(rf"{_DMON_HEADER.pattern}\n#.*\bidx\b", re.MULTILINE | re.IGNORECASE)
_DMON_DATE = r"^(\d{4})(\d{2})(\d{2})$"
_TIME = ("timestamp", "dmon.date", "dmon.time")
_IDENTITY = {
    "uuid": ("uuid", "gpu_uuid"),
    "serial": ("serial", "gpu_serial"),
    "pci_bus_id": ("pci.bus_id", "gpu_bus_id"),
    "gpu": ("index",),
    "modelName": ("name", "gpu_name"),
}
_NO_VALUE = r"^\[?(N/A|Not Supported|Unknown Error|Unknown)?\]?$"
_SEPARATOR = "\x1f"


@dataclass
class Dialect:
    """How one log is to be read. host: "" if the log's GPUs are on no known host; columns: of a log without header."""

    file_name: str
    zone: str = "UTC"
    host: str = ""
    columns: tuple[str, ...] = ()


@dataclass
class Tally:
    """What was met in a log. rejected: (metric or "row", reason) -> cells or rows; unused: fields that no signal has.

    note: what the user should know of it, if anything.
    """

    rows: int = 0
    kind: str = ""
    note: str = ""
    unused: set[str] = field(default_factory=set)
    rejected: Counter[tuple[str, str]] = field(default_factory=Counter)


def is_log(text: str) -> bool:
    """Whether a header of nvidia-smi or dmon is in the text; dmon's with its line of units, which no comment has."""
    return bool(_HEADER.search(text) or _DMON_BEGIN.search(text))


def read_log(
    text: Iterable[str], dialect: Dialect, wanted: frozenset[str], tally: Tally
) -> Iterator[tuple[str, Samples]]:
    """(metric, samples) of every field that is a wanted metric, block by block; tells `tally` the rest."""
    header: Sequence[str] = dialect.columns
    tally.kind = "nvidia-smi" if header else ""
    dmon = False
    for block in text:
        for found, body in _sections(block):
            if found is not None:
                dmon = found.startswith("#")
                header = _dmon_header(found, tally) if dmon else [cell.strip() for cell in found.split(",")]
                tally.kind = "dmon" if dmon else "nvidia-smi"
            if not header or not body.strip():
                continue
            if dmon:
                body = _dmon_rows(body)
            yield from _samples(body, header, dialect, wanted, tally)


def _sections(block: str) -> Iterator[tuple[str | None, str]]:
    """The block cut at its header lines: (header or None, the lines after it)."""
    headers = sorted([*_HEADER.finditer(block), *_DMON_HEADER.finditer(block)], key=lambda match: match.start())
    edges = [*(match.start() for match in headers), len(block)]
    yield None, block[: edges[0]]
    for match, edge in zip(headers, edges[1:], strict=True):
        yield match[0], block[match.end() : edge]


def _dmon_header(line: str, tally: Tally) -> list[str]:
    """The fields of dmon's columns; none, and a note, where its rows say nothing of a GPU at a time."""
    names = line.lstrip("# \t").split()
    if "pid" in (name.lower() for name in names):
        tally.note = "pmon: it tells of processes, not of GPUs"
        return []
    if names[0].lower() != "date":
        tally.note = "dmon without times: log with `nvidia-smi dmon -o DT`"
        return []
    return [_DMON.get(name.lower(), f"dmon.{name.lower()}") for name in names]


def _dmon_rows(body: str) -> str:
    """Blanks to commas, without the line of units."""
    lines = (",".join(line.split()) for line in body.splitlines() if not line.lstrip().startswith("#"))
    return "\n".join(lines) + "\n"


def _table(body: str, names: Sequence[str], tally: Tally) -> pa.Table | None:
    """The rows as text cells; a row with another number of cells is malformed."""

    def skip(row: object) -> str:
        tally.rejected["row", "malformed"] += 1
        return "skip"

    raw = body.encode()
    if not raw.strip():
        return None
    try:
        table = csv.read_csv(
            pa.py_buffer(raw),
            read_options=csv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(raw) + 1),
            parse_options=csv.ParseOptions(quote_char=False, invalid_row_handler=skip),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        tally.rejected["row", "malformed"] += body.count("\n")
        return None
    return table


def _samples(
    body: str, header: Sequence[str], dialect: Dialect, wanted: frozenset[str], tally: Tally
) -> Iterator[tuple[str, Samples]]:
    names = [f"{i}" for i in range(len(header))]  # a log may have a field twice
    table = _table(body, names, tally)
    if table is None or not len(table):
        return
    cells = {column_of(cell): trimmed(table[name]) for cell, name in zip(header, names, strict=True)}
    fields = {column.field: text for column, text in cells.items() if column}
    times_s = _times(fields, dialect)
    if times_s is None:
        tally.rejected["row", "malformed"] += len(table)
        return
    known = ~np.isnan(times_s)
    tally.rows += int(known.sum())
    tally.rejected["row", "malformed"] += int((~known).sum())
    labels, code = _identity(fields, len(table), dialect)
    for column, text in cells.items():
        if column is None or column.field in _TIME:
            continue
        metric = _metric(column, fields)
        if metric not in wanted:
            if not any(column.field in aliases for aliases in _IDENTITY.values()):
                tally.unused.add(column.field)
            continue
        values, reasons = numbers(text, column.unit)
        for reason, count in reasons.items():
            tally.rejected[metric, reason] += count
        yield metric, _grouped(labels, code, times_s, values, known & ~np.isnan(values))


def _metric(column: Column, fields: Mapping[str, pa.ChunkedArray]) -> str:
    """The metric of a column; newer kinds of power stand in where power.draw itself is not logged."""
    if column.field in ("power.draw.average", "power.draw.instant") and "power.draw" not in fields:
        if column.field.endswith("instant") and "power.draw.average" in fields:
            return column.metric
        return Column("power.draw", column.unit).metric
    return column.metric


def _times(fields: Mapping[str, pa.ChunkedArray], dialect: Dialect) -> NDArray[np.float64] | None:
    if "timestamp" in fields:
        return unix_seconds(fields["timestamp"], dialect.zone)
    if "dmon.date" in fields and "dmon.time" in fields:
        date = pc.replace_substring_regex(fields["dmon.date"], _DMON_DATE, r"\1-\2-\3")
        return unix_seconds(pc.binary_join_element_wise(date, fields["dmon.time"], " "), dialect.zone)
    return None


def _identity(
    fields: Mapping[str, pa.ChunkedArray], rows: int, dialect: Dialect
) -> tuple[tuple[Mapping[str, str], ...], NDArray[np.int64]]:
    """The labels of each GPU in these rows, and which GPU each row is of."""
    parts = []
    for names in _IDENTITY.values():
        cell = next((fields[name] for name in names if name in fields), None)
        parts.append(
            pa.chunked_array([pa.array([""] * rows)])
            if cell is None
            else pc.replace_substring_regex(cell, _NO_VALUE, "")
        )
    told = pc.binary_join_element_wise(*parts, _SEPARATOR).combine_chunks().dictionary_encode()
    labels = tuple(
        _labels(dict(zip(_IDENTITY, key.split(_SEPARATOR), strict=True)), dialect)
        for key in told.dictionary.to_pylist()
    )
    return labels, told.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _labels(told: dict[str, str], dialect: Dialect) -> Mapping[str, str]:
    """A GPU's labels as an exporter would write them; one without a UUID is named after what else is known of it."""
    serial = told["serial"] if told["serial"].strip("0") else ""  # masked ones are all zeros
    on_host = (dialect.host or dialect.file_name, told["pci_bus_id"] or told["gpu"] or told["modelName"])
    uuid = told["uuid"] or serial or "/".join(filter(None, on_host))
    named = {**told, "uuid": uuid, "hostname": dialect.host}
    return {name: value for name, value in named.items() if value and name != "serial"}


def _grouped(
    labels: tuple[Mapping[str, str], ...],
    code: NDArray[np.int64],
    times_s: NDArray[np.float64],
    values: NDArray[np.float64],
    known: NDArray[np.bool_],
) -> Samples:
    """The known rows as one series a GPU."""
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(code[rows], kind="stable")]
    counts = np.bincount(code[rows], minlength=len(labels)).astype(np.int64)
    return Samples(labels, counts, times_s[rows], values[rows])
