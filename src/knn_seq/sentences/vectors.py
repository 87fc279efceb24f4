from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index import SearchIndex
from knn_seq.models import Source
from knn_seq.sentences.base import SentenceSearch


class VectorSearch(SentenceSearch):
    """Sentences are like each other if their vectors point the same way; a new encoder is a subclass with `encode`."""

    index: SearchIndex  # by l2, of the vectors of all sentences; set by whoever builds or opens a datastore

    @abstractmethod
    def encode(self, sources: Sequence[Source]) -> Tensor:
        """A vector for each sentence, (sources, dimension) float32; the batch is of a size that fits into memory."""

    def vectors(self, sources: Sequence[Source]) -> Tensor:
        """The same of length one, so that l2, which every index is best at, orders them by their angles."""
        return torch.nn.functional.normalize(self.encode(sources), dim=1)

    def nearest(self, sources: Sequence[Source], n: int) -> NDArray[np.int64]:
        """See `SentenceSearch.nearest`."""
        found: NDArray[np.int64] = self.index.search(self.vectors(sources), n)[1].cpu().numpy()
        return found
