"""How many of the true neighbours an index finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.index.base import SearchIndex, SearchResult
from knn_seq.index.exact import exact_search

TIES = 1e-5  # relative: keys that are as near as the k-th neighbour but for rounding are as good
ALONE = 16  # queries that are timed one by one


@dataclass(frozen=True)
class IndexCheck:
    """What a comparison with exact search found."""

    recall: float  # the share of the k nearest entries that were found, those that are equally near counted as found
    k: int
    queries: int
    entries: int
    milliseconds: float  # a query, all of them asked in one batch
    milliseconds_alone: float  # a query that is asked by itself

    def __str__(self) -> str:
        return (
            f"recall@{self.k} {self.recall:.4f} on {self.queries:,} queries out of {self.entries:,} keys\n"
            f"{self.milliseconds:.3f} ms a query in a batch of {self.queries:,}, {self.milliseconds_alone:.3f} ms alone"
        )


def check_index(
    index: SearchIndex,
    keys: NDArray[Any],
    k: int = 64,
    queries: int = 256,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> IndexCheck:
    """Recall and speed on a random sample of the keys themselves, each asked for its neighbours without itself.

    The queries of a decoder that translates text like the datastore's look like its keys.

    Args:
        index: Of all the keys.
        keys: (entries, dimension); it may be a memory map larger than memory.
        k: Neighbours of a query.
        queries: How many.
        seed: Chooses them.
        on_progress: Called with the number of keys after each block that was read.
        options: Of the searches.
    """
    entries = len(keys)
    if len(index) != entries:
        raise InvalidSetting(
            f"The index has {len(index):,} entries and there are {entries:,} keys: build the index again."
        )
    if k < 1 or queries < 1:
        raise InvalidSetting(f"A check needs at least 1 neighbour and 1 query, not {k} and {queries}.")
    if entries < 2:
        raise InvalidSetting(f"A check needs keys that have neighbours, and there is {entries} of them.")
    k, queries = min(k, entries - 1), min(queries, entries)
    rows = np.sort(np.random.default_rng(seed).choice(entries, queries, replace=False))
    asked, itself = np.asarray(keys[rows], np.float32), torch.from_numpy(rows)
    nearest = exact_search(keys, asked, k, index.metric, on_progress, exclude=itself)
    found = _without(
        index.search(asked, k + 1, options), itself, k
    )  # a first search also warms what the timed ones read
    return IndexCheck(
        recall=_recall(found, nearest, keys, asked, index.metric),
        k=k,
        queries=queries,
        entries=entries,
        milliseconds=_milliseconds(index, [asked], k, options) / queries,
        milliseconds_alone=_milliseconds(index, [query[None] for query in asked[:ALONE]], k, options)
        / min(queries, ALONE),
    )


def _without(found: SearchResult, itself: Tensor, k: int) -> Tensor:
    """The ids of the first k entries that are not the query itself, (n, k)."""
    order = (found.ids == itself.unsqueeze(1)).int().sort(dim=1, stable=True).indices
    return found.ids.gather(1, order)[:, :k]


def _recall(found: Tensor, nearest: SearchResult, keys: NDArray[Any], asked: NDArray[np.float32], metric: str) -> float:
    hits = (found.unsqueeze(2) == nearest.ids.unsqueeze(1)).any(dim=2)  # (n, k)
    # Texts repeat themselves, and their keys do: which of many equal ones a search returns is no matter.
    for query in (~hits).any(dim=1).nonzero().squeeze(1).tolist():
        others = (~hits[query] & (found[query] >= 0)).nonzero().squeeze(1)
        rows = keys[found[query, others].numpy()]
        distances, order = (part[0] for part in exact_search(rows, asked[[query]], max(len(rows), 1), metric))
        farthest = nearest.distances[query, -1]
        hits[query, others[order[distances <= farthest + TIES * farthest.abs()]]] = True
    return float(hits.float().mean())


def _milliseconds(
    index: SearchIndex, batches: list[NDArray[np.float32]], k: int, options: Mapping[str, Any] | None
) -> float:
    start = time.perf_counter()
    for batch in batches:
        index.search(batch, k, options)
    return 1000 * (time.perf_counter() - start)
