"""Files that are wholly there or not at all, and files that turn out to be damaged."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from healthsvc.store.errors import store_error

log = structlog.get_logger(__name__)


def _sync(path: Path) -> None:
    """Force what the kernel holds of a file or directory onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; what is written there takes its place when the block ends without error.

    Its directory is created. A reader sees the old file or the new one, whatever is killed in between; a temporary
    file left by a kill is overwritten by the next write. Raises StoreError if the disk refuses (full, read-only): the
    old file stays, the temporary one is removed. Blind to a second writer of the same file: see StateLock.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as failure:
        raise store_error(path, failure) from failure
    finally:
        _discard(temporary)


def _discard(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except OSError:  # the directory is gone or read-only: the error under way says so already
        log.debug("temporary file not removed", file=str(temporary))


def set_aside(path: Path, why: str, cure: str) -> Path:
    """Rename a damaged file to `<name>.corrupt-<n>` and say so, so that it blocks nothing and can be looked at."""
    taken = quarantined(path.parent, path.name)
    aside = path.with_name(f"{path.name}.corrupt-{_number(taken[-1]) + 1 if taken else 1}")
    try:
        os.replace(path, aside)
    except FileNotFoundError:  # another reader met the damage at the same moment and has moved it
        return aside
    except OSError as failure:
        raise store_error(path, failure) from failure
    log.warning("damaged file set aside", file=str(path), moved_to=str(aside), why=why, cure=cure)
    return aside


def quarantined(directory: Path, name: str = "*") -> list[Path]:
    """Files of `directory` that were set aside, by name and then as they came."""
    aside = [p for p in directory.glob(f"{name}.corrupt-*") if p.suffix.removeprefix(".corrupt-").isdigit()]
    return sorted(aside, key=lambda path: (path.stem, _number(path)))


def _number(aside: Path) -> int:
    return int(aside.suffix.removeprefix(".corrupt-"))
