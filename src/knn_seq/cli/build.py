"""knn-seq build: a datastore from parallel text."""

from __future__ import annotations

import argparse

from knn_seq.cli.engines import add_engine_options
from knn_seq.cli.options import add_corpus_options, add_model_options, add_subset_options, chosen, columns_of

HELP = "build a datastore from parallel text"
EXAMPLE = "knn-seq build store/ --model firefox:pt-en --corpus train.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder; a build that was interrupted goes on")
    parser.add_argument("--model", required=True, help="a hub name, a path, or BACKEND:NAME such as firefox:pt-en")
    add_corpus_options(parser, "corpus", "the sentence pairs")
    fairseq = parser.add_argument_group("fairseq")
    fairseq.add_argument("--data-bin", metavar="DIR", help="instead of text: what fairseq-preprocess wrote")
    fairseq.add_argument("--subset", metavar="SPLIT", help="of --data-bin (default train)")
    fairseq.add_argument("--data", metavar="DIR", help="the model's dictionaries, if they are not beside it")
    parser.add_argument("--strict", action="store_true", default=None, help="stop at the first bad line")
    parser.add_argument("--max-length", type=int, help="leave out pairs with more tokens on a side (default 512)")
    parser.add_argument("--source-lang", help="for multilingual models")
    parser.add_argument("--target-lang", help="for multilingual models")
    parser.add_argument("--prompt", help="what a decoder-only model reads; {source} stands for the sentence")
    parser.add_argument("--key", help="ffn_in (default), ffn_out, or the path of a module")
    parser.add_argument("--key-dtype", choices=("float16", "float32"), help="of the stored keys (default float16)")
    parser.add_argument("--index", help='"auto" (default), a faiss factory string, or the name of another index')
    parser.add_argument("--metric", choices=("l2", "ip", "cosine"), help="of the index (default l2)")
    parser.add_argument(
        "--memory", help="that building the index may take, such as 8GB (default: half of what is free)"
    )
    add_subset_options(parser)
    parser.add_argument("--batch-tokens", type=int, help="tokens in a batch of the key computation (default 4096)")
    parser.add_argument(
        "--shard-tokens", type=int, help="target tokens of a shard, the unit that workers share (default: by size)"
    )
    add_engine_options(parser)
    add_model_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> None:
    """Build, or go on with a build."""
    from knn_seq.build import build_datastore
    from knn_seq.cli.info import describe
    from knn_seq.corpus import open_corpus
    from knn_seq.datastore import Datastore
    from knn_seq.errors import UserError
    from knn_seq.models import load_model
    from knn_seq.settings import BuildSettings, ModelSettings, override

    text = {"source": arguments.source, "target": arguments.target, "columns": columns_of(arguments.columns)}
    corpus = None
    if arguments.data_bin is None:
        if arguments.subset is not None:
            raise UserError("--subset is a split of --data-bin: give both, or neither.")
        corpus = open_corpus(arguments.corpus, **text)
    elif arguments.corpus is not None or any(value is not None for value in text.values()):
        raise UserError("Give the sentence pairs either as text or as --data-bin, not both.")
    settings = override(BuildSettings(), chosen(arguments, BuildSettings))
    arguments.data = arguments.data or arguments.data_bin
    model = load_model(override(ModelSettings(arguments.model), chosen(arguments, ModelSettings)))
    if corpus is None:
        from knn_seq.models.fairseq import open_data_bin

        corpus = open_data_bin(arguments.data_bin, arguments.subset or "train", model)
    anything_done = build_datastore(arguments.store, model, corpus, settings, quiet=arguments.quiet)
    if not anything_done:
        print(f"{arguments.store} is complete already; nothing was done.")
    elif not arguments.quiet:
        print(describe(Datastore(arguments.store)))
