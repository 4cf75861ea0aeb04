"""One service a state directory."""

import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType

from healthsvc.store.errors import StoreError, store_error


class StateLock:
    """Holds `directory` for this process, from `with` to its end or to the death of the process.

    The lock is the kernel's (flock), so a killed service leaves nothing to clean up; the pid and host written inside
    are for people. Blind on network file systems that keep locks to one host. Raises StoreError if another service
    holds the directory, or if it cannot be created or written to.
    """

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / "lock"
        self._descriptor: int | None = None

    def __enter__(self) -> "StateLock":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as failure:
            raise store_error(self.path.parent, failure) from failure
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise StoreError(
                str(self.path.parent),
                f"another service holds this directory ({holder})",
                "Stop it, or set store.directory to a directory of this service's own",
            ) from None
        except OSError as failure:
            os.close(descriptor)
            raise store_error(self.path.parent, failure) from failure
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)  # closing the last descriptor releases the lock
            self._descriptor = None
