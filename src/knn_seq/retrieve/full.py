from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index import Neighbours, SearchIndex, open_index
from knn_seq.models import Model
from knn_seq.retrieve.base import RETRIEVERS, Retriever, require_datastore
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder


@RETRIEVERS.register("full")
class FullRetriever(Retriever):
    """Searches the complete datastore.

    Args:
        index: The keys' index; its ids are entries.
        values: The target token of each entry, (entries,) int32.
        counts: How many entries each stands for, (entries,); None: itself alone.
    """

    def __init__(self, index: SearchIndex, values: NDArray[np.int32], counts: NDArray[np.int32] | None = None) -> None:
        self.index, self.values, self.counts = index, values, counts

    @classmethod
    def open(cls, store: DatastoreFolder, model: Model, settings: SearchSettings) -> FullRetriever:
        """With the index that the settings name, or the datastore's default one."""
        require_datastore(store, "full")
        return cls(open_index(store, settings.index), store.values.items, store.counts)

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
