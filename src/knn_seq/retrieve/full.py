from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index import Neighbours, SearchIndex
from knn_seq.index.segmented import SegmentedIndex, open_segmented
from knn_seq.models import Model
from knn_seq.retrieve.base import RETRIEVERS, Retriever, require_datastore
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder


@RETRIEVERS.register("full")
class FullRetriever(Retriever):
    """Searches the complete datastore.

    Args:
        index: The keys' index; its ids are entries.  A `SegmentedIndex` searches what was added later, too.
        values: The target token of each entry, (entries,) int32.
        counts: How many entries each stands for, (entries,); None: itself alone.
    """

    def __init__(
        self,
        index: SearchIndex | SegmentedIndex,
        values: NDArray[np.int32],
        counts: NDArray[np.int32] | None = None,
    ) -> None:
        self.index, self.values, self.counts = index, values, counts

    @classmethod
    def open(cls, store: DatastoreFolder, model: Model, settings: SearchSettings) -> FullRetriever:
        """With the index that the settings name, or the datastore's default one."""
        require_datastore(store, "full")
        return store.open_named(lambda: cls._of(store, settings))

    @classmethod
    def _of(
        cls, store: DatastoreFolder, settings: SearchSettings, before: SegmentedIndex | None = None
    ) -> FullRetriever:
        return cls(open_segmented(store, settings.index, before), store.values.items, store.counts)

    def renewed(self, store: DatastoreFolder, model: Model, settings: SearchSettings) -> FullRetriever:
        """See `Retriever.renewed`."""
        before = self.index if isinstance(self.index, SegmentedIndex) else None
        return store.open_named(lambda: self._of(store, settings, before))

    def retrieve(
        self, queries: Tensor, sentences: Tensor, settings: SearchSettings, prepared: Any = None
    ) -> Neighbours:
        """The k nearest of all entries."""
        distances, ids = self.index.search(queries, settings.k, settings.index_options)
        entries = ids.cpu().numpy()
        complete = not len(entries) or int(entries.min()) >= 0
        values = torch.from_numpy(self._values_of(entries, complete)).to(ids.device)
        return Neighbours(distances, values, ids, complete).with_counts(self.counts)

    def _values_of(self, entries: NDArray[np.int64], complete: bool) -> NDArray[np.int64]:
        if complete:
            return self.values[entries].astype(np.int64)
        values = self.values[np.maximum(entries, 0)] if len(self.values) else np.zeros_like(entries)
        return np.where(entries >= 0, values, 0).astype(np.int64)
