"""knn-seq translate: lines in, lines out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TextIO

from knn_seq.cli.options import add_decoding_options, add_model_options, add_search_options
from knn_seq.cli.searched import add_searched_options, open_translator
from knn_seq.errors import UserError

HELP = "translate standard input, a sentence a line"
EXAMPLE = "knn-seq translate store/ < in.txt > out.txt"
LINES_AT_ONCE = 1024  # sorted by length and batched together


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_searched_options(parser)
    parser.add_argument("--input", metavar="FILE", help="instead of standard input")
    parser.add_argument("--output", metavar="FILE", help="instead of standard output")
    parser.add_argument("--nbest", type=int, help="that many outputs for each line, as number ||| output")
    parser.add_argument("--ensemble", action="append", default=[], metavar="MODEL", help="a further model to join in")
    add_search_options(parser)
    add_decoding_options(parser)
    add_model_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> None:
    """Translate chunk by chunk, so that endless input works."""
    from knn_seq.progress import Progress

    with ExitStack() as files:
        source = files.enter_context(_reading(arguments.input)) if arguments.input else sys.stdin
        translator = open_translator(arguments, arguments.ensemble)
        target = files.enter_context(_writing(arguments.output)) if arguments.output else sys.stdout
        number = cut = 0
        with Progress("translate", None, "sentences", quiet=arguments.quiet) as progress:
            for lines in _chunks(source):
                for translation in translator.translate(lines, on_progress=progress.update):
                    for text in (translation, *translation.alternatives):
                        print(f"{number} ||| {text}" if arguments.nbest else text, file=target)
                    number += 1
                    cut += translation.source_cut
                target.flush()
    if cut:
        print(f"{cut:,} lines were longer than the model can read: their ends were left out.", file=sys.stderr)


@contextmanager
def _reading(name: str) -> Iterator[TextIO]:
    try:
        with open(name, encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}.") from error


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
        raise UserError(f"{name} cannot be written: {error.strerror}.") from error


def _chunks(source: TextIO) -> Iterator[list[str]]:
    try:
        while chunk := list(islice(source, LINES_AT_ONCE)):
            yield [line.rstrip("\r\n") for line in chunk]
    except UnicodeDecodeError as error:
        raise UserError(f"The input is not UTF-8: {error}.") from error
