from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index import Neighbours
from knn_seq.models import Model, Source
from knn_seq.registry import Option
from knn_seq.retrieve.base import RETRIEVERS, Retriever, require_datastore
from knn_seq.sentences import SentenceSearch
from knn_seq.sentences.open import open_sentences
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.subset import SubsetIndex, Subsets

SUBSET_SIZE = 512


@RETRIEVERS.register("subset")
class SubsetRetriever(Retriever):
    """Subset kNN-MT: searches only among the tokens of the sentences whose sources are like the one to translate.

    Args:
        sentences: Finds these sentences.
        index: Their keys.
        device: Where the queries are.
        counts: How many entries each stands for, (entries,); None: itself alone.
    """

    options = {"refine_factor": Option(None, "times k candidates that are ranked by their keys", int, 1)}

    def __init__(
        self,
        sentences: SentenceSearch,
        index: SubsetIndex,
        device: torch.device | str = "cpu",
        counts: NDArray[np.int32] | None = None,
    ) -> None:
        self.sentences, self.index, self.device, self.counts = sentences, index, torch.device(device), counts
        self.on_accelerator = self.device.type != "cpu"

    @classmethod
    def open(cls, store: DatastoreFolder, model: Model, settings: SearchSettings) -> SubsetRetriever:
        """For a datastore that was prepared for subset search."""
        require_datastore(store, "subset")
        device = getattr(model, "device", "cpu")
        return cls(open_sentences(store, model), SubsetIndex.open(store), device, store.counts)

    def renewed(self, store: DatastoreFolder, model: Model, settings: SearchSettings) -> SubsetRetriever:
        """See `Retriever.renewed`."""
        sentences = open_sentences(store, model, self.sentences)
        return type(self)(sentences, SubsetIndex.open(store), self.device, store.counts)

    def prepare(self, sources: Sequence[Source], settings: SearchSettings) -> Subsets:
        """The subset of each sentence."""
        wanted = min(settings.subset_size or SUBSET_SIZE, len(self.index.values))
        factor = self.option(settings, "refine_factor")
        return self.index.subsets(self.sentences.nearest(sources, wanted), self.device, factor)

    def retrieve(self, queries: Tensor, sentences: Tensor, settings: SearchSettings, prepared: Subsets) -> Neighbours:
        """The k nearest entries of each row's own subset."""
        return prepared.search(queries, sentences, settings.k).with_counts(self.counts)
