"""What a command translates with: a datastore, or a translation memory and a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from knn_seq.cli.collector import collector_paused
from knn_seq.cli.options import add_part_option, chosen, columns_of, given_flag

if TYPE_CHECKING:
    from knn_seq.corpus import Corpus
    from knn_seq.translator import Translator

LANGUAGE_OPTIONS = ("source_lang", "target_lang", "prompt")
MEMORY_OPTIONS = tuple(f"translation_memory_{name}" for name in ("columns", "format", "options"))


def add_searched_options(parser: argparse.ArgumentParser, memory_help: str = "instead of a datastore") -> None:
    """A datastore, or a translation memory.

    Args:
        parser: The command's parser.
        memory_help: What a translation memory is given for.
    """
    parser.add_argument("store", nargs="?", help="the datastore's folder")
    parser.add_argument("--model", help="the model; with a datastore only if it is no longer where it was")
    group = parser.add_argument_group(
        "translation memory", "Sentence pairs to translate with at once, without a build."
    )
    group.add_argument(
        "--translation-memory",
        metavar="PATH",
        help=f"{memory_help}: TMX, XLIFF, PO, TSV or JSON lines, gzipped or not, or a folder of them; without a "
        "datastore it needs --model",
    )
    group.add_argument(
        "--translation-memory-columns", metavar="S,T", help="where its source and target are (see `build --help`)"
    )
    group.add_argument("--translation-memory-format", metavar="NAME", help="where its name does not tell")
    add_part_option(group, "translation-memory", "if the reader of its format has any")
    group.add_argument("--source-lang", help="for multilingual models; a datastore knows it")
    group.add_argument("--target-lang", help="for multilingual models; a datastore knows it")
    group.add_argument("--prompt", help="what a decoder-only model reads; {source} stands for the sentence")


def open_translation_memory(arguments: argparse.Namespace) -> Corpus | None:
    """The sentence pairs that the options name, if any."""
    from knn_seq.corpus import open_corpus
    from knn_seq.errors import InvalidSetting

    path = arguments.translation_memory
    if path is None:
        if (flag := given_flag(arguments, [*LANGUAGE_OPTIONS, *MEMORY_OPTIONS])) is not None:
            raise InvalidSetting(f"{flag} is for a translation memory; a datastore knows its own: leave it out.")
        return None
    if path == "-" and getattr(arguments, "input", path) is None:
        raise InvalidSetting(
            "Standard input cannot be both the translation memory and what to translate: give --input."
        )
    columns, format, options = (getattr(arguments, name) for name in MEMORY_OPTIONS)
    return open_corpus(path, columns=columns_of(columns), format=format, options=options)


@collector_paused()
def open_translator(
    arguments: argparse.Namespace,
    ensemble: Sequence[str] = (),
    several_systems: bool = False,
    glossary: str | None = None,
) -> Translator:
    """The translator that the options describe.

    Args:
        arguments: The command's.
        ensemble: Further models.
        several_systems: It is one of several: a translation memory may be given beside a datastore, and is not this
            translator's; whether options fit is for the systems to say.
        glossary: A file of binding terms; None: the datastore's own.
    """
    from knn_seq.settings import DecodingSettings, SearchSettings
    from knn_seq.translator import Translator

    memory = open_translation_memory(arguments)
    languages = {name: getattr(arguments, name) for name in LANGUAGE_OPTIONS}
    translator = Translator(
        arguments.store,
        model=arguments.model,
        ensemble=ensemble,
        translation_memory=None if several_systems and arguments.store is not None else memory,
        glossary=glossary,
        device=arguments.device,
        dtype=arguments.dtype,
        shortlist=arguments.shortlist,
        **languages,
        **chosen(arguments, SearchSettings, DecodingSettings),
    )
    if not several_systems and arguments.temperature is not None:
        require_temperature(translator.decoder.settings().combiner)
    return translator


def require_temperature(combiner: str, of: str = "The combiner", option: str = "--temperature") -> None:
    """Raise an `InvalidSetting` if a temperature was given to a combiner that has its own.

    Args:
        combiner: Its name.
        of: Whose it is.
        option: How the temperature was given.
    """
    from knn_seq.combine import has_own_temperature
    from knn_seq.errors import InvalidSetting

    if has_own_temperature(combiner):
        raise InvalidSetting(
            f"{of} '{combiner}' has a temperature of its own, which it was trained for: "
            f"leave {option} out, or take another combiner, such as fixed."
        )
