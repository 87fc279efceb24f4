"""knn-seq generate: continue a prompt."""

from __future__ import annotations

import argparse
import json
import sys

from knn_seq.cli.colours import highlight_labels
from knn_seq.cli.options import add_decoding_options, add_model_options, add_quiet_option, add_search_options, chosen
from knn_seq.errors import KnnSeqError

HELP = "continue a text with a language model and its datastore, word by word"
EXAMPLE = 'knn-seq generate store/ "In the beginning"'
NEIGHBOURS = {"text": 2, "json": 8}  # of a token, that are written out
LENGTH = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the folder of a datastore that was built with --text")
    parser.add_argument("text", nargs="?", help="what to continue (default: standard input)")
    parser.add_argument("--model", help="the model, if it is no longer where it was")
    group = parser.add_argument_group("explanations")
    group.add_argument(
        "--explain", choices=("text", "json"), help="write why it goes on so: to read, or as JSON with every token"
    )
    group.add_argument("--explain-neighbours", type=int, metavar="N", help="of a token that are written out")
    add_search_options(parser)
    add_decoding_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the continuation as it comes, and behind it why it is so."""
    shown = arguments.explain_neighbours
    if shown is not None and (not arguments.explain or shown < 0):
        raise KnnSeqError("--explain-neighbours is a number from 0 on, and for --explain.")
    prompt = arguments.text if arguments.text is not None else sys.stdin.read().rstrip("\n")

    from knn_seq.explain import explain, to_dicts
    from knn_seq.explain.text import INDENT
    from knn_seq.language import generate
    from knn_seq.language.explain import continuation_as_text
    from knn_seq.settings import DecodingSettings, SearchSettings
    from knn_seq.storage import DatastoreFolder
    from knn_seq.translator import Translator

    options = {"max_length": LENGTH, "beam_size": 1, **chosen(arguments, SearchSettings, DecodingSettings)}
    translator = Translator(
        arguments.store, model=arguments.model, device=arguments.device, dtype=arguments.dtype, **options
    )
    as_json = arguments.explain == "json"

    def write(text: str) -> None:
        print(text, end="", flush=True)

    if not as_json:
        write(prompt)
    made = generate(translator, prompt, None if as_json else write)
    if not as_json:
        print(flush=True)
    if not arguments.explain:
        return
    shown = NEIGHBOURS[arguments.explain] if shown is None else shown
    [explanation] = explain(translator, [made.output], shown, sources=[made.prompt])
    store = translator.store
    assert isinstance(store, DatastoreFolder)
    if as_json:
        [described] = to_dicts([explanation], store)
        print(json.dumps(described, ensure_ascii=False, allow_nan=False))
    else:
        text = continuation_as_text(explanation, store, translator.model.tokenizer, shown)
        print(highlight_labels(text, INDENT, sys.stdout), end="")
