"""knn-seq fairseq-dir: where fairseq finds the plug-in."""

from __future__ import annotations

import argparse

HELP = "print the folder for fairseq's --user-dir"
EXAMPLE = 'fairseq-generate DATA --user-dir "$(knn-seq fairseq-dir)" --task translation_knn --knn-datastore store/'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(arguments: argparse.Namespace) -> None:
    """Print it."""
    from knn_seq.fairseq import plugin_folder

    print(plugin_folder())
