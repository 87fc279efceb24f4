"""Similar sentence pairs as examples in a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.index import INDEXES
from knn_seq.models import Model, Source
from knn_seq.models.base import Shots
from knn_seq.runtime.progress import Progress
from knn_seq.sentences.base import SentenceSearch, sentence_search
from knn_seq.sentences.lexical import LexicalSearch
from knn_seq.sentences.open import open_sentences
from knn_seq.sentences.vectors import VectorSearch
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory

LONGEST_PROMPT = 2048  # tokens, with examples, if the model can read more
ENCODED_AT_ONCE = 32  # sentences


class ShotSearch:
    """Finds the pairs of a corpus that are most similar to a sentence.

    Args:
        texts: Source and target text of each pair.
        search: Knows the sources in the same order.
    """

    def __init__(self, texts: Sequence[tuple[str, str]], search: SentenceSearch) -> None:
        self.texts, self.search = texts, search

    @classmethod
    def fit(cls, texts: Sequence[tuple[str, str]], model: Model, by: str) -> ShotSearch:
        """A search that learns the sources now.

        Args:
            texts: Source and target text of each pair.
            model: The model.
            by: The name of a sentence search.
        """
        search: SentenceSearch = sentence_search(by, model)
        sources = [source for source, _ in texts]
        with Progress(f"examples by {by}", len(sources), "sentence") as progress:
            if isinstance(search, LexicalSearch):
                search.fit([Source(text, ()) for text in sources])
                progress.update(len(sources))
            else:
                assert isinstance(search, VectorSearch)
                parts = []
                for start in range(0, len(sources), ENCODED_AT_ONCE):
                    some = sources[start : start + ENCODED_AT_ONCE]
                    parts.append(search.vectors(read(some, model)).float().cpu())
                    progress.update(len(some))
                vectors = torch.cat(parts)
                search.fit(vectors.numpy())
                compared = search.transform(vectors)
                search.index = INDEXES.get("torch")(compared.shape[1], "l2")
                search.index.add(compared.numpy(), torch.arange(len(compared)))
        return cls(texts, search)

    @classmethod
    def open(cls, store: DatastoreFolder | TranslationMemory, model: Model, by: str) -> ShotSearch:
        """For what is searched: by the sentence search that it was prepared with, if that is the one."""
        prepared = store.manifest.subset if isinstance(store, DatastoreFolder) else None
        if prepared is not None and prepared.sentence_search == by:
            return cls(store.texts, open_sentences(store, model))  # type: ignore[arg-type]
        texts = [store.texts[number] for number in range(len(store.texts))]
        return cls.fit(texts, model, by)

    def examples(self, sources: Sequence[Source], n: int, own: Sequence[int] | None = None) -> list[Shots]:
        """The n most similar pairs of each sentence, the most similar one last.

        Args:
            sources: The sentences.
            n: How many.
            own: The number of the pair that each sentence is of, which is no example for itself.
        """
        found = self.search.nearest(sources, n if own is None else n + 1)
        rows: list[NDArray[np.int64]] = [row[row >= 0] for row in found]
        if own is not None:
            rows = [row[row != number][:n] for row, number in zip(rows, own, strict=True)]
        return [[self.texts[number] for number in row[::-1].tolist()] for row in rows]


def read(texts: Sequence[str], model: Model) -> list[Source]:
    """Sentences with the tokens of their prompts without examples."""
    tokens = model.tokenizer.encode_sources(list(texts))
    return [Source(text, its) for text, its in zip(texts, tokens, strict=True)]


def longest_prompt(model: Model) -> int:
    """Tokens that a prompt with examples may have."""
    return min(LONGEST_PROMPT, model.max_length or LONGEST_PROMPT)
