from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knn_seq.corpus.base import CorpusReader
from knn_seq.corpus.files import file_identity
from knn_seq.corpus.pair import BadPair, SentencePair


class Corpus:
    """Sentence pairs to build a datastore from, or to translate or test with: files and the reader of their format.

    Args:
        format: The format's name.
        reader: The reader, which has the files.
        name: What pairs that do not know better say that they come from.
        keeps: What has to live as long as the corpus.
    """

    def __init__(self, format: str, reader: CorpusReader, name: str | None = None, keeps: Any = None) -> None:
        self.format, self.reader, self.name, self._keeps = format, reader, name, keeps

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Stream the sentence pairs, good and bad, but for the first `start`."""
        if self.name is None:
            return self.reader.pairs(start)
        return (
            unit._replace(corpus=self.name) if isinstance(unit, SentencePair) and unit.corpus is None else unit
            for unit in self.reader.pairs(start)
        )

    def __iter__(self) -> Iterator[SentencePair | BadPair]:
        return self.pairs()

    def prefer_languages(self, model: Any) -> None:
        """Let the reader get to know the languages of a `Model`, where a file leaves open which ones to read."""
        self.reader.prefer_languages(model.source_language, model.target_language)

    def bind(self, model: Any) -> None:
        """Let the reader get to know the `Model` that the pairs are for; raises if they don't fit it."""
        self.prefer_languages(model)
        self.reader.bind(model)

    def model_options(self) -> dict[str, Any]:
        """Fields of `ModelSettings` that the corpus tells, where the user gives none."""
        return self.reader.model_options()

    def why_unknown(self) -> str | None:
        """Why many tokens of the corpus may be unknown and what to do, if it brings its own."""
        return self.reader.why_unknown()

    def identity(self) -> dict[str, Any]:
        """What tells whether this is the same corpus as another time."""
        return {
            "format": self.format,
            "columns": list(self.reader.columns),
            "options": dict(self.reader.option_values),
            "inferred": self.reader.inferred(),
            "files": [file_identity(path) for path in self.reader.content_files()],
        }

    def describe(self) -> str:
        """The corpus in a few words."""
        return self.reader.describe()
