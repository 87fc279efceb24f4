"""knn-seq demo: a real model adapted to a real domain."""

from __future__ import annotations

import argparse
from pathlib import Path

from knn_seq.cli.options import add_quiet_option

HELP = "adapt a Portuguese-English model to the Bible and compare"
EXAMPLE = "knn-seq demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--folder", default="knn-seq-demo", help="for the datastore (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run it."""
    from knn_seq.demo import run_demo
    from knn_seq.errors import KnnSeqError

    json_path = Path(arguments.json) if arguments.json else None
    if json_path is not None and not json_path.resolve().parent.is_dir():
        raise KnnSeqError(f"The folder of {json_path} does not exist.")
    run_demo(Path(arguments.folder), json_path)
