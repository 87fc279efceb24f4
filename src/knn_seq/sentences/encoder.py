from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.models import Model, Source
from knn_seq.sentences.base import SENTENCES
from knn_seq.sentences.vectors import PLAIN, VectorSearch


@SENTENCES.register("encoder")
class EncoderSearch(VectorSearch):
    """The mean of the translation model's own encoder states.

    Args:
        option: Nothing, or "l2".
        model: The translation model.
    """

    def __init__(self, option: str, model: Model) -> None:
        super().__init__(option, model)
        if self.option:
            raise InvalidSetting(
                f"The sentence search is called 'encoder' or 'encoder:{PLAIN}', not 'encoder:{option}'."
            )

    def encode(self, sources: Sequence[Source]) -> Tensor:
        """See `VectorSearch.encode`."""
        return self.model.sentence_vectors([source.tokens for source in sources])
