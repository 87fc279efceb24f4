"""Inverted lists that stay on the disk."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from knn_seq.errors import UserError
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists, on_disk

LISTS_NAME = "lists.ivfdata"


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
    opened = [faiss.read_index(str(part), faiss.IO_FLAG_MMAP) for part in parts]
    sources = faiss.InvertedListsPtrVector()
    for part in opened:
        lists_of_part: Any = inverted_lists(part)
        sources.push_back(lists_of_part.invlists)
    merged = faiss.OnDiskInvertedLists(ivf.nlist, ivf.code_size, str(lists))
    with _silence():
        total = merged.merge_from_multiple(sources.data(), sources.size())
    ivf.replace_invlists(merged, True)
    merged.this.disown()
    ivf.ntotal = total
    faiss.downcast_index(index).ntotal = total


def read_with_lists(path: Path) -> Any:
    """The index in a file whose lists lie in another file of its folder."""
    with _silence():
        return faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR)


def require_whole(index: Any, path: Path) -> None:
    """Raise a `UserError` if the file of the lists is shorter than what is read from it."""
    ivf = inverted_lists(index)
    if ivf is None or not on_disk(ivf):
        return
    lists = path.with_name(LISTS_NAME)
    if not lists.exists() or lists.stat().st_size < faiss.downcast_InvertedLists(ivf.invlists).totsize:
        raise UserError(f"{lists} is damaged or missing: build the index again.")


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
