"""knn-seq find: what is in a datastore."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

HELP = "find sentence pairs of a datastore by their words"
EXAMPLE = 'knn-seq find store/ "abrir arquivo"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder")
    parser.add_argument("words", help="of sources or targets")
    parser.add_argument("--corpus", metavar="NAME", help="only what came from the corpus of that name")
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="how many at most (default 10)")
    parser.add_argument("--json", action="store_true", help="JSON lines")


def run(arguments: argparse.Namespace) -> None:
    """Print them, best first."""
    from knn_seq.datastore import Datastore

    for pair in Datastore(arguments.store).find(arguments.words, arguments.limit, arguments.corpus):
        if arguments.json:
            print(json.dumps(facts(pair), ensure_ascii=False))
        else:
            sys.stdout.write(f"{pair.id}  ({pair.corpus}, {pair.date})\n  {pair.source}\n  {pair.target}\n")


def facts(pair: Any) -> dict[str, str]:
    """A sentence pair for JSON."""
    return {name: getattr(pair, name) for name in ("id", "source", "target", "corpus", "date")}
