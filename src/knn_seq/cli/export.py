"""knn-seq export: the sentence pairs of a datastore as a file."""

from __future__ import annotations

import argparse
import sys

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
    parser.add_argument("--output", metavar="FILE", help="where to (default: standard output)")


def run(arguments: argparse.Namespace) -> None:
    """Write them."""
    from knn_seq.cli.files import require_writable
    from knn_seq.datastore import Datastore
    from knn_seq.live.export import export_pairs

    require_writable(arguments.output)
    store = Datastore(arguments.store)
    if arguments.words is None:
        pairs = store.live_pairs(arguments.corpus)
    else:
        pairs = iter(store.find(arguments.words, arguments.limit, arguments.corpus))
    model = store.manifest.model
    if arguments.output is None:
        export_pairs(arguments.format, pairs, sys.stdout, model.source_lang, model.target_lang)
    else:
        with open(arguments.output, "w", encoding="utf-8", newline="\n") as file:
            export_pairs(arguments.format, pairs, file, model.source_lang, model.target_lang)
