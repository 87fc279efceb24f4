"""knn-seq update: corrected sentence pairs in the place of others."""

from __future__ import annotations

import argparse

from knn_seq.cli import add

HELP = "put corrected sentence pairs in the place of those with the same id or source"
EXAMPLE = "knn-seq update store/ --corpus corrected.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add.add_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Update, or resume that."""
    add.run(arguments, update=True)
