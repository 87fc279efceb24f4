from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.files import file_identity
from knn_seq.corpus.in_memory import InMemoryReader
from knn_seq.corpus.pair import BadPair, SentencePair
from knn_seq.errors import InvalidSetting, NotFound

# Formats that are met where parallel text is, and that a name tells: they are refused by their name.
UNKNOWN_SUFFIXES = (".tmx", ".xliff", ".xlf", ".sdlxliff", ".mqxliff", ".po", ".docx", ".xlsx", ".csv", ".parquet")


class Corpus:
    """Sentence pairs to build a datastore from, or to translate or test with: files and the reader of their format.

    Args:
        format: The format's name.
        reader: The reader, which has the files.
    """

    def __init__(self, format: str, reader: CorpusReader) -> None:
        self.format, self.reader = format, reader

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Stream the sentence pairs, good and bad, but for the first `start`."""
        return self.reader.pairs(start)

    def __iter__(self) -> Iterator[SentencePair | BadPair]:
        return self.pairs()

    def bind(self, model: Any) -> None:
        """Let the reader get to know the model that the pairs are for; raises if they don't fit it."""
        self.reader.bind(model)

    def model_options(self) -> dict[str, Any]:
        """Fields of `ModelSettings` that the corpus tells, where the user gives none."""
        return self.reader.model_options()

    def why_unknown(self) -> str | None:
        """Why many tokens of the corpus may be unknown and what to do, if it brings its own."""
        return self.reader.why_unknown()

    def longest_side(self) -> int | None:
        """Tokens that a side may have, if the corpus brings its own."""
        return self.reader.longest_side()

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


CorpusLike: TypeAlias = Corpus | str | Path | Sequence[tuple[str, str]] | Sequence[SentencePair]


def open_corpus(
    corpus: CorpusLike | None = None,
    source: str | Path | None = None,
    target: str | Path | None = None,
    columns: Sequence[int | str] | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Corpus:
    """A corpus from its files (one with both sides, or one for each side), or from pairs of texts in memory.

    Args:
        corpus: A file with both sides, a folder that is a corpus, pairs of texts, or an opened corpus.
        source: Instead of `corpus`: a text file with the sources ...
        target: ... and one with the targets.
        columns: Where source and target are in `corpus`: column numbers of a TSV file, keys of JSON lines.
        format: The format's name; None: told by the name of the file.
        options: Options that the reader of the format declares.
    """
    if corpus is not None and not isinstance(corpus, str | os.PathLike):
        if options or any(given is not None for given in (source, target, columns, format)):
            raise InvalidSetting("Columns, format and options are for files: leave them out, or give a file's name.")
        return corpus if isinstance(corpus, Corpus) else Corpus("pairs", InMemoryReader(corpus))
    if corpus is not None and source is None and target is None:
        paths = [Path(corpus)]
    elif corpus is None and source is not None and target is not None:
        paths = [Path(source), Path(target)]
    else:
        raise InvalidSetting(
            "Give the corpus either as one file with both sides, or as a source file and a target file."
        )
    format = format or _format_of(paths)
    kind = CORPUS_FORMATS.get(format)
    if kind.files != len(paths):
        wanted = "one file with both sides" if kind.files == 1 else "a source file and a target file"
        raise InvalidSetting(f"The corpus format '{format}' takes {wanted}.")
    return Corpus(format, kind(paths, columns, options))


def _format_of(paths: Sequence[Path]) -> str:
    for path in paths:
        if not path.exists():
            raise NotFound(f"There is no file {path}.")
    kinds = {name: CORPUS_FORMATS.get(name) for name in CORPUS_FORMATS.names()}
    fitting = {name: kind for name, kind in kinds.items() if kind.files == len(paths)}
    for name, kind in fitting.items():
        if all(map(kind.recognises, paths)):
            return name
    choice = f"give one of {', '.join(fitting)} as the format (--format)"
    for path in paths:
        suffix = Path(path.name.lower().removesuffix(".gz")).suffix
        if suffix in UNKNOWN_SUFFIXES:
            raise InvalidSetting(f"There is no reader of {suffix} files such as {path}: convert it, or {choice}.")
    if len(paths) == 2:
        return "text"
    raise InvalidSetting(f"The name of {paths[0]} does not tell its format: {choice}.")
