"""knn-seq perplexity: a text under the model alone, kNN-LM and RetoMaton."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from knn_seq.cli.files import require_writable
from knn_seq.cli.options import (
    add_model_options,
    add_quiet_option,
    add_search_options,
    add_text_options,
    chosen,
    window_of,
)
from knn_seq.errors import KnnSeqError

if TYPE_CHECKING:
    from knn_seq.datastore import Datastore
    from knn_seq.settings import SearchSettings
    from knn_seq.translator import Translator

HELP = "compute the perplexity of a text: the model alone, kNN-LM, trained combiners, RetoMaton"
EXAMPLE = "knn-seq perplexity store/ --text test.txt"
BASE, KNN_LM, RETOMATON = "base", "kNN-LM", "RetoMaton"
RETOMATON_POINTERS, RETOMATON_AGREEMENT = 1, 0.0  # as its authors have them, where nobody says otherwise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the folder of a datastore that was built with --text")
    parser.add_argument("--model", help="the model, if it is no longer where it was")
    add_text_options(parser, "text", "the text")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    add_search_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print a line for each system, and the signature."""
    from knn_seq.language import perplexity, read_text
    from knn_seq.storage.atomic import write_json

    if arguments.text is None:
        raise KnnSeqError("Give the text whose perplexity is wanted: --text FILE.")
    require_writable(arguments.json)
    translator = _open(arguments)
    found = perplexity(
        translator.decoder,
        read_text(arguments.text, translator.model, window_of(arguments)),
        systems(arguments, translator),
    )
    print(found.table())
    if arguments.json:
        write_json(Path(arguments.json), found.to_dict())


def systems(arguments: argparse.Namespace, translator: Translator) -> dict[str, SearchSettings]:
    """What is compared: the combiner that was named, or `fixed` and those that were trained; and with pointers."""
    from dataclasses import replace

    from knn_seq.decoding.clusters import clusters_path

    decoder, store = translator.decoder, _store(translator)
    trained = sorted({info.type for info in store.manifest.combiners.values() if info.type != "fixed"})
    names = [arguments.combiner] if arguments.combiner else ["fixed", *trained]
    found = {name: replace(decoder.settings({"combiner": name}), pointers=None, clusters=None) for name in names}
    every = {BASE: replace(found[names[0]], weight=0.0, skip=None)}
    every |= {KNN_LM if name == "fixed" else name: each for name, each in found.items()}
    # A given text is read to its end whatever pointers say, so they need not agree.
    given = arguments.pointer_agreement
    agreement = RETOMATON_AGREEMENT if given is None else given
    minimum = arguments.pointers or RETOMATON_POINTERS
    for name, each in found.items():
        label = RETOMATON if name == "fixed" else f"{name}, pointers"
        every[label] = replace(each, pointers=minimum, pointer_agreement=agreement)
        if arguments.clusters or clusters_path(store).exists():
            every[f"{label}, clusters"] = replace(every[label], clusters=True)
    return every


def tune_on_text(arguments: argparse.Namespace) -> None:
    """Find and store the settings under which a text is most likely, for `knn-seq tune --text`."""
    from knn_seq.combine import has_own_temperature
    from knn_seq.decoding import store_settings
    from knn_seq.language import read_text, tune_text
    from knn_seq.language.tune import LARGEST_K

    for name in ("dev", "source", "target", "translation_memory"):
        if getattr(arguments, name, None) is not None:
            raise KnnSeqError("Give plain text or sentence pairs, not both.")
    translator = _open(arguments)
    store = _store(translator)
    trained = sorted({info.type for info in store.manifest.combiners.values()})
    names = [arguments.combiner] if arguments.combiner else list(dict.fromkeys(["fixed", *trained]))
    settings = [translator.decoder.settings({"combiner": name}) for name in names]
    text = read_text(arguments.text, translator.model, window_of(arguments))
    tuned = tune_text(translator.decoder, text, settings, arguments.largest_k or LARGEST_K)
    print(f"{'the model alone':<16} perplexity {tuned[0].base_perplexity:.3f}")
    for one in tuned:
        best = one.settings
        own = "" if has_own_temperature(best.combiner) else f", temperature {best.temperature:g}"
        print(f"{best.combiner:<16} perplexity {one.perplexity:.3f}: k {best.k}{own}, weight {best.weight:g}")
    if arguments.dry_run:
        print("Nothing was stored.")
        return
    for one in reversed(tuned):
        store_settings(store, one.settings, as_default=one is tuned[0])
    print(f"Stored in {store.path}; {tuned[0].settings.combiner} is its default.")


def _open(arguments: argparse.Namespace) -> Translator:
    from knn_seq.settings import SearchSettings
    from knn_seq.translator import Translator

    options = chosen(arguments, SearchSettings)
    return Translator(arguments.store, model=arguments.model, device=arguments.device, dtype=arguments.dtype, **options)


def _store(translator: Translator) -> Datastore:
    from knn_seq.datastore import Datastore

    assert isinstance(translator.store, Datastore)
    return translator.store
