"""The vectors of the library sentence-transformers, the optional extra `sentence-transformers` of this package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from knn_seq.errors import InvalidSetting, MissingLibrary
from knn_seq.models import Model, Source
from knn_seq.sentences.base import SENTENCES
from knn_seq.sentences.vectors import VectorSearch


@SENTENCES.register("sentence_transformers")
class SentenceTransformersSearch(VectorSearch):
    """What a sentence-transformers model makes of the text.

    Args:
        option: A hub name or a folder.
        model: The translation model, on whose device the encoder runs.
    """

    whitens = False

    def __init__(self, option: str, model: Model) -> None:
        super().__init__(option, model)
        if not self.option:
            raise InvalidSetting(
                "The sentence search 'sentence-transformers' needs an encoder: write sentence-transformers:NAME."
            )
        if find_spec("sentence_transformers") is None:
            raise MissingLibrary(
                "The library sentence-transformers is missing: pip install knn-seq[sentence-transformers]."
            )

    def encode(self, sources: Sequence[Source]) -> Tensor:
        """See `VectorSearch.encode`."""
        texts = [source.text for source in sources]
        vectors: Tensor = self._encoder.encode(
            texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return vectors.float().clone()  # the library's own tensors refuse to be changed

    @cached_property
    def _encoder(self) -> Any:
        device = str(getattr(self.model, "device", "cpu"))
        try:
            return import_module("sentence_transformers").SentenceTransformer(self.option, device=device)
        except Exception as error:  # of the hub, of files, of formats: they have no class in common
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidSetting(
                f"The encoder '{self.option}' of the sentence search cannot be loaded: {reason}"
            ) from error
