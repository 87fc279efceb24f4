from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from knn_seq.errors import UserError
from knn_seq.models import Model, Source
from knn_seq.neighbours import Neighbours
from knn_seq.registry import Registry
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder


class Retriever(ABC):
    """Finds the neighbours of the model's hidden states."""

    on_accelerator = False  # it searches on a GPU: there equal queries cost less than finding out that they are equal

    @classmethod
    @abstractmethod
    def open(cls, store: Any, settings: SearchSettings, model: Model) -> Retriever:
        """The retriever for what is searched, nearly always a `DatastoreFolder`, and the model that asks."""

    def prepare(self, sources: Sequence[Source], size: int | None = None) -> Any:
        """Whatever `retrieve` needs to know of a batch, made once before its first step.

        Args:
            sources: The sentences to translate.
            size: How many sentences each of them searches, for a retriever that searches only some; None: its default.
        """
        return None

    @abstractmethod
    def retrieve(self, queries: Tensor, sentences: Tensor, k: int, prepared: Any) -> Neighbours:
        """The neighbours of one step.

        Args:
            queries: Hidden states, (rows, dimension).
            sentences: For each row its sentence in the batch, (rows,), on the CPU.
            k: How many neighbours.
            prepared: What `prepare` gave for this batch.
        """


def require_datastore(store: Any, retriever: str) -> None:
    """Raise a `UserError` if there is none to search."""
    if not isinstance(store, DatastoreFolder):
        raise UserError(f"The retriever '{retriever}' needs a datastore: build one, or leave it out.")


RETRIEVERS: Registry[Retriever] = Registry("retrieve")
