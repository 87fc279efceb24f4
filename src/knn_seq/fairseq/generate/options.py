"""The options of our tasks: the settings' own names with `--knn-` before them.  None leaves the datastore's alone."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser
from dataclasses import field, fields
from typing import Any, NamedTuple, Optional

from knn_seq.datastore import Datastore
from knn_seq.errors import InvalidSetting
from knn_seq.registry import parse_pairs
from knn_seq.settings import SearchSettings


class Option(NamedTuple):
    """An option of fairseq's command line."""

    kind: type
    help: str


OPTIONS = {
    "knn_datastore": Option(str, "the datastore's folder; for an ensemble one, or one for each model, with : between"),
    "knn_k": Option(int, "how many neighbours"),
    "knn_temperature": Option(float, "the larger, the more the farther neighbours count"),
    "knn_weight": Option(float, "of the neighbours, 0 to 1; 0 is fairseq alone"),
    "knn_retriever": Option(str, "full, subset, or one of an installed package"),
    "knn_subset_size": Option(int, "sentences that subset searches in"),
    "knn_combiner": Option(
        str, "fixed, distance, a trained one (learned, adaptive, robust, kster), or one of an installed package"
    ),
    "knn_index": Option(str, "one of the datastore's indexes"),
    "knn_skip": Option(str, "learned: don't search where neighbours are unlikely to change anything"),
    "knn_pointers": Option(int, "don't search where so many neighbours continue what was written"),
    "knn_pointer_agreement": Option(float, "the least share of these that must have the same token, 0 to 1"),
    "knn_clusters": Option(bool, "entries with keys similar to those of pointers join them"),
    "knn_on_index_failure": Option(str, "an index on a server does not answer: error, or base, which is fairseq alone"),
    "knn_index_options": Option(str, "of the index: name=value, with commas between"),
    "knn_retriever_options": Option(str, "of the retriever: name=value, with commas between"),
    "knn_combiner_options": Option(str, "of the combiner: name=value, with commas between"),
    "knn_distance_metric": Option(str, "l2, ip or cosine: refuse a datastore whose index has another"),
    "knn_key": Option(str, "where the query is: ffn_in, ffn_out or a module's path in the fairseq model"),
}


def add_options(parser: ArgumentParser) -> None:
    """Declare them to a parser."""
    for name, option in OPTIONS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=option.kind, help=option.help)


def config_fields() -> list[tuple[str, Any, Any]]:
    """The same as the fields of a dataclass."""
    return [
        (name, Optional[option.kind], field(default=None, metadata={"help": option.help}))  # noqa: UP045
        for name, option in OPTIONS.items()
    ]


def given_options(arguments: Any) -> dict[str, Any]:
    """The options that were given, by the settings' names."""
    values = {name.removeprefix("knn_"): getattr(arguments, name, None) for name in OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def search_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those of them that are fields of `SearchSettings`."""
    names = {entry.name for entry in fields(SearchSettings)}
    return {
        name: parse_pairs(value) if name.endswith("_options") else value
        for name, value in options.items()
        if name in names
    }


def open_datastores(options: dict[str, Any]) -> list[Datastore]:
    """The datastores to search; none if they would have no weight."""
    if options.get("weight") == 0:
        return []
    paths = [path for path in re.split(f"[,{os.pathsep}]", options.get("datastore", "")) if path]
    if not paths:
        raise InvalidSetting("There is nothing to search: give a datastore's folder (--knn-datastore).")
    stores = [Datastore(path) for path in paths]
    for store in stores:
        _require_metric(store, options)
    return stores


def _require_metric(store: Datastore, options: dict[str, Any]) -> None:
    manifest = store.manifest
    index = manifest.indexes.get(options.get("index") or manifest.default_index or "")
    wanted, there = options.get("distance_metric"), index.metric if index else manifest.build.distance_metric
    if wanted is not None and wanted != there:
        raise InvalidSetting(
            f"{store.path} is searched by {there}, not by {wanted}: leave --knn-distance-metric out, "
            f"or make another index (`knn-seq index {store.path} --index-recipe auto --distance-metric {wanted}`)."
        )
