"""What a command translates with: a datastore, or a translation memory and a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from knn_seq.cli.collector import collector_paused
from knn_seq.cli.options import add_part_option, chosen, columns_of, given_flag

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
        metavar="PATH",
        help="instead of a datastore: TSV or JSON lines, gzipped or not; it needs --model",
    )
    group.add_argument(
        "--translation-memory-columns", metavar="S,T", help="where its source and target are (see `build --help`)"
    )
    group.add_argument("--translation-memory-format", metavar="NAME", help="where its name does not tell")
    add_part_option(group, "translation-memory", "if the reader of its format has any")
    group.add_argument("--source-lang", help="for multilingual models; a datastore knows it")
    group.add_argument("--target-lang", help="for multilingual models; a datastore knows it")
    group.add_argument("--prompt", help="what a decoder-only model reads; {source} stands for the sentence")


@collector_paused()
def open_translator(arguments: argparse.Namespace, ensemble: Sequence[str] = ()) -> Translator:
    """The translator that the options describe."""
    from knn_seq.corpus import open_corpus
    from knn_seq.errors import InvalidSetting
    from knn_seq.settings import DecodingSettings, SearchSettings
    from knn_seq.translator import Translator

    own = {name: getattr(arguments, name) for name in ("source_lang", "target_lang", "prompt")}
    given = {name: value for name, value in own.items() if value is not None}
    names = [f"translation_memory_{name}" for name in ("columns", "format", "options")]
    columns, format, options = (getattr(arguments, name) for name in names)
    memory = arguments.translation_memory
    if memory is not None:
        memory = open_corpus(memory, columns=columns_of(columns), format=format, options=options)
    elif (flag := given_flag(arguments, [*own, *names])) is not None:
        raise InvalidSetting(f"{flag} is for a translation memory; a datastore knows its own: leave it out.")
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
