from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import DamagedFile, MissingLibrary
from knn_seq.models import Model, Source
from knn_seq.sentences.base import SENTENCES
from knn_seq.sentences.lexical import LexicalSearch, WordScores
from knn_seq.sentences.words import words

NO_WORDS = {"": 0}  # the vocabulary of sentences without words: no text has this one


@SENTENCES.register("tfidf")
class TfidfSearch(LexicalSearch):
    """The cosine of TF-IDF vectors, by scikit-learn, the optional extra `tfidf` of this package."""

    _vectorizer: Any
    _postings: Any  # for each word the sentences that have it, sparse (words, sentences) float32

    def __init__(self, option: str, model: Model) -> None:
        super().__init__(option, model)
        if find_spec("sklearn") is None:
            raise MissingLibrary("The library scikit-learn is missing: pip install knn-seq[tfidf].")

    def fit(self, sources: Sequence[Source]) -> None:
        """See `LexicalSearch.fit`."""
        self._vectorizer = _vectorizer()
        try:
            vectors = self._vectorizer.fit_transform(source.text for source in sources)
        except ValueError as error:
            if "empty vocabulary" not in str(error):
                raise
            self._vectorizer = _vectorizer(NO_WORDS, np.ones(1))
            vectors = _sparse().csr_array((len(sources), 1), dtype=np.float32)
        self._postings = vectors.T.tocsr()

    def save(self, folder: Path) -> None:
        """See `LexicalSearch.save`."""
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = self._vectorizer.vocabulary_
        about = {"sentences": self._postings.shape[1], "words": sorted(vocabulary, key=vocabulary.__getitem__)}
        (folder / "words.json").write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")
        np.save(folder / "idf.npy", self._vectorizer.idf_, allow_pickle=False)
        for name in ("data", "indices", "indptr"):
            np.save(folder / f"{name}.npy", getattr(self._postings, name), allow_pickle=False)

    def load(self, folder: Path) -> None:
        """See `LexicalSearch.load`."""
        try:
            about = json.loads((folder / "words.json").read_text(encoding="utf-8"))
            vocabulary = {word: number for number, word in enumerate(about["words"])}
            self._vectorizer = _vectorizer(vocabulary, np.load(folder / "idf.npy"))
            parts = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
            self._postings = _sparse().csr_array(tuple(parts), shape=(len(vocabulary), about["sentences"]))
        except (OSError, ValueError, KeyError) as error:
            raise DamagedFile(
                f"There is no complete TF-IDF index in {folder}: build the sentence search again."
            ) from error

    def score_others(self, texts: Sequence[str]) -> WordScores:
        """See `LexicalSearch.score_others`; words that none of the learned sentences has do not count."""
        others = TfidfSearch(self.option, self.model)
        others._vectorizer = self._vectorizer
        others._postings = self._vectorizer.transform(list(texts)).T.tocsr()
        return others

    def scores(self, text: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See `LexicalSearch.scores`."""
        cosines = self._vectorizer.transform([text]) @ self._postings
        cosines.sort_indices()
        return cosines.indices, cosines.data


def _vectorizer(vocabulary: Mapping[str, int] | None = None, idf: NDArray[Any] | None = None) -> Any:
    text = import_module("sklearn.feature_extraction.text")
    vectorizer = text.TfidfVectorizer(analyzer=words, vocabulary=vocabulary, dtype=np.float32)
    if idf is not None:
        vectorizer.idf_ = idf
    return vectorizer


def _sparse() -> Any:
    return import_module("scipy.sparse")
