"""The third step: the search index over the keys."""

from __future__ import annotations

from typing import Any

from knn_seq.index import INDEXES, default_recipe
from knn_seq.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder

DEFAULT_INDEX = "default"


def store_index(
    folder: DatastoreFolder, settings: BuildSettings, quiet: bool, name: str = DEFAULT_INDEX
) -> dict[str, Any]:
    """Train an index on a sample of the keys, add all of them and save it; returns what the manifest says of it."""
    keys = folder.keys
    kind, recipe = index_kind(settings.index, *keys.shape)
    with Progress(f"index {recipe or kind}", len(keys), "keys", quiet=quiet) as progress:
        index = INDEXES.get(kind).build(keys, recipe=recipe, metric=settings.metric, on_progress=progress.update)
    index.save(folder.index_folder(name))
    return {"type": kind, **index.describe()}


def index_kind(index: str, entries: int, dimension: int) -> tuple[str, str | None]:
    """The name of an index in the registry and its recipe, from what a user writes in one word."""
    if index == "auto":
        return "faiss", default_recipe(entries, dimension)
    kind, colon, recipe = index.partition(":")
    if colon:
        return kind, recipe
    if index == "faiss":
        return "faiss", default_recipe(entries, dimension)
    return (index, None) if index in INDEXES.names() else ("faiss", index)
