"""knn-seq add: more sentence pairs in a datastore that is in use."""

from __future__ import annotations

import argparse
from typing import Any

from knn_seq.cli.engines import add_engine_options
from knn_seq.cli.options import add_corpus_options, add_model_options, add_quiet_option, chosen, corpus_of

HELP = "add sentence pairs to a datastore; running translators use them at once"
EXAMPLE = "knn-seq add store/ --corpus new.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder; an addition that was interrupted resumes")
    add_corpus_options(parser, "corpus", "the sentence pairs")
    parser.add_argument("--model", help="that the keys were made with, if it is no longer where it was")
    parser.add_argument("--strict", action="store_true", default=None, help="stop at the first bad sentence pair")
    parser.add_argument(
        "--allow-unknown",
        action="store_true",
        default=None,
        help="add even if much of the text is unknown to the model's vocabulary",
    )
    add_wait_option(parser)
    add_engine_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def add_wait_option(parser: argparse.ArgumentParser) -> None:
    """How long to wait for another writer."""
    parser.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="for another writer to end (default 60)"
    )


def run(arguments: argparse.Namespace, update: bool = False) -> None:
    """Add, or resume that."""
    from knn_seq.datastore import Datastore
    from knn_seq.runtime.wording import count
    from knn_seq.settings import BuildSettings, ModelSettings

    store = Datastore(arguments.store)
    ids = store.add(
        arguments.corpus,
        arguments.model,
        update=update,
        wait=arguments.wait,
        **named_corpus(arguments),
        **chosen(arguments, ModelSettings, BuildSettings),
    )
    if not arguments.quiet:
        what = "added or put in the place of others" if update else "added"
        print(f"{count(len(ids), 'sentence pair')} {what}; there are {store.manifest.counts.sentences:,} now.")


def named_corpus(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `Datastore.add` takes of the options of a corpus."""
    given = corpus_of(arguments)
    return {"corpus_options" if name == "options" else name: value for name, value in given.items()}
