"""The lines of a file, gzipped or not, as bytes."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from knn_seq.errors import KnnSeqError

GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE_BYTES = 1 << 20


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; what a gzipped one holds, whatever its name."""
    with open(path, "rb") as file:
        gzipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.open(path, "rb") if gzipped else open(path, "rb")  # type: ignore[return-value]


def read_lines(path: Path) -> Iterator[bytes | None]:
    """Each line without its end, and without the byte-order mark of the file.

    None stands for a line of more than a MiB, which is not kept: a file without line ends must not fill the memory.
    """
    try:
        with open_bytes(path) as file:
            if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                file.seek(0)
            while line := file.readline(MAX_LINE_BYTES):
                if line.endswith(b"\n"):
                    yield line[:-2] if line.endswith(b"\r\n") else line[:-1]
                elif len(line) < MAX_LINE_BYTES:
                    yield line.removesuffix(b"\r")
                else:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MAX_LINE_BYTES)
                    yield None
    except (OSError, EOFError, zlib.error) as error:
        raise KnnSeqError(f"{path} cannot be read to its end: {error}.") from error
