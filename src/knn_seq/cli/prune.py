"""knn-seq prune: a smaller datastore out of a finished one."""

from __future__ import annotations

import argparse

from knn_seq.cli.options import add_model_options, add_part_option, add_quiet_option, chosen

HELP = "make a smaller datastore out of a finished one"
EXAMPLE = "knn-seq prune store/ --output small/ --keep 0.6"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder; it stays as it is")
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="the smaller datastore's folder; a run that was interrupted resumes",
    )
    parser.add_argument("--method", help="known (default), merge, ngram, or one of an installed package")
    parser.add_argument("--keep", type=float, metavar="SHARE", help="the share of the entries that stays (default 0.6)")
    add_part_option(parser, "method", "such as neighbours=16")
    parser.add_argument("--model", help="that the keys were made with, if it is no longer where it was")
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Prune, or resume that."""
    from knn_seq.cli.info import describe
    from knn_seq.datastore import Datastore
    from knn_seq.settings import ModelSettings

    given = {name: getattr(arguments, name) for name in ("method", "keep", "method_options")}
    named = {name: value for name, value in given.items() if value is not None}
    settings = chosen(arguments, ModelSettings)
    pruned = Datastore(arguments.store).prune(arguments.output, model=arguments.model, **named, **settings)
    if not arguments.quiet:
        print(describe(pruned))
