from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from knn_seq.models import Source
from knn_seq.sentences.base import SentenceSearch


class LexicalSearch(SentenceSearch):
    """Sentences are like each other if they share words, rare ones above all."""

    @abstractmethod
    def fit(self, sources: Sequence[Source]) -> None:
        """Learn the sentences to search in, in the order of their numbers."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was learned into an empty folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what `save` wrote, memory-mapped where that can be had."""
