from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from knn_seq.errors import UserError
from knn_seq.index.subset import SubsetIndex, Subsets
from knn_seq.models import Model, Source
from knn_seq.neighbours import Neighbours
from knn_seq.retrieve.base import RETRIEVERS, Retriever, require_datastore
from knn_seq.sentences import SentenceSearch
from knn_seq.sentences.open import open_sentences
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder

SUBSET_SIZE = 512


@RETRIEVERS.register("subset")
class SubsetRetriever(Retriever):
    """Subset kNN-MT: searches only among the tokens of the sentences whose sources are like the one to translate.

    Args:
        sentences: Finds these sentences.
        index: Their keys.
        device: Where the queries are.
    """

    def __init__(
        self,
        sentences: SentenceSearch,
        index: SubsetIndex,
        device: torch.device | str = "cpu",
    ) -> None:
        self.sentences, self.index, self.device = sentences, index, torch.device(device)
        self.on_accelerator = self.device.type != "cpu"

    @classmethod
    def open(cls, store: DatastoreFolder, settings: SearchSettings, model: Model) -> SubsetRetriever:
        """For a datastore that was built with `--sentences`."""
        require_datastore(store, "subset")
        if not store.manifest.subset:
            raise UserError(
                f"{store.path} is not prepared for subset search: run `knn-seq index {store.path} --sentences encoder`."
            )
        return cls(
            open_sentences(store, model),
            SubsetIndex.open(store, settings),
            getattr(model, "device", "cpu"),
        )

    def prepare(self, sources: Sequence[Source], size: int | None = None) -> Subsets:
        """The subset of each sentence."""
        wanted = min(size or SUBSET_SIZE, len(self.index.values))
        return self.index.subsets(self.sentences.nearest(sources, wanted), self.device)

    def retrieve(self, queries: Tensor, sentences: Tensor, k: int, prepared: Subsets) -> Neighbours:
        """The k nearest entries of each row's own subset."""
        return prepared.search(queries, sentences, k)
