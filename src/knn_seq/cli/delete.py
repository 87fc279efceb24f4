"""knn-seq delete: sentence pairs that are to be found no more."""

from __future__ import annotations

import argparse
from pathlib import Path

from knn_seq.cli.add import add_wait_option
from knn_seq.cli.options import add_quiet_option

HELP = "delete sentence pairs from a datastore"
EXAMPLE = "knn-seq delete store/ --id 4711"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder")
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="of a sentence pair; may be given often"
    )
    parser.add_argument("--ids-from", metavar="FILE", help="a file of ids, one a line")
    parser.add_argument("--corpus", metavar="NAME", help="all that came from the corpus of that name")
    parser.add_argument("--source", metavar="TEXT", help="all with exactly this source")
    add_wait_option(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Delete."""
    from knn_seq.datastore import Datastore
    from knn_seq.runtime.wording import count

    ids = [*arguments.id, *(_lines(arguments.ids_from) if arguments.ids_from else [])]
    store = Datastore(arguments.store)
    gone = store.delete(ids, arguments.corpus, arguments.source, arguments.wait)
    if not arguments.quiet:
        there = f"{store.manifest.counts.sentences:,} are left" if gone else "there is none like that"
        print(f"{count(len(gone), 'sentence pair')} deleted; {there}.")


def _lines(name: str) -> list[str]:
    from knn_seq.errors import NotFound

    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"The file of ids {name} cannot be read: {error}.") from error
    return [line.strip() for line in lines if line.strip()]
