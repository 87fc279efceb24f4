from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index import SearchIndex
from knn_seq.models import Source
from knn_seq.sentences.base import SentenceSearch
from knn_seq.sentences.whitening import Whitening


class VectorSearch(SentenceSearch):
    """Sentences are similar if the angle between their vectors is small; a new encoder is a subclass with `encode`."""

    whitens: ClassVar[bool] = True  # False: the vectors were made to be compared as they are
    # Both of all sentences of a datastore, set when it is opened.
    whitening: Whitening
    index: SearchIndex  # by l2, of the whitened vectors

    @abstractmethod
    def encode(self, sources: Sequence[Source]) -> Tensor:
        """A vector for each sentence, (sources, dimension) float32; the batch is of a size that fits into memory."""

    def unit_vectors(self, sources: Sequence[Source]) -> Tensor:
        """The vectors of `encode`, scaled to length one."""
        return torch.nn.functional.normalize(self.encode(sources), dim=1)

    def nearest(self, sources: Sequence[Source], n: int) -> NDArray[np.int64]:
        """See `SentenceSearch.nearest`."""
        found = self.index.search(self.whitening.apply(self.unit_vectors(sources)), n)
        numbers: NDArray[np.int64] = found.ids.cpu().numpy()
        return numbers
