"""The files of a corpus: whether they can be read, gzipped or not, and which ones they are."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotFound

GZIP_MAGIC = b"\x1f\x8b"
HASHED_BYTES = 1 << 20


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; what a gzipped one holds, whatever its name."""
    with open(path, "rb") as file:
        gzipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.open(path, "rb") if gzipped else open(path, "rb")  # type: ignore[return-value]


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file as `open_bytes` does, and turn what fails while it is read into a `KnnSeqError`."""
    try:
        with open_bytes(path) as file:
            yield file
    except KnnSeqError:  # some are an OSError, too
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DamagedFile(f"{path} cannot be read to its end: {error}.") from error
    except OSError as error:
        raise KnnSeqError(f"{path} cannot be read to its end: {error}.") from error


def require_file(path: Path) -> None:
    """Raise a `KnnSeqError` if that is no file that can be read more than once."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # a pipe can be read only once, and an interrupted build has to read again
            kind = "folder" if stat.S_ISDIR(mode) else "pipe or device"
            raise InvalidSetting(f"{path} is a {kind}: give a regular file.")
        open(path, "rb").close()
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}.") from error
    except OSError as error:
        raise KnnSeqError(f"{path} cannot be read: {error.strerror}.") from error


def require_folder(path: Path) -> None:
    """Raise a `NotFound` if that is no folder."""
    if not path.is_dir():
        raise NotFound(f"There is no folder {path}.")


def file_identity(path: Path) -> dict[str, Any]:
    """What tells whether this is the same file as another time: name, size, hash of both ends."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(file.read(HASHED_BYTES))
        file.seek(max(0, size - HASHED_BYTES))
        digest.update(file.read(HASHED_BYTES))
    return {"name": path.name, "bytes": size, "ends": digest.hexdigest()}
