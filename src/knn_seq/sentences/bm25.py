from __future__ import annotations

import json
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
from knn_seq.sentences.postings import Postings, inverse_document_frequency
from knn_seq.sentences.words import words

LENGTHS = "lengths.json"


@SENTENCES.register("bm25")
class Bm25Search(LexicalSearch):
    """BM25 of the words that sentences share, in Lucene's variant, by the library bm25s."""

    _bm25: Any
    _mean_length: float  # of the sentences, in words

    def fit(self, sources: Sequence[Source]) -> None:
        """See `LexicalSearch.fit`."""
        vocabulary: dict[str, int] = {}
        numbered = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(source.text)] for source in sources]
        self._mean_length = sum(map(len, numbered)) / max(len(numbered), 1)
        self._bm25 = import_module("bm25s").BM25(method="lucene", backend="numpy")
        with np.errstate(invalid="ignore"):  # the mean length may be 0; a sentence without words stands for no sentence
            self._bm25.index((numbered or [[]], vocabulary), create_empty_token=False, show_progress=False)

    def save(self, folder: Path) -> None:
        """See `LexicalSearch.save`."""
        self._bm25.save(folder, show_progress=False)
        (folder / LENGTHS).write_text(json.dumps({"mean": self._mean_length}), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """See `LexicalSearch.load`."""
        try:
            self._bm25 = import_module("bm25s").BM25.load(folder, mmap=True, show_progress=False)
            self._mean_length = float(json.loads((folder / LENGTHS).read_text(encoding="utf-8"))["mean"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedFile(
                f"There is no complete BM25 index in {folder}: build the sentence search again."
            ) from error

    def score_others(self, texts: Sequence[str]) -> Postings:
        """See `LexicalSearch.score_others`: how rare a word is, and the mean length, are those that were learned."""
        return Postings.of(texts, self._rarity, self._mean_length)

    def _rarity(self, word: str) -> float:
        """Lucene's inverse document frequency."""
        number, starts = self._bm25.vocab_dict.get(word), self._bm25.scores["indptr"]
        having = 0 if number is None else int(starts[number + 1] - starts[number])
        return inverse_document_frequency(having, self._bm25.scores["num_docs"])

    def scores(self, text: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See `LexicalSearch.scores`."""
        known = [word for word in words(text) if word in self._bm25.vocab_dict]
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = self._bm25.get_scores(known)
        numbers = np.flatnonzero(scores)
        return numbers, scores[numbers]
