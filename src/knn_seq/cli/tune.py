"""knn-seq tune: the settings that fit a domain best."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from knn_seq.cli.files import open_test_set, read_test_set, require_writable
from knn_seq.cli.options import (
    add_corpus_options,
    add_decoding_options,
    add_model_options,
    add_quiet_option,
    add_search_options,
    add_text_options,
    chosen,
)
from knn_seq.cli.searched import add_searched_options, open_translator

if TYPE_CHECKING:
    from knn_seq.datastore import Datastore
    from knn_seq.translator import Translator
    from knn_seq.tune import Tuning

HELP = "find the combiner, k, temperature and weight that translate a dev set best, and store them"
PLOTS = (".png", ".svg", ".pdf")
EXAMPLE = "knn-seq tune store/ --dev dev.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_searched_options(parser)
    add_corpus_options(parser, "dev", "the dev set")
    add_text_options(parser, "text", "a plain text in its place, for a language model: the most likely settings win")
    group = parser.add_argument_group("tuning")
    group.add_argument("--metric", default="bleu", help="that decides among the best few: bleu (default), chrf")
    group.add_argument("--confirm", type=int, default=8, metavar="N", help="settings to decode with (default 8)")
    group.add_argument("--largest-k", type=int, metavar="K", help="to try (default 64, of a text 512)")
    group.add_argument(
        "--subset-sizes", metavar="N,N,...", help="to try, for subset and memory (default: the one that is set)"
    )
    group.add_argument("--as-default", action="store_true", help="let `translate` use what was tuned by default")
    group.add_argument("--plot", metavar="FILE", help="draw the likelihoods there (default: into the datastore)")
    group.add_argument("--json", metavar="FILE", help="write what was found there, too")
    group.add_argument("--dry-run", action="store_true", help="store nothing in the datastore")
    add_search_options(parser)
    add_decoding_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Tune, print a small table for each combiner, store what was found."""
    from knn_seq.datastore import Datastore
    from knn_seq.errors import KnnSeqError
    from knn_seq.evaluate.plots import require_plot_libraries
    from knn_seq.metrics import METRICS
    from knn_seq.settings import DecodingSettings, SearchSettings
    from knn_seq.storage.atomic import write_json
    from knn_seq.tune import best_tuning, tune_combiners
    from knn_seq.tune.run import LARGEST_K
    from knn_seq.tune.tuning import verdict

    require_writable(arguments.json, arguments.plot)
    for name in ("confirm", "largest_k"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            raise KnnSeqError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(arguments, name)}.")
    if arguments.text:
        from knn_seq.cli.perplexity import tune_on_text

        return tune_on_text(arguments)
    dev_set = open_test_set(arguments, "dev")
    if arguments.plot and Path(arguments.plot).suffix not in PLOTS:
        raise KnnSeqError(f"--plot draws {', '.join(PLOTS)} files, not {arguments.plot}.")
    if arguments.plot:
        require_plot_libraries()
    metric, sizes = METRICS.get(arguments.metric)(), _sizes(arguments.subset_sizes)
    metric.require()
    translator = open_translator(arguments)
    dev = read_test_set(dev_set, translator.model)
    tunings = tune_combiners(
        translator,
        dev.sources,
        dev.references,
        _combiners(arguments, translator),
        metric=metric,
        subset_sizes=sizes,
        largest_k=arguments.largest_k or LARGEST_K,
        confirm=arguments.confirm,
        **chosen(arguments, SearchSettings, DecodingSettings),
    )
    for tuning in tunings:
        print(f"combiner {tuning.best.settings.combiner}\n{tuning.table()}\n")
    if len(tunings) > 1:
        print(verdict(tunings))
    best, store = best_tuning(tunings), translator.store
    if arguments.json:
        others = [tuning.to_dict() for tuning in tunings if tuning is not best]
        write_json(Path(arguments.json), best.to_dict() | {"others": others, "dev": dev.description})
    if isinstance(store, Datastore) and not arguments.dry_run:
        _store(store, tunings, best, dev.description, arguments)
    else:
        names = ["combiner", "k", "temperature", "weight", "subset_size"]
        print(f"Nothing was stored: give {' '.join(_options(best.chosen, *names))} to use them.")
        if arguments.plot:
            _draw(Path(arguments.plot), best)


def _combiners(arguments: argparse.Namespace, translator: Translator) -> list[str]:
    """What is tuned: the combiner that is named, or else the default one, what was trained, and `fixed`."""
    from knn_seq.datastore import Datastore
    from knn_seq.settings import BuildSettings

    default = translator.decoder.settings().combiner
    if arguments.combiner is not None:
        return [default]
    store = translator.store
    trained = {info.type for info in store.manifest.combiners.values()} if isinstance(store, Datastore) else set()
    return list(dict.fromkeys([default, *({BuildSettings.combiner} & trained), "fixed"]))


def _store(store: Datastore, tunings: Sequence[Tuning], best: Tuning, dev: str, arguments: argparse.Namespace) -> None:
    """Store what was found for each combiner, and draw it; the best becomes the default if it may."""
    from knn_seq.decoding import settings_name
    from knn_seq.errors import MissingLibrary

    usual, settings = store.search_settings, best.best.settings
    same = (usual.retriever, usual.index) == (settings.retriever, settings.index)
    # Where combiners were compared, the best one is the default; one that was named is so only if it was before.
    compared = len(tunings) > 1
    as_default = arguments.as_default or (same and (compared or usual.combiner == settings.combiner))
    for tuning in sorted(tunings, key=lambda tuning: tuning is best):
        tuning.keep(store, dev, as_default=as_default and tuning is best)
    parts = [] if as_default else _options(best.chosen, "retriever", "combiner", "index")
    command = " ".join(["knn-seq translate", str(store.path), *parts])
    print(f"Stored in {store.path}; `{command}` uses {settings.combiner}, {_shown(best)}.")
    drawn = [best] if arguments.plot else tunings
    try:
        for tuning in drawn:
            name = settings_name(tuning.best.settings).replace("/", "-")
            _draw(Path(arguments.plot or store.path / f"tuning-{name}.png"), tuning)
    except MissingLibrary as error:  # nobody asked for it
        print(f"The likelihoods were not drawn. {error}")


def _shown(tuning: Tuning) -> str:
    """The chosen numbers, for people."""
    from knn_seq.combine import has_own_temperature

    settings = tuning.best.settings
    own = has_own_temperature(settings.combiner)
    temperature = "" if own else f"temperature {settings.temperature:g}, "
    return f"k {settings.k}, {temperature}weight {settings.weight:g}"


def _options(settings: dict[str, object], *names: str) -> list[str]:
    """Settings as they are written on the command line, those that have a value."""
    from knn_seq.combine import has_own_temperature

    flags = {name: "-k" if name == "k" else f"--{name.replace('_', '-')}" for name in names}
    if has_own_temperature(str(settings["combiner"])):
        flags.pop("temperature", None)
    return [f"{flag} {settings[name]}" for name, flag in flags.items() if name in settings]


def _sizes(text: str | None) -> list[int | None]:
    from knn_seq.errors import KnnSeqError

    if text is None:
        return [None]
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(sizes) < 1:
        raise KnnSeqError(f"--subset-sizes is a list of numbers such as 64,256,512, not '{text}'.")
    return list(sizes)


def _draw(path: Path, tuning: Tuning) -> None:
    from knn_seq.evaluate.plots import require_plot_libraries, surface_figure
    from knn_seq.storage.atomic import partial_of, publish

    require_plot_libraries()
    partial = partial_of(path)
    surface_figure(tuning.to_dict()).savefig(partial, format=path.suffix.removeprefix("."), dpi=150)
    publish(partial, path)
    print(f"The likelihoods: {path}.")
