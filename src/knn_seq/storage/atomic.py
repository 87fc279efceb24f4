"""Files that are there complete or not at all, whenever the process is killed."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from knn_seq.errors import DamagedFile, DiskFull

PARTIAL = ".partial"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
    """Give a written folder its final name, which must be free; the two lie on one disk."""
    with disk_errors(final):
        for file in partial.iterdir():
            _fsync(file)
        _fsync(partial)
        os.rename(partial, final)
        _fsync(final.parent)


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
    """Turn the errors of a full disk, a quota or a file-size limit into a `DiskFull`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = getattr(error, "errno", None)
        if number is None:  # HDF5 tells the error number in the text of a RuntimeError
            match = re.search(r"errno = (\d+)", str(error))
            number = int(match[1]) if match else None
        if number not in _FULL:
            raise
        raise DiskFull(
            f"The disk is full ({os.strerror(number)}) at {path}: "
            "what was finished is on the disk; free some space and run the same command again to resume."
        ) from error


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON.")
