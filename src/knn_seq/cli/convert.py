"""knn-seq convert: a fairseq checkpoint as a folder of Transformers."""

from __future__ import annotations

import argparse

HELP = "write a fairseq checkpoint as a folder of Transformers"
EXAMPLE = "knn-seq convert fairseq:model.pt out/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("model", help="fairseq:PATH of a checkpoint or its folder")
    parser.add_argument("folder", help="what to write; it must not exist, or be empty")
    parser.add_argument("--data", metavar="DIR", help="the folder of its dictionaries, if they are not beside it")
    parser.add_argument("--source-lang", help="for multilingual models, and checkpoints that do not tell it")
    parser.add_argument("--target-lang", help="for multilingual models, and checkpoints that do not tell it")


def run(arguments: argparse.Namespace) -> None:
    """Convert."""
    from knn_seq.cli.options import chosen
    from knn_seq.errors import InvalidSetting
    from knn_seq.settings import ModelSettings, override

    backend, _, name = arguments.model.partition(":")
    if backend != "fairseq" or not name:
        raise InvalidSetting(f"Only fairseq's models can be converted, given as fairseq:PATH, not {arguments.model}.")
    from knn_seq.fairseq.backend import convert

    convert(name, arguments.folder, override(ModelSettings(arguments.model), chosen(arguments, ModelSettings)))
    print(f"{arguments.folder} is written; use it as --model fairseq:{arguments.folder}")
