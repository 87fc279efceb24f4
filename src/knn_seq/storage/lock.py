from __future__ import annotations

import errno
import fcntl
import functools
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from knn_seq.errors import KnnSeqError
from knn_seq.storage.atomic import disk_full

_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


class FolderLock:
    """Lets one process at a time write into a folder, which is made if it is not there.

    The kernel releases the lock when the process ends, however it ends, even if its children live on.

    Args:
        folder: The folder.
        timeout: Seconds to wait for another process to release it.
    """

    def __init__(self, folder: Path, timeout: float = 0.0) -> None:
        self.path, self.timeout = folder / ".lock", timeout
        self._handle = -1

    def __enter__(self) -> FolderLock:
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            unwritable = KnnSeqError(f"{folder} cannot be written to: {error.strerror}.")
            raise disk_full(error) or unwritable from error
        try:
            self._take()
        except OSError as error:
            owner = os.pread(self._handle, 32, 0).decode(errors="replace").strip()
            self.release()
            if error.errno not in _TAKEN:
                raise KnnSeqError(f"The file system of {folder} cannot lock files: {error.strerror}.") from error
            raise KnnSeqError(
                f"Another process{f' ({owner})' if owner else ''} is writing into {folder}: "
                "wait until it ends, or choose another folder."
            ) from error
        _release_in_children()
        _held.add(self._handle)
        with suppress(OSError):  # a full disk: the lock holds without it
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"pid {os.getpid()}".encode(), 0)
        return self

    def _take(self) -> None:
        last = time.monotonic() + self.timeout
        while True:
            try:
                return fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _TAKEN or time.monotonic() >= last:
                    raise
                time.sleep(0.1)

    def release(self) -> None:
        """Release the lock; the lock file stays, since removing it would open a race."""
        if self._handle >= 0:
            _held.discard(self._handle)
            os.close(self._handle)
            self._handle = -1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


_held: set[int] = set()


@functools.cache
def _release_in_children() -> None:
    """A forked child shares the lock; were it to keep it, it would outlive a killed parent."""

    def close_all() -> None:
        while _held:
            os.close(_held.pop())

    os.register_at_fork(after_in_child=close_all)
