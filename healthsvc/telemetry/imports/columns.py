"""One column of an nvidia-smi log as numbers: units, hexadecimal masks, words, and cells that hold no value."""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_NUMBER = r"^(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-z%]*)$"
_HEADER = re.compile(r"^(?P<field>[\w.]+)\s*(?:\[(?P<unit>[^\]]*)\])?$")
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")

# Unit as nvidia-smi writes it -> factor to the base unit, and how nvidia_gpu_exporter ends the metric's name.
_UNITS = {
    "": (1.0, ""),
    "C": (1.0, ""),
    "W": (1.0, "_watts"),
    "mW": (1e-3, "_watts"),
    "J": (1.0, "_joules_total"),
    "mJ": (1e-3, "_joules_total"),
    "MHz": (1e6, "_clock_hz"),
    "%": (1e-2, "_ratio"),
    "s": (1.0, "_seconds"),
    "ms": (1e-3, "_seconds"),
    "us": (1e-6, "_seconds"),
    "B": (1.0, "_bytes"),
    "KiB": (2.0**10, "_bytes"),
    "MiB": (2.0**20, "_bytes"),
    "GiB": (2.0**30, "_bytes"),
}
# What a field is in where neither header nor cell says so (logs written with noheader,nounits).
_UNIT_BY_FIELD = (
    (re.compile(r"^(enforced\.)?power\.(draw|limit|default_limit|min_limit|max_limit)|^power\.draw"), "W"),
    (re.compile(r"^clocks\.(current|max|applications|default_applications)\."), "MHz"),
    (re.compile(r"^(utilization\.|fan\.speed)"), "%"),
    (re.compile(r"_reasons_counters\."), "us"),
    (re.compile(r"^memory\.(total|used|free|reserved)"), "MiB"),
)
_ALIASES = {
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "gpu_temp": "temperature.gpu",
    "mem_temp": "temperature.memory",
}
_WORDS = {
    "active": 1.0,
    "not active": 0.0,
    "yes": 1.0,
    "no": 0.0,
    "enabled": 1.0,
    "disabled": 0.0,
}
_NO_SENSOR = ("n/a", "not supported", "requested functionality has been deprecated", "-")
_BLANK = (
    "",
    "unknown error",
    "gpu is lost",
    "insufficient permissions",
    "err!",
    "error",
    "unknown",
    "gpu requires reset",
)


@dataclass(frozen=True)
class Column:
    """A parsed header cell: nvidia-smi's field and the unit it announces ("" where it announces none)."""

    field: str
    unit: str

    @property
    def metric(self) -> str:
        """The name that nvidia_gpu_exporter gives the field, which is made of it mechanically."""
        snake = _CAPITAL.sub(r"_\1", self.field.replace(".", "_")).lower()
        return f"nvidia_smi_{snake}{_UNITS[self.unit][1] if self.unit in _UNITS else ''}"


def column_of(header: str) -> Column | None:
    """What a header cell names; None where it names no field."""
    found = _HEADER.match(header.strip())
    if not found:
        return None
    field = _ALIASES.get(found["field"], found["field"])
    unit = found["unit"] or next((unit for pattern, unit in _UNIT_BY_FIELD if pattern.search(field)), "")
    return Column(field, unit)


def trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text cells without the blanks around them."""
    return pc.utf8_trim_whitespace(column)


def numbers(column: pa.ChunkedArray, unit: str) -> tuple[NDArray[np.float64], Counter[str]]:
    """The cells [row] in base units, NaN where a cell holds no value; and how many did not, by reason.

    A unit in the cell outranks the header's `unit`. no_sensor: the board has none; blank: it gave no answer this time;
    not_a_number: the cell is neither number, word nor one of nvidia-smi's own apologies.
    """
    parts = pc.extract_regex(column, _NUMBER).combine_chunks()
    values: NDArray[np.float64] = np.array(
        pc.cast(pc.struct_field(parts, "number"), pa.float64()).to_numpy(zero_copy_only=False), np.float64
    )
    told = pc.struct_field(parts, "unit").dictionary_encode()
    code = pc.fill_null(told.indices, -1).to_numpy(zero_copy_only=False)
    reasons: Counter[str] = Counter()
    for number, name in enumerate(told.dictionary.to_pylist()):
        here = code == number
        factor = _UNITS.get(name or unit)
        if factor is None:
            reasons["not_a_number"] += int(here.sum())
            values[here] = np.nan
        else:
            values[here] *= factor[0]
    words = pc.filter(column, pc.is_null(parts)).combine_chunks().dictionary_encode()
    if len(words):
        meant = [_meaning(word) for word in words.dictionary.to_pylist()]
        index = words.indices.to_numpy(zero_copy_only=False)
        values[code < 0] = np.array([value for value, _ in meant])[index]
        for number, (_, reason) in enumerate(meant):
            if reason:
                reasons[reason] += int((index == number).sum())
    return values, reasons


def _meaning(word: str) -> tuple[float, str]:
    """The number that a word stands for, or NaN and the reason."""
    plain = word.strip("[]() ").lower()
    if plain in _WORDS:
        return _WORDS[plain], ""
    if plain.startswith("0x"):
        try:
            return float(int(plain, 16)), ""
        except ValueError:
            return np.nan, "not_a_number"
    if plain in _NO_SENSOR:
        return np.nan, "no_sensor"
    return np.nan, "blank" if plain in _BLANK else "not_a_number"
