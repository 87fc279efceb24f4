from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.models import Source
from knn_seq.sentences.base import SentenceSearch


class LexicalSearch(SentenceSearch):
    """Sentences are similar if they share words, rare ones above all."""

    @abstractmethod
    def fit(self, sources: Sequence[Source]) -> None:
        """Learn the sentences to search in, in the order of their numbers."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was learned into an empty folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what `save` wrote, memory-mapped where possible."""

    @abstractmethod
    def scores(self, text: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The numbers of the sentences that share a word with the text, ascending, and their scores, above 0."""

    def nearest(self, sources: Sequence[Source], n: int) -> NDArray[np.int64]:
        """See `SentenceSearch.nearest`; of sentences with the same score the first comes first."""
        rows = np.full((len(sources), n), -1, np.int64)
        for row, source in zip(rows, sources, strict=True):
            best = _best(*self.scores(source.text), n)
            row[: len(best)] = best
        return rows


def _best(numbers: NDArray[Any], scores: NDArray[np.float32], n: int) -> NDArray[Any]:
    if len(scores) > n:
        # All that tie with the n-th stay, so that the order decides between them and not the partition.
        candidates = scores >= np.partition(scores, len(scores) - n)[len(scores) - n]
        numbers, scores = numbers[candidates], scores[candidates]
    return numbers[np.argsort(-scores, kind="stable")[:n]]
