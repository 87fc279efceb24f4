"""Whether a compaction found neighbours again that were lost since the index was trained."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.errors import KnnSeqError
from knn_seq.index.exact import exact_search
from knn_seq.index.recipe import FLAT_ENTRIES
from knn_seq.index.segmented import open_segmented
from knn_seq.storage import DatastoreFolder

log = logging.getLogger(__name__)

QUERIES, NEIGHBOURS = 64, 16
TIES = 1e-4  # relative: which of equally near ones is found is no matter


class RecallSample:
    """Some keys of a datastore, and how many of their neighbours its default index found before it was compacted.

    Args:
        queries: The keys, (n, dimension); none if the index is exact anyway.
        nearest: The distances of their exact neighbours, (n, k).
        recall: The share of them that was found.
    """

    def __init__(self, queries: NDArray[np.float32], nearest: Any, recall: float) -> None:
        self.queries, self.nearest, self.recall = queries, nearest, recall

    @classmethod
    def of(cls, store: DatastoreFolder) -> RecallSample:
        """A sample of a datastore's keys that are not deleted."""
        nothing = cls(np.empty((0, 0), np.float32), None, 1.0)
        if len(store.base.keys) <= FLAT_ENTRIES:
            return nothing
        rows = np.random.default_rng(0).choice(len(store), min(4 * QUERIES, len(store)), replace=False)
        if store.deleted_entries is not None:
            rows = rows[~store.deleted_entries[rows]]
        queries = np.asarray(store.keys[np.sort(rows[:QUERIES])], np.float32)
        try:
            index = open_segmented(store)
            best = torch.full((len(queries), NEIGHBOURS), torch.inf)
            start = 0
            for segment in store.segments:
                near = exact_search(segment.keys, queries, 2 * NEIGHBOURS, index.metric)
                if store.deleted_entries is not None:
                    gone = torch.from_numpy(store.deleted_entries[near.ids.clamp(min=0).numpy() + start])
                    near.distances[gone] = torch.inf
                best = torch.cat([best, near.distances], dim=1).sort(dim=1).values[:, :NEIGHBOURS]
                start += len(segment.keys)
            sample = cls(queries, best, 0.0)
            sample.recall = sample._recall(index.search(queries, NEIGHBOURS).distances)
            return sample
        except KnnSeqError:  # an index on a server that does not answer is built again all the same
            return nothing

    def report(self, store: DatastoreFolder) -> None:
        """Say how many are found now, and were before."""
        if len(self.queries):
            after = self._recall(open_segmented(store).search(self.queries, NEIGHBOURS).distances)
            log.info("recall@%d on %d keys: %.3f before, %.3f now.", NEIGHBOURS, len(self.queries), self.recall, after)

    def _recall(self, found: torch.Tensor) -> float:
        farthest = self.nearest[:, -1:]
        return float((found <= farthest + TIES * farthest.abs()).float().mean())
