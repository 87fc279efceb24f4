"""knn-seq index: build, check, list and remove the indexes of a datastore."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from knn_seq.cli.engines import ENGINE_OPTIONS, add_engine_options
from knn_seq.cli.options import (
    add_index_build_options,
    add_model_options,
    add_quiet_option,
    add_subset_options,
    chosen,
    given_flag,
)
from knn_seq.errors import InvalidSetting

if TYPE_CHECKING:
    from knn_seq.datastore import Datastore
    from knn_seq.storage import DatastoreFolder, IndexInfo

HELP = "build, check, list or remove indexes of a datastore, or prepare it for subset search"
EXAMPLE = 'knn-seq index store/ --index-recipe "OPQ64,IVF4096_HNSW32,PQ64" --check'
PARTS = ("ivf_lists", "hnsw_edges", "pq_subspaces", "opq", "pca", "transformed_dimension")
BUILD_OPTIONS = ("distance_metric", "memory_limit", *ENGINE_OPTIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder; with no option its indexes are listed")
    build = parser.add_argument_group("build", "Another index of the same keys, beside those that are there.")
    add_index_build_options(build)
    build.add_argument(
        "--as-default", action="store_true", help="let translations use it, or that of --name, from now on"
    )
    parts = parser.add_argument_group("instead of --index-recipe", "A faiss index by its parts.")
    parts.add_argument("--ivf-lists", type=int, metavar="N", help="inverted lists")
    parts.add_argument(
        "--hnsw-edges", type=int, metavar="N", help="of the graph that finds lists, or keys without them"
    )
    parts.add_argument("--pq-subspaces", type=int, metavar="N", help="of product quantization")
    parts.add_argument("--opq", action="store_true", default=None, help="rotate the keys for product quantization")
    parts.add_argument("--pca", action="store_true", default=None, help="project the keys first")
    parts.add_argument("--transformed-dimension", type=int, metavar="D", help="of rotated or projected keys")
    add_subset_options(parser)
    parser.add_argument(
        "--clusters",
        nargs="?",
        type=int,
        const=64,
        metavar="SIZE",
        help="divide the keys into clusters of SIZE entries on average (default 64), for --pointers --clusters",
    )
    check = parser.add_argument_group("check", "Recall and speed on some of the datastore's own keys.")
    check.add_argument("--check", action="store_true", help="compare with exact search; uses --index-option too")
    check.add_argument("-k", type=int, default=64, help="neighbours (default 64)")
    check.add_argument("--queries", type=int, default=256, help="keys that are asked for (default 256)")
    parser.add_argument(
        "--name", help="of the index to build (default: its recipe), or to check (default: that in use)"
    )
    parser.add_argument("--model", help="that computes sentence vectors, if it is no longer where it was")
    add_engine_options(parser)
    add_model_options(parser)
    parser.add_argument("--remove", metavar="NAME", help="remove the index of that name")
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Do what was asked for."""
    from knn_seq.datastore import Datastore
    from knn_seq.storage import DatastoreFolder

    recipe = _recipe(arguments)
    _require_consistent(arguments, recipe)
    actions = (arguments.sentence_search, arguments.remove, recipe, arguments.as_default, arguments.check)
    if not any(actions) and arguments.clusters is None and not arguments.shortlist:
        print(describe(DatastoreFolder(arguments.store)))
        return
    store, name = Datastore(arguments.store), arguments.name
    if arguments.sentence_search:
        _prepare_subset(store, arguments)
    if arguments.clusters is not None:
        from knn_seq.build.clusters import store_clusters

        store_clusters(store, arguments.clusters)
        print(f"The keys of {store.path} have clusters.")
    if arguments.shortlist:
        from knn_seq.build.shortlist import add_shortlist
        from knn_seq.settings import ModelSettings

        own = {**chosen(arguments, ModelSettings), "shortlist": False}  # or it would have to be there already
        add_shortlist(store, store.load_model(arguments.model, **own))
        print(f"{store.path} has a shortlist.")
    if arguments.remove is not None:
        store.remove_index(arguments.remove)
        print(f"The index '{arguments.remove}' of {store.path} is removed.")
    if recipe:
        name = _build(store, arguments, recipe)
    elif arguments.as_default:
        store.set_default_index(name)
        print(f"Translations with {store.path} use the index '{name}' from now on.")
    if arguments.check:
        options = None if recipe else arguments.index_options  # a new index was built with them
        print(store.check_index(name, arguments.k, arguments.queries, options))


def _require_consistent(arguments: argparse.Namespace, recipe: str | None) -> None:
    """Raise an `InvalidSetting` if options were given that have nothing to do."""
    if not arguments.sentence_search and (arguments.codes or arguments.sentence_index_recipe):
        raise InvalidSetting("--codes and --sentence-index-recipe are for subset search: give --sentence-search, too.")
    if arguments.remove is not None and (recipe or arguments.check or arguments.as_default):
        raise InvalidSetting("--remove goes with no other action: give it alone.")
    if not recipe and (flag := given_flag(arguments, BUILD_OPTIONS)):
        raise InvalidSetting(f"{flag} is for an index that is built: give --index-recipe, too.")
    if not recipe and arguments.as_default and arguments.name is None:
        raise InvalidSetting("--as-default makes the index of --name the default one: give its name.")


def describe(store: DatastoreFolder) -> str:
    """The indexes of a datastore, a line each."""
    manifest = store.manifest
    lines = [_line(name, index, name == manifest.default_index) for name, index in manifest.indexes.items()]
    return "\n".join(lines) or f"{store.path} has no index yet."


def _line(name: str, index: IndexInfo, default: bool) -> str:
    from knn_seq.runtime.sizes import format_bytes

    recipe = "" if index.recipe in (None, name) else f" {index.recipe}"
    facts = [f"{index.type}{recipe}", index.metric]
    if index.memory is not None:
        if index.entries:
            facts.append(f"{format_bytes(index.memory / index.entries)} a key")
        facts.append(f"{format_bytes(index.memory)} in memory")
    return f"{name}{' (default)' if default else ''}: {', '.join(facts)}"


def _recipe(arguments: argparse.Namespace) -> str | None:
    parts = {part: getattr(arguments, part) for part in PARTS if getattr(arguments, part) is not None}
    if not parts:
        return None if arguments.index_recipe is None else str(arguments.index_recipe)
    if arguments.index_recipe is not None:
        raise InvalidSetting(
            f"--index-recipe and --{next(iter(parts)).replace('_', '-')} both describe the index: give one of them."
        )
    for part, value in parts.items():
        if value < 1:
            raise InvalidSetting(f"--{part.replace('_', '-')} must be at least 1, not {value}.")
    from knn_seq.index.recipe import paper_recipe

    return paper_recipe(**parts)


def _build(store: Datastore, arguments: argparse.Namespace, recipe: str) -> str:
    options = {name: getattr(arguments, name) for name in (*BUILD_OPTIONS, "index_options")}
    given = {name: value for name, value in options.items() if value is not None}
    name = store.add_index(recipe, arguments.name or _plain_name(recipe), arguments.as_default, **given)
    if not arguments.quiet:
        print(_line(name, store.manifest.indexes[name], name == store.manifest.default_index))
    return name


def _plain_name(recipe: str) -> str | None:
    """What an index is called whose recipe cannot be the name of a folder, for an address is in it."""
    return recipe.partition(":")[0] if "/" in recipe else None


def _prepare_subset(store: Datastore, arguments: argparse.Namespace) -> None:
    from knn_seq.settings import ModelSettings

    model = store.load_model(arguments.model, **chosen(arguments, ModelSettings))
    store.prepare_subset(
        arguments.sentence_search, arguments.sentence_index_recipe or "auto", arguments.codes or "auto", model
    )
