from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index import SearchIndex
from knn_seq.index.segmented import SegmentedIndex
from knn_seq.models import Model, Source
from knn_seq.sentences.base import SentenceSearch
from knn_seq.sentences.whitening import Whitening

PLAIN = "l2"  # behind a name


class VectorSearch(SentenceSearch):
    """Sentences are similar if the angle between their vectors is small; a new encoder is a subclass with `encode`.

    With `:l2` behind its name, they are if the distance between the vectors as they are is small: the published Subset
    kNN-MT, for comparisons.
    """

    whitens: ClassVar[bool] = True  # False: the vectors were made to be compared as they are
    # Both of all sentences of a datastore, set when it is opened.
    whitening: Whitening
    index: SearchIndex | SegmentedIndex  # by l2, of the transformed vectors

    def __init__(self, option: str, model: Model) -> None:
        name, _, last = option.rpartition(":")
        self.plain = last == PLAIN
        super().__init__(name if self.plain else option, model)

    @abstractmethod
    def encode(self, sources: Sequence[Source]) -> Tensor:
        """A vector for each sentence, (sources, dimension) float32; the batch is of a size that fits into memory."""

    def vectors(self, sources: Sequence[Source]) -> Tensor:
        """What is stored of each sentence before anything is known of all: the vectors of `encode`, of length one."""
        vectors = self.encode(sources)
        return vectors if self.plain else torch.nn.functional.normalize(vectors, dim=1)

    def fit(self, vectors: NDArray[Any]) -> None:
        """Learn from the vectors of all sentences, (n, dimension), how they are compared."""
        whitens = self.whitens and not self.plain
        self.whitening = Whitening.fit(vectors) if whitens else Whitening.none(vectors.shape[1])

    def transform(self, vectors: Tensor) -> Tensor:
        """Vectors as they are compared."""
        return vectors if self.plain else self.whitening.apply(vectors)

    def nearest(self, sources: Sequence[Source], n: int) -> NDArray[np.int64]:
        """See `SentenceSearch.nearest`."""
        found = self.index.search(self.transform(self.vectors(sources)), n)
        numbers: NDArray[np.int64] = found.ids.cpu().numpy()
        return numbers
