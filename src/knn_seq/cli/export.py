"""knn-seq export: the sentence pairs of a datastore as a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

HELP = "write the sentence pairs of a datastore as TSV, JSON lines or TMX"
EXAMPLE = "knn-seq export store/ --format tmx > memory.tmx"
FORMATS = ("tsv", "jsonl", "tmx")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder")
    parser.add_argument("--format", choices=FORMATS, default="tsv", help="of what is written (default tsv)")
    parser.add_argument("--words", metavar="TEXT", help="only what shares words with this, best first")
    parser.add_argument("--limit", type=int, metavar="N", help="with --words: how many at most (default: all)")
    parser.add_argument("--corpus", metavar="NAME", help="only what came from the corpus of that name")
    parser.add_argument("--source-lang", help="of the sources, for TMX (default: the model's)")
    parser.add_argument("--target-lang", help="of the targets, for TMX (default: the model's)")
    parser.add_argument("--output", metavar="FILE", help="where to (default: standard output)")


def run(arguments: argparse.Namespace) -> None:
    """Write them."""
    from knn_seq.cli.files import require_writable
    from knn_seq.corpus import PAIR_WRITERS
    from knn_seq.datastore import Datastore

    require_writable(arguments.output)
    store = Datastore(arguments.store)
    if arguments.words is None:
        pairs = store.live_pairs(arguments.corpus)
    else:
        pairs = iter(store.find(arguments.words, arguments.limit, arguments.corpus))
    model = store.manifest.model
    languages = arguments.source_lang or model.translates_from, arguments.target_lang or model.translates_to
    with _writing(arguments.output) as stream:
        PAIR_WRITERS.get(arguments.format)().write(pairs, stream, *languages)


@contextmanager
def _writing(name: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that takes its name when all of it is written."""
    from knn_seq.storage.atomic import disk_errors, partial_of, publish

    if name is None:
        yield sys.stdout.buffer
        return
    path = Path(name)
    with disk_errors(path):
        with open(partial_of(path), "wb") as file:
            yield file
        publish(partial_of(path), path)
