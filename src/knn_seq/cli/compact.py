"""knn-seq compact: everything in one segment again, and what was deleted gone from the disk."""

from __future__ import annotations

import argparse

from knn_seq.cli.add import add_wait_option
from knn_seq.cli.engines import add_engine_options
from knn_seq.cli.options import add_quiet_option, chosen

HELP = "fold additions into a datastore's indexes and remove what was deleted from the disk"
EXAMPLE = "knn-seq compact store/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder; a compaction that was interrupted resumes")
    parser.add_argument("--memory-limit", metavar="SIZE", help="that building indexes may take, such as 8GB")
    add_wait_option(parser)
    add_engine_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Compact, or resume that."""
    from knn_seq.cli.info import describe
    from knn_seq.datastore import Datastore
    from knn_seq.settings import BuildSettings

    store = Datastore(arguments.store)
    store.compact(arguments.wait, **chosen(arguments, BuildSettings))
    if not arguments.quiet:
        print(describe(store))
