"""knn-seq evaluate: the model alone against the model with neighbours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from knn_seq.cli.files import open_test_set, read_test_set, require_writable
from knn_seq.cli.options import (
    add_corpus_options,
    add_decoding_options,
    add_model_options,
    add_quiet_option,
    add_search_options,
)
from knn_seq.cli.searched import add_searched_options, open_translator
from knn_seq.cli.systems import MEMORY, WrittenSystem, open_systems, parse_systems
from knn_seq.errors import KnnSeqError

if TYPE_CHECKING:
    from knn_seq.metrics import Metric

HELP = "score the model alone and with neighbours on a test set"
EXAMPLE = "knn-seq evaluate store/ --test test.tsv --system full --system subset,subset_size=64 --system memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_searched_options(parser, "instead of a datastore, or beside it for systems whose retriever is `memory`")
    add_corpus_options(parser, "test", "the test set")
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="[NAME:]SETTINGS",
        help="what to compare with the model alone; may be given often.  Settings are setting=value with commas "
        'between, named as in the Python API; a first word alone is a retriever: "full", "subset,subset_size=64", '
        '"few: k=4,beam_size=1".  Another datastore of the same model: "law=STORE" or "law: store=STORE,k=8".  '
        "`memory` searches --translation-memory or, without one, the datastore's sentence pairs as they are.  "
        "What is left open is the datastore's own, tuned for that retriever if it was.  "
        "(default: one system, knn, that translates as `knn-seq translate` would, and memory if one is given)",
    )
    group.add_argument(
        "--metrics", default="bleu,chrf", metavar="NAMES", help="bleu, chrf, comet, or one of an installed package"
    )
    group.add_argument("--comet-model", metavar="MODEL", help="a COMET checkpoint: its name or path")
    group.add_argument(
        "--stored",
        type=int,
        default=30,
        metavar="N",
        help="sources out of its store that each system translates as well, to see whether they come out as they are "
        "there (default 30; 0: none)",
    )
    group.add_argument("--json", metavar="FILE", help="write figures and translations there too")
    group.add_argument("--html", metavar="FILE", help="write a report with plots and examples there")
    add_search_options(parser)
    add_decoding_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Translate the test set with each system, and print a table."""
    # Translating takes long: whatever can be wrong is looked at before.
    systems = parse_systems(arguments.system)
    require_writable(arguments.json, arguments.html)
    if arguments.stored < 0:
        raise KnnSeqError(f"--stored must be at least 0, not {arguments.stored}.")

    from dataclasses import asdict

    from knn_seq.evaluate import compare
    from knn_seq.models.base import absolute_name
    from knn_seq.storage.atomic import write_json

    if arguments.html:
        from knn_seq.evaluate.plots import require_plot_libraries

        require_plot_libraries()
    metrics = _metrics(arguments)
    test_set = open_test_set(arguments, "test")
    translator = open_translator(arguments, several_systems=True)
    test = read_test_set(test_set, translator.model)
    setups = open_systems(arguments, translator, systems or _default_systems(arguments))
    comparison = compare(translator, test.sources, test.references, setups, metrics, arguments.stored)
    print(comparison.table())
    given = {"datastore": arguments.store, "translation_memory": arguments.translation_memory}
    searched = {name: path for name, path in given.items() if path is not None}
    if arguments.json:
        report = {**searched, "model": absolute_name(translator.model.settings.name), "test": test.description}
        write_json(Path(arguments.json), report | {"decoding": asdict(translator.decoding)} | comparison.to_dict())
    if arguments.html:
        from knn_seq.evaluate.report import write_report

        write_report(Path(arguments.html), comparison, title=_title(test.description, next(iter(searched.values()))))


def _default_systems(arguments: argparse.Namespace) -> dict[str, WrittenSystem]:
    systems = {"knn": WrittenSystem()}
    if arguments.store is not None and arguments.translation_memory is not None:
        systems[MEMORY] = WrittenSystem({"retriever": MEMORY})
    return systems


def _metrics(arguments: argparse.Namespace) -> list[Metric]:
    """The metrics asked for, all of which can be computed here."""
    from knn_seq.metrics import METRICS

    names = dict.fromkeys(name.strip().lower() for name in arguments.metrics.split(","))
    if arguments.comet_model is not None and "comet" not in names:
        raise KnnSeqError("--comet-model is for the metric comet: name it among --metrics, or leave it out.")
    options = {"comet": {"model": arguments.comet_model}} if arguments.comet_model is not None else {}
    metrics = [METRICS.get(name)(**options.get(name, {})) for name in names]
    for metric in metrics:
        metric.require()
    return metrics


def _title(test: str, searched: str) -> str:
    return f"{Path(searched).name} on {test}"
