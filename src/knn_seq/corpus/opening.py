from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from knn_seq.corpus.base import CORPUS_FORMATS
from knn_seq.corpus.corpus import Corpus
from knn_seq.corpus.finding import find_files, format_of
from knn_seq.corpus.in_memory import InMemoryReader
from knn_seq.corpus.pair import SentencePair
from knn_seq.corpus.several import SeveralReader
from knn_seq.corpus.standard_input import STANDARD_INPUT, StandardInput
from knn_seq.errors import InvalidSetting

FileName: TypeAlias = str | Path
CorpusLike: TypeAlias = Corpus | FileName | Sequence[FileName] | Sequence[tuple[str, str]] | Sequence[SentencePair]


def open_corpus(
    corpus: CorpusLike | None = None,
    source: FileName | None = None,
    target: FileName | None = None,
    columns: Sequence[int | str] | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Corpus:
    """A corpus from its files (with both sides in them, or one for each side), or from pairs of texts in memory.

    Args:
        corpus: A file with both sides, a folder with such files or that is itself a corpus, "-" for standard input, or
            several of these; or pairs of texts, or an opened corpus.
        source: Instead of `corpus`: a text file with the sources ...
        target: ... and one with the targets.
        columns: Where source and target are in `corpus`: column numbers of a TSV file, keys of JSON lines; behind them
            those of id, corpus and date.
        format: The format's name; None: told by the name of each file, and "tsv" of standard input.
        options: Options that the readers of the formats declare; each gets those that it has.
    """
    names = _file_names(corpus)
    if corpus is not None and names is None:
        if options or any(given is not None for given in (source, target, columns, format)):
            raise InvalidSetting("Columns, format and options are for files: leave them out, or give a file's name.")
        in_memory = cast("Sequence[tuple[str, str]] | Sequence[SentencePair]", corpus)
        return corpus if isinstance(corpus, Corpus) else Corpus("pairs", InMemoryReader(in_memory))
    if names is not None and source is None and target is None:
        return _open_files(names, columns, format, options or {})
    if names is None and source is not None and target is not None:
        return _open_one([Path(source), Path(target)], columns, format, options)
    raise InvalidSetting("Give the corpus either as files with both sides, or as a source file and a target file.")


def _file_names(corpus: CorpusLike | None) -> list[Path] | None:
    """The files, if the corpus is given by them."""
    if isinstance(corpus, str | os.PathLike):
        return [Path(corpus)]
    if isinstance(corpus, Sequence) and corpus and all(isinstance(name, str | os.PathLike) for name in corpus):
        return [Path(cast(FileName, name)) for name in corpus]
    return None


def _open_files(
    names: Sequence[Path], columns: Sequence[int | str] | None, format: str | None, options: Mapping[str, Any]
) -> Corpus:
    if format is not None:
        _require_files(format, 1)
    files = find_files(names, format)
    formats = [format or ("tsv" if str(file) == STANDARD_INPUT else format_of([file])) for file in files]
    if len(files) == 1:
        return _open_one(files, columns, formats[0], options)
    kinds = [CORPUS_FORMATS.get(name) for name in formats]
    unknown = next((name for name in options if not any(name in kind.options for kind in kinds)), None)
    if unknown is not None:
        raise InvalidSetting(f"None of the corpus readers {', '.join(sorted(set(formats)))} has an option '{unknown}'.")
    if columns is not None and not any(kind.default_columns for kind in kinds):
        raise InvalidSetting("Corpora of these formats have no columns to choose from: leave the option out.")
    parts = []
    for file, name, kind in zip(files, formats, kinds, strict=True):
        own = {option: value for option, value in options.items() if option in kind.options}
        parts.append(_open_one([file], columns if kind.default_columns else None, name, own))
    return Corpus("several", SeveralReader(parts))


def _open_one(
    paths: Sequence[Path], columns: Sequence[int | str] | None, format: str | None, options: Mapping[str, Any] | None
) -> Corpus:
    format = format or format_of(paths)
    _require_files(format, len(paths))
    if str(paths[0]) == STANDARD_INPUT:
        spooled = StandardInput()
        reader = CORPUS_FORMATS.get(format)([spooled.path], columns, options)
        return Corpus(format, reader, spooled.path.name, spooled)
    return Corpus(format, CORPUS_FORMATS.get(format)(paths, columns, options), str(paths[0]))


def _require_files(format: str, given: int) -> None:
    wanted = CORPUS_FORMATS.get(format).files
    if wanted != given:
        words = "one file with both sides" if wanted == 1 else "a source file and a target file"
        raise InvalidSetting(f"The corpus format '{format}' takes {words}.")
