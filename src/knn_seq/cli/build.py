"""knn-seq build: a datastore from parallel text."""

from __future__ import annotations

import argparse

from knn_seq.cli.engines import add_engine_options
from knn_seq.cli.options import (
    add_corpus_options,
    add_index_build_options,
    add_model_options,
    add_quiet_option,
    add_subset_options,
    chosen,
    columns_of,
)

HELP = "build a datastore from parallel text"
EXAMPLE = "knn-seq build store/ --model firefox:pt-en --corpus train.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder; a build that was interrupted resumes")
    parser.add_argument("--model", required=True, help="a hub name, a path, or BACKEND:NAME such as firefox:pt-en")
    add_corpus_options(parser, "corpus", "the sentence pairs", several=True)
    parser.add_argument("--data", metavar="DIR", help="a fairseq model's dictionaries, if they are not beside it")
    parser.add_argument("--strict", action="store_true", default=None, help="stop at the first bad sentence pair")
    parser.add_argument(
        "--allow-unknown",
        action="store_true",
        default=None,
        help="build even if much of the text is unknown to the model's vocabulary",
    )
    parser.add_argument("--max-length", type=int, help="leave out pairs with more tokens on a side (default 512)")
    parser.add_argument("--source-lang", help="for multilingual models, and for files with several languages")
    parser.add_argument("--target-lang", help="for multilingual models, and for files with several languages")
    parser.add_argument(
        "--prompt",
        help="what a decoder-only model reads; {source} stands for the sentence (default: its chat template, or "
        '"{source_lang}: {source}\\n{target_lang}:\\n")',
    )
    parser.add_argument("--key", help="ffn_in (default), ffn_out, or the path of a module")
    parser.add_argument("--key-dtype", choices=("float16", "float32"), help="of the stored keys (default float16)")
    add_index_build_options(parser.add_argument_group("index"))
    add_subset_options(parser)
    group = parser.add_argument_group("combiner", "What decides, when translating, how much neighbours count.")
    group.add_argument(
        "--combiner",
        metavar="NAME",
        help="learned (default), adaptive, robust, kster: trained on the datastore's own sentences; fixed, distance: "
        "nothing is trained",
    )
    group.add_argument(
        "--general",
        metavar="FILE",
        help="sentences of other domains, one a line, which neighbours must not change (default: the package's, "
        "if it has any in the model's language)",
    )
    parser.add_argument(
        "--auto-compact",
        type=float,
        metavar="SHARE",
        help="compact when so large a share of the entries was added or deleted (default 0.25; 0: never)",
    )
    parser.add_argument("--batch-tokens", type=int, help="tokens in a batch of the key computation (default 4096)")
    parser.add_argument(
        "--shard-tokens", type=int, help="target tokens of a shard, the unit that workers share (default: by size)"
    )
    add_engine_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Build, or resume a build."""
    from knn_seq.cli.info import describe
    from knn_seq.datastore import Datastore
    from knn_seq.settings import BuildSettings, ModelSettings

    store = Datastore.build(
        arguments.store,
        arguments.model,
        arguments.corpus,
        source=arguments.source,
        target=arguments.target,
        columns=columns_of(arguments.columns),
        format=arguments.format,
        corpus_options=arguments.corpus_options,
        **chosen(arguments, ModelSettings, BuildSettings),
    )
    if not arguments.quiet:
        print(describe(store))
