"""Fast-scan codes are interleaved for searching; they are gathered plain, in a loose index, and packed at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists, transforms


def packed_lists(index: Any) -> Any | None:
    """The fast-scan PQ lists of an index, behind nothing but transforms, or None if it has none."""
    ivf = inverted_lists(index)
    return ivf if isinstance(ivf, faiss.IndexIVFPQFastScan) else None


def unpacked_lists(packed: Any) -> Any:
    """An empty index of the same lists and codebooks whose codes are plain; it uses what it was made of."""
    loose = faiss.IndexIVFPQ(packed.quantizer, packed.d, packed.nlist, packed.pq.M, packed.pq.nbits, packed.metric_type)
    loose.pq, loose.by_residual, loose.is_trained = packed.pq, packed.by_residual, True
    return loose


def unpacked_copy(index: Any) -> Any:
    """The same with the transforms of the whole index before it."""
    wrapper = faiss.IndexPreTransform(unpacked_lists(packed_lists(index)))
    wrapper.own_fields = False
    for transform in reversed(transforms(index)):
        wrapper.prepend_transform(transform)
    return wrapper


def pack(packed: Any, loose: Any) -> None:
    """Put all entries of a loose index into the fast-scan lists it was made from, instead of what is there."""
    whole = faiss.IndexIVFPQFastScan(loose, packed.bbs)
    packed.replace_invlists(whole.invlists, True)
    whole.own_invlists = False
    packed.ntotal = loose.ntotal


def merge_packed(index: Any, parts: Sequence[Path]) -> None:
    """Fill a trained fast-scan index with the entries of loose parts, list by list out of their files.

    faiss 1.15.1 damages memory when it merges fast-scan lists themselves.  The parts are mapped, so that no entry is in
    memory twice.
    """
    packed: Any = packed_lists(index)
    loose = unpacked_lists(packed)
    flags = faiss.IO_FLAG_MMAP | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    opened = [faiss.read_index(str(part), flags) for part in parts]
    sources = faiss.InvertedListsPtrVector()
    for part in opened:
        lists: Any = inverted_lists(part)
        sources.push_back(lists.invlists)
    side_by_side = faiss.HStackInvertedLists(sources.size(), sources.data())
    loose.replace_invlists(side_by_side, True)
    side_by_side.this.disown()
    loose.ntotal = sum(part.ntotal for part in opened)
    pack(packed, loose)
    faiss.downcast_index(index).ntotal = packed.ntotal
