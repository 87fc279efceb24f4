"""knn-seq translate: lines in, lines out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from knn_seq.cli.options import add_decoding_options, add_model_options, add_quiet_option, add_search_options
from knn_seq.cli.searched import add_searched_options, open_translator
from knn_seq.errors import KnnSeqError

if TYPE_CHECKING:
    from knn_seq.decoding import Translation
    from knn_seq.translator import Translator

HELP = "translate standard input, a sentence a line"
EXAMPLE = "knn-seq translate store/ < in.txt > out.txt"
LINES_AT_ONCE = 1024  # sorted by length and batched together
EXPLAINED_AT_ONCE = 128  # lines whose neighbours, with their texts, are held in memory
NEIGHBOURS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_searched_options(parser)
    parser.add_argument("--input", metavar="FILE", help="instead of standard input")
    parser.add_argument("--output", metavar="FILE", help="instead of standard output")
    parser.add_argument("--nbest", type=int, help="that many outputs for each line, as number ||| output")
    parser.add_argument("--ensemble", action="append", default=[], metavar="MODEL", help="a further model to join in")
    group = parser.add_argument_group("explanations")
    group.add_argument(
        "--explain", action="store_true", help="write JSON lines: the translation, and why each of its tokens is there"
    )
    group.add_argument(
        "--explain-neighbours",
        type=int,
        metavar="N",
        help=f"the nearest neighbours of a token that are written out (default {NEIGHBOURS}; 0: none)",
    )
    add_search_options(parser)
    add_decoding_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Translate chunk by chunk, so that endless input works."""
    from knn_seq.runtime.progress import Progress

    shown = _neighbours_shown(arguments)
    with ExitStack() as files:
        source = files.enter_context(_reading(arguments.input)) if arguments.input else sys.stdin
        translator = open_translator(arguments, arguments.ensemble)
        target = files.enter_context(_writing(arguments.output)) if arguments.output else sys.stdout
        first = cut = 0
        with Progress("translate", None, "sentences") as progress:
            for lines in _chunks(source):
                translations = translator.translate(lines, on_progress=progress.update)
                if arguments.explain:
                    output = _explained(translator, translations, shown, bool(arguments.nbest))
                else:
                    output = _texts(translations, first if arguments.nbest else None)
                for line in output:
                    print(line, file=target)
                first += len(translations)
                cut += sum(translation.source_cut for translation in translations)
                target.flush()
    if cut:
        print(f"{cut:,} lines were longer than the model can read: their ends were left out.", file=sys.stderr)


def _neighbours_shown(arguments: argparse.Namespace) -> int:
    given: int | None = arguments.explain_neighbours
    if given is None:
        return NEIGHBOURS
    if not arguments.explain:
        raise KnnSeqError("--explain-neighbours is for explanations: give --explain as well, or leave it out.")
    if given < 0:
        raise KnnSeqError(f"--explain-neighbours must be at least 0, not {given}.")
    return given


def _texts(translations: list[Translation], first: int | None) -> Iterator[str]:
    """A line for each output; with the number of the first line given, the outputs' numbers before them."""
    for number, translation in enumerate(translations, first or 0):
        for text in (translation, *translation.alternatives):
            yield text if first is None else f"{number} ||| {text}"


def _explained(
    translator: Translator, translations: list[Translation], neighbours: int, alternatives: bool
) -> Iterator[str]:
    """A JSON object for each translation, with those of its alternatives in it if they are wanted."""
    from knn_seq.explain import explain, to_dicts

    for start in range(0, len(translations), EXPLAINED_AT_ONCE):
        some = translations[start : start + EXPLAINED_AT_ONCE]
        every = [one for translation in some for one in (translation, *translation.alternatives)]
        explained: Iterator[dict[str, Any]] = iter(to_dicts(explain(translator, every, neighbours), translator.store))
        for translation in some:
            best, *others = islice(explained, 1 + len(translation.alternatives))
            if alternatives:
                best["alternatives"] = [{key: other[key] for key in other if key != "source"} for other in others]
            yield json.dumps(best, ensure_ascii=False, allow_nan=False)


@contextmanager
def _reading(name: str) -> Iterator[TextIO]:
    try:
        with open(name, encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise KnnSeqError(f"{name} cannot be read: {error.strerror}.") from error


@contextmanager
def _writing(name: str) -> Iterator[TextIO]:
    """A file that takes its name when all of it is written."""
    from knn_seq.storage.atomic import partial_of, publish

    path = Path(name)
    try:
        with open(partial_of(path), "w", encoding="utf-8") as file:
            yield file
        publish(partial_of(path), path)
    except OSError as error:
        raise KnnSeqError(f"{name} cannot be written: {error.strerror}.") from error


def _chunks(source: TextIO) -> Iterator[list[str]]:
    try:
        while chunk := list(islice(source, LINES_AT_ONCE)):
            yield [line.rstrip("\r\n") for line in chunk]
    except UnicodeDecodeError as error:
        raise KnnSeqError(f"The input is not UTF-8: {error}.") from error
