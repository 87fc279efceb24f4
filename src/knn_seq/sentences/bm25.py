from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import DamagedFile
from knn_seq.models import Source
from knn_seq.sentences.base import SENTENCES
from knn_seq.sentences.lexical import LexicalSearch
from knn_seq.sentences.words import words


@SENTENCES.register("bm25")
class Bm25Search(LexicalSearch):
    """BM25 of the words that sentences share, in Lucene's variant, by the library bm25s."""

    _bm25: Any

    def fit(self, sources: Sequence[Source]) -> None:
        """See `LexicalSearch.fit`."""
        vocabulary: dict[str, int] = {}
        numbered = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(source.text)] for source in sources]
        self._bm25 = import_module("bm25s").BM25(method="lucene", backend="numpy")
        with np.errstate(invalid="ignore"):  # the mean length may be 0; a sentence without words stands for no sentence
            self._bm25.index((numbered or [[]], vocabulary), create_empty_token=False, show_progress=False)

    def save(self, folder: Path) -> None:
        """See `LexicalSearch.save`."""
        self._bm25.save(folder, show_progress=False)

    def load(self, folder: Path) -> None:
        """See `LexicalSearch.load`."""
        try:
            self._bm25 = import_module("bm25s").BM25.load(folder, mmap=True, show_progress=False)
        except (OSError, ValueError) as error:
            raise DamagedFile(
                f"There is no complete BM25 index in {folder}: build the sentence search again."
            ) from error

    def scores(self, text: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See `LexicalSearch.scores`."""
        known = [word for word in words(text) if word in self._bm25.vocab_dict]
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = self._bm25.get_scores(known)
        numbers = np.flatnonzero(scores)
        return numbers, scores[numbers]
