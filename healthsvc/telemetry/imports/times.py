"""The times of a log as Unix seconds: nvidia-smi's own local time without a zone, ISO 8601, or numbers."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_LOCAL = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,9})?$"
_ZONED = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):?[0-5]\d)$"
_NUMBER = r"^\d{9,19}(\.\d+)?$"
_CALENDAR = r"^[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d{2}:\d{2}:\d{2} \d{4}$"
_LATEST_S = 1e11  # larger numbers count in smaller units


def check_zone(name: str) -> str:
    """The name again. Raises ValueError if there is no such time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"--timezone = {name!r}: no such zone; write it like Europe/Berlin or UTC") from None
    return name


def unix_seconds(column: pa.ChunkedArray, zone: str) -> NDArray[np.float64]:
    """Seconds [row], NaN where a cell is no time. `zone` is for times that do not name one.

    Blind in the hour that a clock is set back: its times are taken for the earlier of the two.
    """
    text = column.combine_chunks()
    text = pc.replace_substring_regex(text, r"^(\d{4})/(\d{2})/(\d{2})", r"\1-\2-\3")
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d{2}-\d{2})T", r"\1 ")
    out = np.full(len(text), np.nan)
    for pattern, read in ((_LOCAL, _local), (_ZONED, _zoned), (_NUMBER, _number), (_CALENDAR, _calendar)):
        here = pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False).astype(bool) & np.isnan(out)
        if here.any():
            out[here] = read(text.filter(pa.array(here)), zone)
    return out


def _seconds(stamps: pa.Array) -> NDArray[np.float64]:
    whole: NDArray[np.int64] = pc.cast(stamps, pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(whole / 1e9, np.float64)


def _local(text: pa.Array, zone: str) -> NDArray[np.float64]:
    return _in_zone(_stamps(text), zone)


def _stamps(cells: pa.Array) -> pa.Array:
    """Text or whole seconds as timestamps; a field out of its range (month 13, the year 9999) is null."""
    try:
        return pc.cast(cells, pa.timestamp("ns"))
    except pa.ArrowInvalid:  # one bad cell spoils the whole column: find it
        return pa.array([_one(cell) for cell in cells], pa.timestamp("ns"))


def _one(cell: pa.Scalar) -> pa.Scalar | None:
    try:
        return cell.cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return None


def _in_zone(stamps: pa.Array, zone: str) -> NDArray[np.float64]:
    placed = pc.assume_timezone(stamps, zone, ambiguous="earliest", nonexistent="latest")
    known: NDArray[np.bool_] = pc.is_valid(placed).to_numpy(zero_copy_only=False)
    seconds = _seconds(pc.fill_null(placed, pa.scalar(0, placed.type)))
    return np.where(known, seconds, np.nan)


def _zoned(text: pa.Array, zone: str) -> NDArray[np.float64]:
    text = pc.replace_substring_regex(text, r"Z$", "+00:00")
    text = pc.replace_substring_regex(text, r"([+-]\d{2})(\d{2})$", r"\1:\2")
    parts = pc.extract_regex(text, r"^(?P<local>.*)(?P<sign>[+-])(?P<hours>\d{2}):(?P<minutes>\d{2})$")
    offset = (
        pc.cast(pc.struct_field(parts, "hours"), pa.int64()).to_numpy(zero_copy_only=False) * 3600
        + pc.cast(pc.struct_field(parts, "minutes"), pa.int64()).to_numpy(zero_copy_only=False) * 60
    )
    east = pc.equal(pc.struct_field(parts, "sign"), "+").to_numpy(zero_copy_only=False)
    at_s: NDArray[np.float64] = _in_zone(_stamps(pc.struct_field(parts, "local")), "UTC")
    return np.asarray(at_s - np.where(east, offset, -offset), np.float64)


def _number(text: pa.Array, zone: str) -> NDArray[np.float64]:
    values: NDArray[np.float64] = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False).copy()
    for _ in range(3):  # ms, us, ns
        values = np.where(values >= _LATEST_S, values / 1e3, values)
    return values


def _calendar(text: pa.Array, zone: str) -> NDArray[np.float64]:
    single = pc.replace_substring_regex(text, " +", " ")
    return _in_zone(_stamps(pc.strptime(single, "%a %b %d %H:%M:%S %Y", unit="s", error_is_null=True)), zone)
