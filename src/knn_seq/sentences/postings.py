"""BM25 of a few sentences in memory, with statistics of any others."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.sentences.words import words

SATURATION, LENGTH_SHARE = 1.5, 0.75  # k1 and b of BM25, as bm25s has them


class Postings:
    """For each word the sentences that have it, and what it adds to their scores.

    Args:
        sentences: By word their numbers, ascending.
        scores: By word what it adds to each of them.
    """

    def __init__(self, sentences: dict[str, NDArray[np.int64]], scores: dict[str, NDArray[np.float32]]) -> None:
        self._sentences, self._scores = sentences, scores

    @classmethod
    def of(cls, texts: Sequence[str], rarity: Callable[[str], float], mean_length: float) -> Postings:
        """Those of some texts.

        Args:
            texts: The sentences.
            rarity: The inverse document frequency of a word.
            mean_length: Of a sentence, in words.
        """
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        scores: defaultdict[str, list[float]] = defaultdict(list)
        for number, text in enumerate(texts):
            found = words(text)
            relative = len(found) / mean_length if mean_length else 1.0
            penalty = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * relative)
            for word, times in Counter(found).items():
                numbers[word].append(number)
                scores[word].append(rarity(word) * times / (times + penalty))
        return cls(
            {word: np.array(each, np.int64) for word, each in numbers.items()},
            {word: np.array(each, np.float32) for word, each in scores.items()},
        )

    def scores(self, text: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The numbers of the sentences that share a word with the text, ascending, and their scores."""
        known = [word for word in words(text) if word in self._sentences]
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        numbers, places = np.unique(np.concatenate([self._sentences[word] for word in known]), return_inverse=True)
        sums = np.bincount(places, np.concatenate([self._scores[word] for word in known]), len(numbers))
        return numbers, sums.astype(np.float32)


def inverse_document_frequency(having: int, sentences: int) -> float:
    """Lucene's: of a word that so many of the sentences have."""
    return math.log(1 + (sentences - having + 0.5) / (having + 0.5))
