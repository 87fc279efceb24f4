"""knn-seq train: combiners that learn how much neighbours count."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from knn_seq.cli.files import TestSet, open_test_set, read_test_set
from knn_seq.cli.options import add_corpus_options, add_model_options, add_quiet_option, add_text_options, window_of

if TYPE_CHECKING:
    from knn_seq.train import Training
    from knn_seq.translator import Translator

HELP = "train a combiner, which decides for each token how much its neighbours count"
EXAMPLE = "knn-seq train store/ --combiner learned"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder")
    parser.add_argument("--model", help="the model, if it is no longer where it was")
    parser.add_argument("--ensemble", action="append", default=[], metavar="MODEL", help="a further model to join in")
    group = parser.add_argument_group("training")
    group.add_argument(
        "--combiner",
        nargs="+",
        default=["learned"],
        metavar="NAME",
        help="what is trained: learned (default), adaptive, robust, kster; several share one search",
    )
    group.add_argument("--retriever", default="full", help="whose neighbours it weighs: full (default), subset")
    group.add_argument("--index", metavar="NAME", help="one of the datastore's indexes")
    group.add_argument(
        "-k", type=int, help="the most neighbours that it can weigh (default 32; of a text, what `fixed` is best with)"
    )
    group.add_argument(
        "--sentences", type=int, default=768, metavar="N", help="of the datastore, to learn from (default 768)"
    )
    group.add_argument(
        "--general",
        metavar="FILE",
        help="sentences of other domains, one a line, which neighbours must not change (default: the package's, "
        "if it has any in the model's language)",
    )
    group.add_argument("--seed", type=int, default=0, help="of all that is random (default 0)")
    group.add_argument("--as-default", action="store_true", help="let `translate` use it, even if `fixed` is better")
    add_corpus_options(parser, "dev", "a dev set, in the place of the datastore's own sentences")
    add_text_options(parser, "text", "a plain text, in the place of a language model's datastore's own")
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Search once, train each combiner, store it."""
    from knn_seq.errors import KnnSeqError
    from knn_seq.translator import Translator

    for name in ("k", "sentences"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            flag = "-k" if name == "k" else f"--{name}"
            raise KnnSeqError(f"{flag} must be at least 1, not {getattr(arguments, name)}.")
    if arguments.text and any(getattr(arguments, name) is not None for name in ("dev", "source", "target")):
        raise KnnSeqError("Give plain text or sentence pairs, not both.")
    given = any(getattr(arguments, name) is not None for name in ("dev", "source", "target"))
    dev_set = open_test_set(arguments, "dev") if given else None
    translator = Translator(
        arguments.store,
        model=arguments.model,
        ensemble=arguments.ensemble,
        device=arguments.device,
        dtype=arguments.dtype,
        shortlist=arguments.shortlist,
        retriever=arguments.retriever,
        index=arguments.index,
        combiner="fixed",
    )
    dev = None if dev_set is None else read_test_set(dev_set, translator.model)
    trained = translator.train(
        arguments.combiner,
        dev=_dev(arguments, translator, dev),
        general=arguments.general,
        sentences=arguments.sentences,
        k=arguments.k,
        seed=arguments.seed,
        as_default=arguments.as_default or None,
    )
    print(table(trained))
    used = translator.store.search_settings  # type: ignore[union-attr]
    print(f"Stored in {arguments.store}; `knn-seq translate {arguments.store}` uses the combiner '{used.combiner}'.")


def _dev(arguments: argparse.Namespace, translator: Translator, dev: TestSet | None) -> Sequence[Any] | None:
    """What is learned from in the place of the datastore's own sentences, if anything was given."""
    if arguments.text:
        from knn_seq.language import read_text

        return read_text(arguments.text, translator.model, window_of(arguments)).references
    return None if dev is None else list(zip(dev.sources, dev.references, strict=True))


def table(trained: list[Training]) -> str:
    """What each combiner makes of held-out tokens."""
    first = trained[0]
    rows = [("the model alone", first.log_likelihoods["model"], ""), ("fixed", first.log_likelihoods["fixed"], "")]
    rows += [(t.settings.combiner, t.log_likelihoods[t.settings.combiner], f"{t.seconds:.1f} s") for t in trained]
    lines = [f"{'':<16} {'log-likelihood':>15} {'training':>9}"]
    return "\n".join(lines + [f"{name:<16} {value:>15.4f} {seconds:>9}" for name, value, seconds in rows])
