from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from knn_seq.neighbours import Neighbours
from knn_seq.registry import Registry
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder


class Retriever(ABC):
    """Finds the neighbours of the model's hidden states."""

    @classmethod
    @abstractmethod
    def open(cls, store: DatastoreFolder, settings: SearchSettings) -> Retriever:
        """The retriever for a datastore."""

    def prepare(self, sources: Sequence[Sequence[int]]) -> Any:
        """Whatever `retrieve` needs to know of a batch, made once before its first step.

        Args:
            sources: The source tokens of each sentence.
        """
        return None

    @abstractmethod
    def retrieve(self, queries: Tensor, sentences: Tensor, k: int, prepared: Any) -> Neighbours:
        """The neighbours of one step.

        Args:
            queries: Hidden states, (rows, dimension).
            sentences: For each row its sentence in the batch, (rows,).
            k: How many neighbours.
            prepared: What `prepare` gave for this batch.
        """


RETRIEVERS: Registry[Retriever] = Registry("retrieve")
