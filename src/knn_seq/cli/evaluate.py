"""knn-seq evaluate: the model alone against the model with neighbours."""

from __future__ import annotations

import argparse
from pathlib import Path

from knn_seq.cli.options import (
    add_corpus_options,
    add_decoding_options,
    add_model_options,
    add_search_options,
    columns_of,
)
from knn_seq.cli.searched import add_searched_options, open_translator

HELP = "score the model alone and with neighbours on a test set"
EXAMPLE = "knn-seq evaluate store/ --test test.tsv --json scores.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_searched_options(parser)
    add_corpus_options(parser, "test", "the test set")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    add_search_options(parser)
    add_decoding_options(parser)
    add_model_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> None:
    """Translate the test set with both, and print a table."""
    from dataclasses import asdict

    from knn_seq.corpus import SentencePair, open_corpus
    from knn_seq.errors import UserError
    from knn_seq.evaluate import compare
    from knn_seq.models.base import absolute_name
    from knn_seq.storage.atomic import write_json

    corpus = open_corpus(
        arguments.test, source=arguments.source, target=arguments.target, columns=columns_of(arguments.columns)
    )
    pairs = [line for line in corpus if isinstance(line, SentencePair)]
    if not pairs:
        raise UserError(f"There is no usable sentence pair in {corpus.describe()}.")
    if arguments.json and not Path(arguments.json).resolve().parent.is_dir():
        raise UserError(f"The folder of {arguments.json} does not exist.")
    translator = open_translator(arguments)
    neighbours = {name: value for name, value in asdict(translator.search).items() if value is not None}
    comparison = compare(
        translator,
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
        {"base": {"weight": 0.0}, "knn": neighbours},
        quiet=arguments.quiet,
    )
    print(comparison.table())
    if arguments.json:
        searched = {"memory": arguments.memory} if arguments.store is None else {"datastore": arguments.store}
        report = {**searched, "model": absolute_name(translator.model.settings.name)}
        write_json(Path(arguments.json), report | {"decoding": asdict(translator.decoding)} | comparison.to_dict())
