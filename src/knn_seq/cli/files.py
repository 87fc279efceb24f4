"""Files that a command reads or writes, looked at before it works for minutes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from knn_seq.cli.options import corpus_of
from knn_seq.errors import DamagedFile, KnnSeqError, NotFound

if TYPE_CHECKING:
    from knn_seq.corpus import Corpus
    from knn_seq.models import Model


class TestSet(NamedTuple):
    """Sentences with their references."""

    sources: list[str]
    references: list[str]
    description: str


def open_test_set(arguments: argparse.Namespace, name: str) -> Corpus:
    """The corpus that `add_corpus_options` declared under that name, before a model is loaded."""
    from knn_seq.corpus import open_corpus

    return open_corpus(getattr(arguments, name), **corpus_of(arguments))


def read_test_set(corpus: Corpus, model: Model) -> TestSet:
    """The usable sentence pairs of a corpus, in the languages of a model if it has several."""
    from knn_seq.corpus import SentencePair

    corpus.prefer_languages(model)
    pairs = [unit for unit in corpus if isinstance(unit, SentencePair)]
    if not pairs:
        raise DamagedFile(f"There is no usable sentence pair in {corpus.describe()}.")
    return TestSet([pair.source for pair in pairs], [pair.target for pair in pairs], corpus.describe())


def require_writable(*names: str | None) -> None:
    """Raise a `KnnSeqError` if one of these files, those that are given, could not be written."""
    for path in map(Path, filter(None, names)):
        folder = path.resolve().parent
        if not folder.is_dir():
            raise NotFound(f"The folder of {path} does not exist.")
        if path.is_dir() or not os.access(folder, os.W_OK):
            raise KnnSeqError(
                f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'its folder is read-only'}."
            )
