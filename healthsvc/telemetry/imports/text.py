"""A log as blocks of whole lines, whatever its encoding and however long it is."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

BLOCK_BYTES = 16 << 20
MOST_LINE_BYTES = 1 << 20


class ImportFileError(Exception):
    """A file that cannot be imported: its name, what is wrong, the cure."""


def blocks(path: Path, told: Callable[[int], None] = lambda done: None) -> Iterator[str]:
    """Text of whole lines, some BLOCK_BYTES at a time; what is no UTF-8 becomes a replacement character.

    Understands gzip, byte order marks and the UTF-16 of a Windows shell's redirection. `told` hears how many bytes of
    the file have been read. Raises ImportFileError (a line without an end, a damaged gzip file), OSError.
    """
    with path.open("rb") as raw:
        try:
            yield from _pieces(path, raw, told)
        except (EOFError, gzip.BadGzipFile, zlib.error) as failure:
            raise ImportFileError(f"{path}: a broken gzip file ({failure}); copy it again") from None


def _pieces(path: Path, raw: BinaryIO, told: Callable[[int], None]) -> Iterator[str]:
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    data = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
    start = data.read(4)
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    data.seek(0)
    kept = ""
    with io.TextIOWrapper(data, encoding, errors="replace", newline=None) as text:
        while piece := text.read(BLOCK_BYTES):
            told(raw.tell())
            kept += piece
            end = kept.rfind("\n") + 1
            if end:
                yield kept[:end].replace("\0", "")
                kept = kept[end:]
            if len(kept) > MOST_LINE_BYTES:
                raise ImportFileError(f"{path}: a line of more than {MOST_LINE_BYTES:,} characters; is it a log?")
        if kept:
            yield kept.replace("\0", "") + "\n"
