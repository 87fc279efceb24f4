from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from knn_seq.corpus.base import CorpusReader
from knn_seq.corpus.corpus import Corpus
from knn_seq.corpus.pair import BadPair, SentencePair

NAMED = 2  # corpora of several that a description names


class SeveralReader(CorpusReader):
    """Corpora of any formats, one behind the other.

    Args:
        corpora: At least two.
    """

    def __init__(self, corpora: Sequence[Corpus]) -> None:
        super().__init__(())
        self.corpora = tuple(corpora)

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """The pairs of each but for the first `start` of all, whose places name the corpus."""
        for corpus in self.corpora:
            for unit in corpus.pairs():
                if start:
                    start -= 1
                else:
                    yield unit._replace(place=f"{corpus.name or corpus.describe()}, {unit.place}")

    def prefer_languages(self, source: str | None, target: str | None) -> None:
        """Tell each."""
        for corpus in self.corpora:
            corpus.reader.prefer_languages(source, target)

    def bind(self, model: Any) -> None:
        """Let each get to know the model."""
        for corpus in self.corpora:
            corpus.bind(model)

    def model_options(self) -> dict[str, Any]:
        """What they tell; the first one where several do."""
        told: dict[str, Any] = {}
        for corpus in self.corpora:
            told = {**corpus.model_options(), **told}
        return told

    def inferred(self) -> dict[str, Any]:
        """The identity of each."""
        return {"corpora": [corpus.identity() for corpus in self.corpora]}

    def why_unknown(self) -> str | None:
        """What the first one says that brings its own tokens."""
        return next((reason for corpus in self.corpora if (reason := corpus.why_unknown())), None)

    def describe(self) -> str:
        """The first ones, and how many others there are."""
        names = [corpus.describe() for corpus in self.corpora]
        others = len(names) - NAMED
        if others <= 1:
            return ", ".join(names[:-1]) + f" and {names[-1]}"
        return ", ".join(names[:NAMED]) + f" and {others:,} others"
