"""Some of the keys, copied as codes into small indexes of faiss: one for each sentence of a batch."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.parallel import run_in_threads
from knn_seq.index.faiss_library.stored_keys import mapped, ranked_by_cosine, view_of
from knn_seq.index.neighbours import Neighbours
from knn_seq.subset.codec import KeyCodec

SPARE = 64  # candidates beyond k: fast scan rounds its look-up tables to 8 bits


class Searcher(NamedTuple):
    """An index of one subset, and the layer of it that ranks candidates, if there is one."""

    index: Any
    ranking: Any | None


class FaissSubsets:
    """The subsets of a batch, searched on the CPU by faiss's look-up tables.

    4-bit codes are scanned with tables that lie in registers, twelve times as fast as 8-bit codes are; what they find
    is ranked by the stored keys, or by exact sums over the look-up tables.

    Args:
        codec: Of the codes.
        codes: Of all entries, (entries, bytes).
        keys: Of all entries, (entries, dimension), to rank candidates by; None: they are ranked by their codes.
        entries: Those of each sentence's subset, (n,) int64.
        values: The target token of each entry of the datastore, (entries,) int32.
        factor: How many times k candidates are ranked.
    """

    def __init__(
        self,
        codec: KeyCodec,
        codes: NDArray[np.uint8],
        keys: NDArray[Any] | None,
        entries: Sequence[NDArray[np.int64]],
        values: NDArray[np.int32],
        factor: int,
    ) -> None:
        self.codec, self.codes, self.keys, self.values, self.factor = codec, codes, keys, values, factor
        self.ranked_here = keys is not None and codec.metric == "cosine"  # keys are not of length one: faiss cannot
        self._parts: list[Any] = []  # faiss does not keep what an index is made of
        self._view: Any = None
        self._lock = threading.Lock()
        if keys is not None and not self.ranked_here:
            self._view = view_of(keys, codec.metric == "ip")
        elif keys is None and codec.quantized.pq.nbits == 4:
            self._view = mapped(self._empty(), codes)
        self.searchers: list[Searcher | None] = [None] * len(entries)

        def fill(numbers: Iterable[int]) -> None:
            for number in numbers:
                self.searchers[number] = self._searcher(entries[number])

        run_in_threads(fill, range(len(entries)))

    def search(self, queries: Tensor, sentences: Tensor, k: int) -> Neighbours:
        """See `Subsets.search`; queries and sentences lie on the CPU."""
        rows = np.ascontiguousarray(queries.float().numpy())
        if self.codec.metric == "cosine":
            rows = np.ascontiguousarray(torch.nn.functional.normalize(torch.from_numpy(rows), dim=1).numpy())
        distances, ids = self._of_each(rows, sentences, k)
        if self.codec.metric != "l2":
            distances *= {"ip": -1.0, "cosine": 0.5}[self.codec.metric]
        values = np.take(self.values, ids, mode="clip").astype(np.int64)
        complete = not len(ids) or int(ids.min()) >= 0
        if not complete:
            missing = ids < 0
            distances[missing], values[missing] = np.inf, 0
        return Neighbours(torch.from_numpy(distances), torch.from_numpy(values), torch.from_numpy(ids), complete)

    def _of_each(self, queries: NDArray[np.float32], sentences: Tensor, k: int) -> tuple[Any, Any]:
        """faiss's distances and ids, (rows, k), of rows that belong to these sentences; -1 is no id."""
        if len(self.searchers) == 1 and self.searchers[0] is not None:
            return self._search(self.searchers[0], queries, k)
        places: defaultdict[int, list[int]] = defaultdict(list)
        for row, sentence in enumerate(sentences.tolist()):
            places[sentence].append(row)
        searched = [number for number in places if self.searchers[number] is not None]
        distances, ids = np.zeros((len(queries), k), np.float32), np.full((len(queries), k), -1)

        def search_each(numbers: Iterable[int]) -> None:
            for number in numbers:
                rows = places[number]
                distances[rows], ids[rows] = self._search(self.searchers[number], queries[rows], k)

        run_in_threads(search_each, searched)
        return distances, ids

    def _search(self, searcher: Searcher | None, queries: NDArray[np.float32], k: int) -> tuple[Any, Any]:
        assert searcher is not None
        wanted = max(self.factor * k, k + SPARE)
        if self.ranked_here:
            assert self.keys is not None
            return ranked_by_cosine(self.keys, queries, searcher.index.search(queries, wanted)[1], k)
        if searcher.ranking is not None:
            searcher.ranking.k_factor = wanted / k
        found: tuple[Any, Any] = searcher.index.search(queries, k)
        return found

    def _searcher(self, entries: NDArray[np.int64]) -> Searcher | None:
        """An index of these entries under their own numbers."""
        if not len(entries):
            return None
        filled = self._empty()
        filled.add_sa_codes(np.take(self.codes, entries, axis=0))
        if filled.pq.nbits == 4:
            filled = faiss.IndexPQFastScan(filled)
        numbered = faiss.IndexIDMap(self._empty())
        numbered.index, numbered.own_fields, numbered.ntotal = filled, False, len(entries)
        faiss.copy_array_to_vector(entries, numbered.id_map)
        self._parts += [filled, numbered]
        if self._view is None:
            return Searcher(self._transformed(numbered), None)
        if self.keys is None:  # codes are ranked behind the transform, keys before it
            ranking = self._ranked(numbered)
            return Searcher(self._transformed(ranking), ranking)
        ranking = self._ranked(self._transformed(numbered))
        return Searcher(ranking, ranking)

    def _empty(self) -> Any:
        like = self.codec.quantized
        index = faiss.IndexPQ(like.d, like.pq.M, like.pq.nbits, like.metric_type)
        index.pq, index.is_trained = like.pq, True
        return index

    def _transformed(self, index: Any) -> Any:
        for transform in reversed(self.codec.transforms):
            index = faiss.IndexPreTransform(transform, index)
            index.own_fields = False
            self._parts.append(index)
        return index

    def _ranked(self, index: Any) -> Any:
        with self._lock:  # the view is shared
            self._view.ntotal = index.ntotal  # faiss wants as many candidates' vectors as candidates, ...
            ranked = faiss.IndexRefine(index, self._view)
        ranked.own_fields = ranked.own_refine_index = False
        ranked.ntotal = len(self.codes)  # ... and numbers below this
        self._parts.append(ranked)
        return ranked
