"""Files that are there complete or not at all, whenever the process is killed."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from knn_seq.errors import DamagedFile, DiskFull, KnnSeqError

PARTIAL = ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def partial_of(path: Path) -> Path:
    """The file beside `path` that is written before it takes that name."""
    return path.with_name(path.name + PARTIAL)


def publish(partial: Path, final: Path) -> None:
    """Give a written file its final name, safely even if the power fails; both lie in one folder."""
    with disk_errors(final):
        _fsync(partial)
        os.replace(partial, final)
        _fsync(final.parent)


def publish_folder(partial: Path, final: Path) -> None:
    """Give a folder, all of which is on the disk, its final name, which must be free; the two lie on one disk."""
    with disk_errors(final):
        os.rename(partial, final)
        _fsync(final.parent)


def sync_folder(folder: Path) -> None:
    """Return when a folder and all in it are on the disk."""
    with disk_errors(folder):
        for path in folder.rglob("*"):
            _fsync(path)
        _fsync(folder)


def write_json(path: Path, data: Any) -> None:
    """Replace a JSON file in one step."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
    partial = partial_of(path)
    with disk_errors(path):
        partial.write_text(text, encoding="utf-8")
    publish(partial, path)


def read_json(path: Path) -> Any:
    """What a JSON file holds; a `DamagedFile` if it is not JSON, a `FileNotFoundError` if it is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: it is not JSON ({error}).") from error


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a full disk, a quota or a file-size limit into a `DiskFull`, whichever library raises them."""
    try:
        yield
    except Exception as error:
        full = disk_full(error, path)
        if full is None or full is error:
            raise
        raise full from error


def disk_full(error: Exception, path: Path | None = None) -> DiskFull | None:
    """The `DiskFull` that an error stands for; None if it stands for something else.

    Args:
        error: Of this program, or of any library.
        path: What was being written, if the error does not name it.
    """
    if isinstance(error, KnnSeqError):
        return error if isinstance(error, DiskFull) else None
    number = getattr(error, "errno", None)
    if number is None:  # HDF5, faiss and safetensors tell it in the text of an error of their own
        text = str(error)
        match = re.search(r"errno = (\d+)|os error (\d+)|\[Errno (\d+)\]", text)
        number = int(match[match.lastindex or 0]) if match else next((n for n in _FULL if os.strerror(n) in text), None)
    if number not in _FULL:
        return None
    place = getattr(error, "filename", None) or path
    return DiskFull(
        f"The disk is full ({os.strerror(number)}){f' at {place}' if place else ''}: "
        "what was finished is on the disk; free some space and run the same command again to resume."
    )


@contextmanager
def unsynced() -> Iterator[None]:
    """Bring nothing to the disk in this thread: for files that `publish_folder` syncs, or that are made again."""
    before, _state.unsynced = _unsynced(), True
    try:
        yield
    finally:
        _state.unsynced = before


def sync_file(handle: int) -> None:
    """Return when all of an open file is on the disk, except in `unsynced`."""
    if not _unsynced():
        os.fsync(handle)


_state = threading.local()


def _unsynced() -> bool:
    return bool(getattr(_state, "unsynced", False))


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        sync_file(handle)
    finally:
        os.close(handle)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON.")
