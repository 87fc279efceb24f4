from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from knn_seq.models import Source
from knn_seq.sentences.base import SENTENCES
from knn_seq.sentences.vectors import VectorSearch


@SENTENCES.register("encoder")
class EncoderSearch(VectorSearch):
    """The mean of the translation model's own encoder states."""

    def encode(self, sources: Sequence[Source]) -> Tensor:
        """See `VectorSearch.encode`."""
        return self.model.sentence_vectors([source.tokens for source in sources])
