from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from knn_seq.errors import KnnSeqError
from knn_seq.index import Neighbours
from knn_seq.models import Model, Source
from knn_seq.registry import Option, Registry, check_options
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder


class Retriever(ABC):
    """Finds the neighbours of the model's hidden states.  It is opened once; each call brings its settings."""

    options: ClassVar[Mapping[str, Option]] = {}  # those of its own; given in the settings' `retriever_options`
    on_accelerator = False  # it searches on a GPU: there equal queries cost less than finding out that they are equal

    @classmethod
    @abstractmethod
    def open(cls, store: Any, model: Model, settings: SearchSettings) -> Retriever:
        """The retriever for what is searched and the model that asks.

        Args:
            store: A `DatastoreFolder` or a `TranslationMemory`.
            model: The model.
            settings: Whose `index` says which index is opened.
        """

    def renewed(self, store: Any, model: Model, settings: SearchSettings) -> Retriever:
        """The retriever for what is searched after it has changed; this one stays as it is.

        Args:
            store: A later generation of the datastore: what did not change need not be opened again.
            model: The model.
            settings: Those that it was opened with.
        """
        return self.open(store, model, settings)

    def prepare(self, sources: Sequence[Source], settings: SearchSettings) -> Any:
        """Whatever `retrieve` needs to know of a batch, made once before its first step.

        Args:
            sources: The sentences to translate.
            settings: Whose `subset_size` says how many sentences each of them searches, if it searches only some.
        """
        return None

    @abstractmethod
    def retrieve(self, queries: Tensor, sentences: Tensor, settings: SearchSettings, prepared: Any) -> Neighbours:
        """The neighbours of one step.

        Args:
            queries: Hidden states, (rows, dimension).
            sentences: For each row its sentence in the batch, (rows,), on the CPU.
            settings: How many neighbours, and how is searched.
            prepared: What `prepare` gave for this batch.
        """

    @classmethod
    def option(cls, settings: SearchSettings, name: str) -> Any:
        """The value of one of its own options."""
        checked = check_options(f"The retriever '{settings.retriever}'", cls.options, settings.retriever_options)
        return checked.get(name, cls.options[name].default)


def require_datastore(store: Any, retriever: str) -> None:
    """Raise a `KnnSeqError` if there is none to search."""
    if not isinstance(store, DatastoreFolder):
        raise KnnSeqError(f"The retriever '{retriever}' needs a datastore: build one, or leave it out.")


RETRIEVERS: Registry[Retriever] = Registry(Retriever, "retrieve", "retriever")  # type: ignore[type-abstract]
