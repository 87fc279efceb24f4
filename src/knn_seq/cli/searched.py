"""What a command translates with: a datastore, or a translation memory and a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from knn_seq.cli.collector import collector_paused
from knn_seq.cli.options import chosen, columns_of

if TYPE_CHECKING:
    from knn_seq.translator import Translator


def add_searched_options(parser: argparse.ArgumentParser) -> None:
    """A datastore, or a translation memory instead."""
    parser.add_argument("store", nargs="?", help="the datastore's folder")
    parser.add_argument("--model", help="the model; with a datastore only if it is no longer where it was")
    group = parser.add_argument_group(
        "translation memory", "Sentence pairs to translate with at once, without a build."
    )
    group.add_argument(
        "--translation-memory",
        metavar="FILE",
        help="instead of a datastore: TSV or JSON lines, gzipped or not; it needs --model",
    )
    group.add_argument(
        "--translation-memory-columns", metavar="S,T", help="where its source and target are (see `build --help`)"
    )
    group.add_argument("--source-lang", help="for multilingual models; a datastore knows it")
    group.add_argument("--target-lang", help="for multilingual models; a datastore knows it")
    group.add_argument("--prompt", help="what a decoder-only model reads; {source} stands for the sentence")


@collector_paused()
def open_translator(arguments: argparse.Namespace, ensemble: Sequence[str] = ()) -> Translator:
    """The translator that the options describe."""
    from knn_seq.corpus import open_corpus
    from knn_seq.errors import KnnSeqError
    from knn_seq.settings import DecodingSettings, SearchSettings
    from knn_seq.translator import Translator

    own = {name: getattr(arguments, name) for name in ("source_lang", "target_lang", "prompt")}
    given = {name: value for name, value in own.items() if value is not None}
    memory, columns = arguments.translation_memory, arguments.translation_memory_columns
    if memory is not None:
        memory = open_corpus(memory, columns=columns_of(columns))
    elif given or columns is not None:
        name = next(iter(given), "translation_memory_columns").replace("_", "-")
        raise KnnSeqError(f"--{name} is for a translation memory; a datastore knows its own: leave it out.")
    return Translator(
        arguments.store,
        model=arguments.model,
        ensemble=ensemble,
        translation_memory=memory,
        device=arguments.device,
        dtype=arguments.dtype,
        **given,
        **chosen(arguments, SearchSettings, DecodingSettings),
    )
