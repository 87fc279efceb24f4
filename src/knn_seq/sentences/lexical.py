from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import KnnSeqError
from knn_seq.models import Source
from knn_seq.sentences.base import SentenceSearch


class WordScores(Protocol):
    """Sentences that were added to those which a search has learned, scored by the statistics of these."""

    def scores(self, text: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See `LexicalSearch.scores`; numbers begin at 0."""


class LexicalSearch(SentenceSearch):
    """Sentences are similar if they share words, rare ones above all."""

    # What is searched beside the sentences that were learned: others, and where their numbers begin.
    added: Sequence[tuple[int, WordScores]] = ()
    deleted: NDArray[np.bool_] | None = None  # whether each sentence is deleted, (sentences,); None: none is

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

    def score_others(self, texts: Sequence[str]) -> WordScores:
        """Score other sentences as if they had been among those that were learned, but for the statistics of words."""
        raise KnnSeqError(
            f"{type(self).__name__} cannot search what was added since the datastore was prepared: compact it "
            "(`knn-seq compact`)."
        )

    def all_scores(self, text: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Those of all sentences that are not deleted, as `scores` gives them."""
        numbers, scores = self.scores(text)
        if self.added:
            found = [(numbers, scores)]
            for start, others in self.added:
                own, of_own = others.scores(text)
                found.append((own + start, of_own))
            numbers, scores = (np.concatenate(column) for column in zip(*found, strict=True))
        if self.deleted is not None:
            live = ~self.deleted[numbers]
            numbers, scores = numbers[live], scores[live]
        return numbers, scores

    def nearest(self, sources: Sequence[Source], n: int) -> NDArray[np.int64]:
        """See `SentenceSearch.nearest`; of sentences with the same score the first comes first."""
        rows = np.full((len(sources), n), -1, np.int64)
        for row, source in zip(rows, sources, strict=True):
            best = best_scores(*self.all_scores(source.text), n)
            row[: len(best)] = best
        return rows


def best_scores(numbers: NDArray[Any], scores: NDArray[np.float32], n: int) -> NDArray[Any]:
    """The numbers of the n largest scores, best first; of equal ones the first comes first."""
    if len(scores) > n:
        # All that tie with the n-th stay, so that the order decides between them and not the partition.
        candidates = scores >= np.partition(scores, len(scores) - n)[len(scores) - n]
        numbers, scores = numbers[candidates], scores[candidates]
    return numbers[np.argsort(-scores, kind="stable")[:n]]
