from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from knn_seq.models import Model, Source
from knn_seq.neighbours import Neighbours
from knn_seq.registry import Registry
from knn_seq.settings import SearchSettings


class Retriever(ABC):
    """Finds the neighbours of the model's hidden states."""

    @classmethod
    @abstractmethod
    def open(cls, store: Any, settings: SearchSettings, model: Model) -> Retriever:
        """The retriever for what is searched, nearly always a `DatastoreFolder`, and the model that asks."""

    def prepare(self, sources: Sequence[Source]) -> Any:
        """Whatever `retrieve` needs to know of a batch, made once before its first step."""
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
