"""knn-seq index: build, check, list and remove the indexes of a datastore."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from knn_seq.cli.engines import ENGINE_OPTIONS, add_engine_options
from knn_seq.cli.options import add_model_options, add_subset_options, chosen

if TYPE_CHECKING:
    from knn_seq.storage import DatastoreFolder

HELP = "build, check, list or remove indexes of a datastore, or prepare it for subset search"
EXAMPLE = 'knn-seq index store/ --index "OPQ64,IVF4096_HNSW32,PQ64" --check'
PARTS = ("ivf_lists", "hnsw_edges", "pq_subspaces", "opq", "pca", "transformed_dimension")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder; with no option its indexes are listed")
    build = parser.add_argument_group("build", "Another index of the same keys, beside those that are there.")
    build.add_argument("--index", metavar="RECIPE", help='"auto", a faiss factory string, or the name of another index')
    build.add_argument("--metric", choices=("l2", "ip", "cosine"), help="(default: as the datastore was built)")
    build.add_argument("--memory", metavar="SIZE", help="it may take, such as 8GB (default: half of what is free)")
    build.add_argument("--default", action="store_true", help="let translations use it, or that of --name, from now on")
    parts = parser.add_argument_group("instead of --index", "A faiss index by its parts.")
    parts.add_argument("--ivf-lists", type=int, metavar="N", help="inverted lists")
    parts.add_argument(
        "--hnsw-edges", type=int, metavar="N", help="of the graph that finds lists, or keys without them"
    )
    parts.add_argument("--pq-subspaces", type=int, metavar="N", help="of product quantization")
    parts.add_argument("--opq", action="store_true", default=None, help="rotate the keys for product quantization")
    parts.add_argument("--pca", action="store_true", default=None, help="project the keys first")
    parts.add_argument("--transformed-dimension", type=int, metavar="D", help="of rotated or projected keys")
    add_subset_options(parser)
    check = parser.add_argument_group("check", "Recall and speed on some of the datastore's own keys.")
    check.add_argument("--check", action="store_true", help="compare with exact search")
    check.add_argument("-k", type=int, default=64, help="neighbours (default 64)")
    check.add_argument("--queries", type=int, default=256, help="keys that are asked for (default 256)")
    check.add_argument("--nprobe", type=int, help="inverted lists visited for a query")
    check.add_argument(
        "--reach", type=float, metavar="TIMES", help="visit no list that is so many times as far as the nearest"
    )
    check.add_argument("--ef-search", type=int, help="candidates that a walk over a graph keeps")
    check.add_argument("--refine-factor", type=int, help="times k candidates that are ranked anew")
    parser.add_argument(
        "--name", help="of the index to build (default: its recipe), or to check (default: that in use)"
    )
    parser.add_argument("--model", help="that computes sentence vectors, if it is no longer where it was")
    add_engine_options(parser)
    add_model_options(parser)
    parser.add_argument("--remove", metavar="NAME", help="remove the index of that name")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> None:
    """Do what was asked for."""
    from knn_seq.errors import UserError
    from knn_seq.index.manage import choose_index, remove_index
    from knn_seq.storage import DatastoreFolder

    recipe, store = _recipe(arguments), DatastoreFolder(arguments.store)
    if arguments.sentences:
        _prepare_subsets(arguments)
        if not recipe and not arguments.check:
            return
    elif arguments.codes or arguments.sentence_index:
        raise UserError("--codes and --sentence-index are for subset search: give --sentences, too.")
    if arguments.remove is not None:
        if recipe or arguments.check or arguments.default:
            raise UserError("--remove goes with no other action: give it alone.")
        remove_index(store, arguments.remove)
        return
    name = arguments.name
    if recipe:
        name = _build(arguments, recipe)
    elif arguments.memory or arguments.metric or any(getattr(arguments, name) is not None for name in ENGINE_OPTIONS):
        raise UserError("--memory, --metric and --engine are for an index that is built: give --index, too.")
    elif arguments.default:
        if name is None:
            raise UserError("--default makes the index of --name the default one: give its name.")
        choose_index(store, name)
    if arguments.check:
        _check(arguments, DatastoreFolder(arguments.store), name)
    elif not recipe and not arguments.default:
        print(describe(store))


def describe(store: DatastoreFolder) -> str:
    """The indexes of a datastore, a line each."""
    manifest = store.manifest
    lines = [_line(name, index, name == manifest.default_index) for name, index in manifest.indexes.items()]
    return "\n".join(lines) or f"{store.path} has no index yet."


def _line(name: str, index: dict[str, object], default: bool) -> str:
    from knn_seq.sizes import format_bytes

    entries, memory = index.get("entries"), index.get("memory")
    recipe = "" if index.get("recipe") in (None, name) else f" {index['recipe']}"
    facts = [f"{index['type']}{recipe}", str(index.get("metric", ""))]
    if isinstance(memory, int):
        if isinstance(entries, int) and entries:
            facts.append(f"{memory / entries:.3g} bytes a key")
        facts.append(f"{format_bytes(memory)} in memory")
    return f"{name}{' (default)' if default else ''}: {', '.join(facts)}"


def _recipe(arguments: argparse.Namespace) -> str | None:
    from knn_seq.errors import UserError
    from knn_seq.index.recipe import paper_recipe

    parts = {part: getattr(arguments, part) for part in PARTS if getattr(arguments, part) is not None}
    if not parts:
        return str(arguments.index) if arguments.index is not None else None
    if arguments.index is not None:
        raise UserError(
            f"--index and --{next(iter(parts)).replace('_', '-')} both describe the index: give one of them."
        )
    for part, value in parts.items():
        if value < 1:
            raise UserError(f"--{part.replace('_', '-')} must be at least 1, not {value}.")
    return paper_recipe(**parts)


def _build(arguments: argparse.Namespace, recipe: str) -> str:
    from knn_seq.build.index import reindex
    from knn_seq.storage import DatastoreFolder

    name = reindex(
        arguments.store,
        index=recipe,
        name=arguments.name or _plain_name(recipe),
        metric=arguments.metric,
        memory=arguments.memory,
        make_default=arguments.default,
        quiet=arguments.quiet,
        **{name: value for name in ENGINE_OPTIONS if (value := getattr(arguments, name)) is not None},
    )
    if not arguments.quiet:
        manifest = DatastoreFolder(arguments.store).manifest
        print(_line(name, manifest.indexes[name], name == manifest.default_index))
    return name


def _plain_name(recipe: str) -> str | None:
    """What an index is called whose recipe cannot be the name of a folder, for an address is in it."""
    return recipe.partition(":")[0] if "/" in recipe else None


def _prepare_subsets(arguments: argparse.Namespace) -> None:
    from dataclasses import replace

    from knn_seq.build.subset import prepare_subsets
    from knn_seq.datastore import Datastore
    from knn_seq.models import load_model
    from knn_seq.settings import BuildSettings, ModelSettings, override

    store = Datastore(arguments.store)
    wanted = override(store.model_settings, chosen(arguments, ModelSettings))
    model = load_model(replace(wanted, name=arguments.model or wanted.name))
    store.require_fitting(model)
    options = {"sentences": arguments.sentences, "sentence_index": arguments.sentence_index, "codes": arguments.codes}
    settings = override(BuildSettings(), options)
    if not prepare_subsets(arguments.store, model, settings, arguments.quiet):
        print(f"{arguments.store} is prepared for these subsets already; nothing was done.")


def _check(arguments: argparse.Namespace, store: DatastoreFolder, name: str | None) -> None:
    from knn_seq.index import open_index
    from knn_seq.index.check import check_index
    from knn_seq.progress import Progress
    from knn_seq.settings import SearchSettings

    store.require_complete()
    settings = SearchSettings(
        index=name,
        nprobe=arguments.nprobe,
        reach=arguments.reach,
        ef_search=arguments.ef_search,
        refine_factor=arguments.refine_factor,
    )
    index = open_index(store, settings)
    with Progress("exact search", len(store.keys), "keys", quiet=arguments.quiet) as progress:
        result = check_index(index, store.keys, arguments.k, arguments.queries, on_progress=progress.update)
    print(result)
