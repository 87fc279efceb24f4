"""knn-seq merge: two datastores of the same model in one."""

from __future__ import annotations

import argparse

from knn_seq.cli.engines import add_engine_options
from knn_seq.cli.options import add_quiet_option, chosen

HELP = "make one datastore of two that were made with the same model"
EXAMPLE = "knn-seq merge first/ second/ --output both/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("first", help="a datastore's folder; the new one has its settings, combiners and indexes")
    parser.add_argument("second", help="another one's")
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="the new datastore's folder; a run that was interrupted resumes"
    )
    parser.add_argument("--memory-limit", metavar="SIZE", help="that building indexes may take, such as 8GB")
    add_engine_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Merge, or resume that."""
    from knn_seq.cli.info import describe
    from knn_seq.datastore import Datastore
    from knn_seq.settings import BuildSettings

    merged = Datastore.merge(arguments.first, arguments.second, arguments.output, **chosen(arguments, BuildSettings))
    if not arguments.quiet:
        print(describe(merged))
