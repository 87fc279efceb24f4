"""Inverted lists that stay on the disk."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from knn_seq.errors import DamagedFile
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists, on_disk

LISTS_NAME = "lists.ivfdata"
ID_BYTES = 8  # of an entry


def can_stay_on_disk(index: Any) -> bool:
    """Whether the lists of an index may lie on the disk: fast-scan codes are interleaved for memory only."""
    ivf = inverted_lists(index)
    return ivf is not None and not isinstance(ivf, faiss.IndexIVFFastScan)


def merge_on_disk(index: Any, parts: Sequence[Path], lists: Path) -> None:
    """Fill a trained, empty index with the lists of all parts, in a file, without holding them in memory.

    Args:
        index: Gets the merged lists.
        parts: Files of indexes that were trained as this one and filled with different entries.
        lists: The file to write.
    """
    ivf: Any = inverted_lists(index)
    # Each part would compute the tables of its codes anew, and they may take more memory than the lists.
    flags = faiss.IO_FLAG_MMAP | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    opened = [faiss.read_index(str(part), flags) for part in parts]
    sources = faiss.InvertedListsPtrVector()
    for part in opened:
        lists_of_part: Any = inverted_lists(part)
        sources.push_back(lists_of_part.invlists)
    _require_space(lists, sum(part.ntotal for part in opened) * (ivf.code_size + ID_BYTES))
    merged = faiss.OnDiskInvertedLists(ivf.nlist, ivf.code_size, str(lists))
    with _silence():
        total = merged.merge_from_multiple(sources.data(), sources.size())
    with lists.open("rb") as file:
        os.fsync(file.fileno())  # nobody else does it for a file that was written through a map
    ivf.replace_invlists(merged, True)
    merged.this.disown()
    _read_when_needed(ivf)
    ivf.ntotal = total
    faiss.downcast_index(index).ntotal = total


def _require_space(path: Path, size: int) -> None:
    """Raise an `OSError` if the disk is full: a write through a map would kill the process."""
    with path.open("wb") as file:
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def read_with_lists(path: Path) -> Any:
    """The index in a file whose lists lie in another file of its folder."""
    with _silence():
        index = faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR)
    ivf = inverted_lists(index)
    if ivf is not None and on_disk(ivf):
        _read_when_needed(ivf)
    return index


def require_complete_lists(index: Any, path: Path) -> None:
    """Raise a `DamagedFile` if the file of the lists is shorter than what is read from it."""
    ivf = inverted_lists(index)
    if ivf is None or not on_disk(ivf):
        return
    lists = path.with_name(LISTS_NAME)
    if not lists.exists() or lists.stat().st_size < faiss.downcast_InvertedLists(ivf.invlists).totsize:
        raise DamagedFile(f"{lists} is damaged or missing: build the index again.")


def _read_when_needed(ivf: Any) -> None:
    # faiss would start 32 threads for every search that touch each list before it is scanned: what is in memory already
    # is read twice, and what is not comes no sooner, since the system reads ahead within a list by itself.
    faiss.downcast_InvertedLists(ivf.invlists).prefetch_nthread = 0


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what faiss prints about such files out of standard output, where translations go."""
    sys.stdout.flush()
    output, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(output, 1)
        os.close(output)
        os.close(nowhere)
