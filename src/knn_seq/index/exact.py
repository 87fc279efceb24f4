"""Exact search over keys that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index.base import CHUNK_BYTES, SearchResult, Vectors
from knn_seq.index.result import merge_results
from knn_seq.index.torch import TorchIndex


def exact_search(
    keys: NDArray[Any],
    queries: Vectors,
    k: int,
    metric: str = "l2",
    on_progress: Callable[[int], None] | None = None,
    exclude: Tensor | None = None,
) -> SearchResult:
    """The k nearest keys of each query, read block after block, with the distances of `SearchIndex`.

    Each block is searched by an exact index of its own, whose best entries are merged with those so far; equally near
    ones come in the order of their ids.

    Args:
        keys: (entries, dimension); it may be a memory map larger than memory.
        queries: (n, dimension), on any device.
        k: How many.
        metric: "l2", "ip" or "cosine".
        on_progress: Called with the number of keys after each block.
        exclude: (n,) int64, an entry that each query must not find: itself, if it is a key; -1: none.
    """
    entries, dimension = keys.shape
    spare = 0 if exclude is None else 1
    best = TorchIndex(dimension, metric).search(queries, k)  # nothing, on the queries' device
    step = max(CHUNK_BYTES // (4 * dimension), 1)
    for start in range(0, entries, step):
        block = TorchIndex(dimension, metric)
        rows = keys[start : start + step]
        block.add(rows, torch.arange(start, start + len(rows)))
        found = block.search(queries, k + spare)
        if exclude is not None:
            itself = found.ids == exclude.to(found.ids).unsqueeze(1)
            found = SearchResult(found.distances.masked_fill(itself, torch.inf), found.ids.masked_fill(itself, -1))
        best = merge_results(best, found, k)
        if on_progress is not None:
            on_progress(len(rows))
    return best
