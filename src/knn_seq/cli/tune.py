"""knn-seq tune: the settings that fit a domain best."""

from __future__ import annotations

import argparse
from pathlib import Path

from knn_seq.cli.files import read_test_set, require_writable
from knn_seq.cli.options import (
    add_corpus_options,
    add_decoding_options,
    add_model_options,
    add_quiet_option,
    add_search_options,
    chosen,
)
from knn_seq.cli.searched import add_searched_options, open_translator

HELP = "find the k, temperature and weight that translate a dev set best, and store them"
PLOTS = (".png", ".svg", ".pdf")
EXAMPLE = "knn-seq tune store/ --dev dev.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_searched_options(parser)
    add_corpus_options(parser, "dev", "the dev set")
    group = parser.add_argument_group("tuning")
    group.add_argument("--metric", default="bleu", help="that decides among the best few: bleu (default), chrf")
    group.add_argument("--confirm", type=int, default=8, metavar="N", help="settings to decode with (default 8)")
    group.add_argument("--largest-k", type=int, default=64, metavar="K", help="to try (default 64)")
    group.add_argument(
        "--subset-sizes", metavar="N,N,...", help="to try, for subset and memory (default: the one that is set)"
    )
    group.add_argument(
        "--find-confidence-threshold",
        action="store_true",
        help="find as well from what probability on the model may decide without a search",
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
    """Tune, print a small table, store what was found."""
    from knn_seq.datastore import Datastore
    from knn_seq.decoding import settings_name
    from knn_seq.errors import KnnSeqError, MissingLibrary
    from knn_seq.evaluate.plots import require_plot_libraries
    from knn_seq.metrics import METRICS
    from knn_seq.settings import DecodingSettings, SearchSettings
    from knn_seq.storage.atomic import write_json
    from knn_seq.tune import tune

    require_writable(arguments.json, arguments.plot)
    dev = read_test_set(arguments, "dev")
    for name in ("confirm", "largest_k"):
        if getattr(arguments, name) < 1:
            raise KnnSeqError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(arguments, name)}.")
    if arguments.plot and Path(arguments.plot).suffix not in PLOTS:
        raise KnnSeqError(f"--plot draws {', '.join(PLOTS)} files, not {arguments.plot}.")
    if arguments.plot:
        require_plot_libraries()
    metric, sizes = METRICS.get(arguments.metric)(), _sizes(arguments.subset_sizes)
    metric.require()
    translator = open_translator(arguments)
    tuning = tune(
        translator,
        dev.sources,
        dev.references,
        metric=metric,
        subset_sizes=sizes,
        largest_k=arguments.largest_k,
        confirm=arguments.confirm,
        find_confidence_threshold=arguments.find_confidence_threshold,
        **chosen(arguments, SearchSettings, DecodingSettings),
    )
    print(tuning.table())
    if arguments.find_confidence_threshold and tuning.best.settings.confidence_threshold is None:
        print("However confident the model is, not to search would cost too much: --confidence-threshold stays off.")
    store, settings = translator.store, tuning.best.settings
    if arguments.json:
        write_json(Path(arguments.json), tuning.to_dict() | {"dev": dev.description})
    if isinstance(store, Datastore) and not arguments.dry_run:
        usual = settings_name(store.search_settings) == settings_name(settings)
        tuning.keep(store, dev.description, as_default=usual or arguments.as_default)
        plot = arguments.plot or store.path / f"tuning-{settings_name(settings).replace('/', '-')}.png"
        parts = [] if usual or arguments.as_default else _options(tuning.chosen, "retriever", "combiner", "index")
        command = " ".join(["knn-seq translate", str(store.path), *parts])
        print(f"Stored in {store.path}; `{command}` uses them.")
    else:
        plot = arguments.plot
        options = _options(tuning.chosen, "k", "temperature", "weight", "subset_size", "confidence_threshold")
        print(f"Nothing was stored: give {' '.join(options)} to use them.")
    if plot:
        try:
            _draw(Path(plot), tuning.to_dict())
            print(f"The likelihoods: {plot}.")
        except MissingLibrary as error:  # nobody asked for it
            print(f"The likelihoods were not drawn. {error}")


def _options(settings: dict[str, object], *names: str) -> list[str]:
    """Settings as they are written on the command line, those that have a value."""
    flags = {name: "-k" if name == "k" else f"--{name.replace('_', '-')}" for name in names}
    return [f"{flag} {settings[name]}" for name, flag in flags.items() if name in settings]


def _sizes(text: str | None) -> list[int | None]:
    from knn_seq.errors import KnnSeqError

    if text is None:
        return [None]
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(sizes) < 1:
        raise KnnSeqError(f"--subset-sizes is a list of numbers such as 64,256,512, not '{text}'.")
    return list(sizes)


def _draw(path: Path, tuning: dict[str, object]) -> None:
    from knn_seq.evaluate.plots import require_plot_libraries, surface_figure
    from knn_seq.storage.atomic import partial_of, publish

    require_plot_libraries()
    partial = partial_of(path)
    surface_figure(tuning).savefig(partial, format=path.suffix.removeprefix("."), dpi=150)
    publish(partial, path)
