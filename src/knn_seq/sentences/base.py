from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.models import Model, Source
from knn_seq.registry import Registry


class SentenceSearch(ABC):
    """Finds the sentences of a corpus whose sources are similar to a given one.

    There are two kinds, by vectors (`VectorSearch`) and by words (`LexicalSearch`).

    Args:
        option: The part of its name behind the colon, such as the model in `transformers:NAME`; "" if there is none.
        model: The translation model.
    """

    def __init__(self, option: str, model: Model) -> None:
        self.option, self.model = option, model

    @abstractmethod
    def nearest(self, sources: Sequence[Source], n: int) -> NDArray[np.int64]:
        """The numbers of the n most similar sentences, (sources, n), best first; -1 where there are fewer."""


SENTENCES: Registry[SentenceSearch] = Registry(SentenceSearch, "sentences", "sentence search")  # type: ignore[type-abstract]


def absolute_spec(spec: str) -> str:
    """The name of a sentence search with absolute paths, so that it means the same from any folder."""
    name, _, path = spec.partition(":")
    behind = ""  # how its vectors are pooled and compared
    while path and not os.path.exists(path):
        path, colon, word = path.rpartition(":")
        behind = f"{colon}{word}{behind}"
    return f"{name}:{os.path.abspath(path)}{behind}" if path else spec


def sentence_search(spec: str, model: Model | None) -> Any:
    """The sentence search that a user names: NAME or NAME:OPTION; without a model it encodes nothing."""
    name, _, option = spec.partition(":")
    return SENTENCES.get(name.replace("-", "_"))(option, model)  # type: ignore[arg-type]
