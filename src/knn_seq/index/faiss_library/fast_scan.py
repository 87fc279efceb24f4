"""Fast-scan codes are interleaved for searching; they are gathered plain, in unpacked lists, and packed at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists, transforms


def fast_scan_lists(index: Any) -> Any | None:
    """The fast-scan PQ lists of an index, behind nothing but transforms, or None if it has none."""
    ivf = inverted_lists(index)
    return ivf if isinstance(ivf, faiss.IndexIVFPQFastScan) else None


def unpacked_lists(packed: Any) -> Any:
    """An empty index of the same lists and codebooks whose codes are plain; it uses what it was made of."""
    unpacked = faiss.IndexIVFPQ(
        packed.quantizer, packed.d, packed.nlist, packed.pq.M, packed.pq.nbits, packed.metric_type
    )
    unpacked.pq, unpacked.by_residual, unpacked.is_trained = packed.pq, packed.by_residual, True
    return unpacked


def unpacked_copy(index: Any) -> Any:
    """The same with the transforms of the complete index before it."""
    wrapper = faiss.IndexPreTransform(unpacked_lists(fast_scan_lists(index)))
    wrapper.own_fields = False
    for transform in reversed(transforms(index)):
        wrapper.prepend_transform(transform)
    return wrapper


def pack_lists(packed: Any, unpacked: Any) -> None:
    """Put all entries of unpacked lists into the fast-scan lists they were made from, instead of what is there."""
    interleaved = faiss.IndexIVFPQFastScan(unpacked, packed.bbs)
    packed.replace_invlists(interleaved.invlists, True)
    interleaved.own_invlists = False
    packed.ntotal = unpacked.ntotal


def merge_unpacked_parts(index: Any, parts: Sequence[Path]) -> None:
    """Fill a trained fast-scan index with the entries of unpacked parts, list by list out of their files.

    faiss 1.15.1 damages memory when it merges fast-scan lists themselves.  The parts are mapped, so that no entry is in
    memory twice.
    """
    packed: Any = fast_scan_lists(index)
    unpacked = unpacked_lists(packed)
    flags = faiss.IO_FLAG_MMAP | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    opened = [faiss.read_index(str(part), flags) for part in parts]
    sources = faiss.InvertedListsPtrVector()
    for part in opened:
        lists: Any = inverted_lists(part)
        sources.push_back(lists.invlists)
    joined = faiss.HStackInvertedLists(sources.size(), sources.data())
    unpacked.replace_invlists(joined, True)
    joined.this.disown()
    unpacked.ntotal = sum(part.ntotal for part in opened)
    pack_lists(packed, unpacked)
    faiss.downcast_index(index).ntotal = packed.ntotal
