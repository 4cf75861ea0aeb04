"""What goes wrong with kept state, in words for the person who has to act."""

import errno
import os


class StoreError(Exception):
    """State could not be kept or read: `where`, `what` happened, the `cure`. What was stored before is untouched."""

    def __init__(self, where: str, what: str, cure: str) -> None:
        super().__init__(f"{where}: {what}. {cure}")
        self.where, self.what, self.cure = where, what, cure


_FULL = "Free space on its volume or move store.directory to a larger one"
_FORBIDDEN = "Give this user write access or set store.directory to a directory of its own"
_CURES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "Raise the file size limit of this process (ulimit -f)",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: "Set store.directory to a directory on a writable volume",
    errno.EMFILE: "Raise the open files limit of this process (ulimit -n)",
}


def store_error(where: object, failure: OSError) -> StoreError:
    """The StoreError that says what `failure` means for `where`."""
    cure = _CURES.get(failure.errno or 0, "Check store.directory and the disk that holds it")
    what = os.strerror(failure.errno) if failure.errno else str(failure)
    return StoreError(str(where), what, cure)
