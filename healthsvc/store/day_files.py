"""A folder with one Parquet file a UTC day; a damaged file is set aside and costs its own day only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from healthsvc.fleet import EPOCH, day_name
from healthsvc.store.atomic import quarantined, set_aside, write_atomically
from healthsvc.store.errors import store_error

VERSION_KEY = b"healthsvc.schema_version"


def _day_of(name: str) -> int | None:
    """The day that a file name begins with, if any."""
    try:
        return (date.fromisoformat(name[:10]) - EPOCH).days
    except ValueError:
        return None


class _DamagedError(Exception):
    """The file is readable as bytes and is not a day file."""


@dataclass(frozen=True)
class DayFiles:
    """The files of one kind.

    required: columns that every file has; check: raises ValueError or KeyError if an Arrow schema (its metadata) is not
    of this kind; version: of the layout; cure: what becomes of a day whose file is damaged, and what to do.
    """

    directory: Path
    required: tuple[str, ...]
    check: Callable[[Any], object] = lambda schema: None
    version: int = 1
    cure: str = "Nothing to do: the day is fetched again while the server still has it"

    def path(self, day: int) -> Path:
        return self.directory / f"{day_name(day)}.parquet"

    def days(self) -> list[int]:
        """Days with a file, in order."""
        named = ((path.name, _day_of(path.name)) for path in self.directory.glob("*.parquet"))
        return sorted(day for name, day in named if day is not None and name == f"{day_name(day)}.parquet")

    def write(self, day: int, table: Any, metadata: dict[bytes, bytes]) -> None:
        """Replace the day's file. Raises StoreError; the old file then stays."""
        marked = table.replace_schema_metadata({VERSION_KEY: str(self.version).encode(), **metadata})
        texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
        with write_atomically(self.path(day)) as temporary:
            # Dictionaries pay for labels only; checksums tell a flipped bit from a number.
            pq.write_table(marked, temporary, compression="zstd", use_dictionary=texts, write_page_checksum=True)

    def schema(self, day: int) -> Any | None:
        """The day's Arrow schema with its metadata; None: no file, or a damaged one, now set aside."""
        return self._attempt(day, lambda file: file.schema_arrow)

    def read(self, day: int, columns: Sequence[str] | None = None) -> Any | None:
        """The day's table (of `columns`, those absent left out); None: no file, or a damaged one, now set aside."""

        def table(file: Any) -> Any:
            schema = file.schema_arrow
            names = schema.names if columns is None else [name for name in schema.names if name in columns]
            return file.read(names).replace_schema_metadata(schema.metadata)  # the metadata that was checked

        return self._attempt(day, table)

    def quarantined(self) -> list[Path]:
        """Damaged files that were set aside."""
        return quarantined(self.directory)

    def drop_before(self, day: int) -> None:
        """Remove every file of the days before `day`: whole, damaged or half-written."""
        for path in list(self.directory.glob("*")):
            of = _day_of(path.name.removeprefix("."))
            if of is not None and of < day:
                try:
                    path.unlink(missing_ok=True)
                except OSError as failure:
                    raise store_error(path, failure) from failure

    def _attempt(self, day: int, use: Any) -> Any | None:
        path = self.path(day)
        try:
            source = pa.OSFile(str(path))
        except FileNotFoundError:
            return None
        except OSError as failure:  # refused by the system, which says nothing about the file: never set aside
            raise store_error(path, failure) from failure
        with source:
            try:
                return use(self._checked(source))
            except MemoryError:  # says nothing about the file either
                raise
            except (pa.ArrowException, OSError, ValueError, KeyError, _DamagedError) as failure:
                why = str(failure)
        set_aside(path, why, self.cure)
        return None

    def _checked(self, source: Any) -> Any:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        version = (file.schema_arrow.metadata or {}).get(VERSION_KEY, b"none").decode()
        if version != str(self.version):
            raise _DamagedError(f"schema version {version}; this software writes {self.version}")
        absent = [name for name in self.required if name not in file.schema_arrow.names]
        if absent:
            raise _DamagedError(f"no column {', '.join(absent)}")
        self.check(file.schema_arrow)
        return file
