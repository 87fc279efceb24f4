"""The index of a datastore, as its manifest describes it."""

from __future__ import annotations

from knn_seq.errors import UserError
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder


def open_index(store: DatastoreFolder, settings: SearchSettings) -> SearchIndex:
    """The index that the settings name, or the datastore's default one."""
    manifest = store.manifest
    name = settings.index or manifest.default_index
    if name is None or name not in manifest.indexes:
        raise UserError(f"{store.path} has no index '{name}': it has {', '.join(manifest.indexes) or 'none'}.")
    options = {name: getattr(settings, name) for name in ("nprobe", "reach", "ef_search", "refine_factor")}
    given = {name: value for name, value in options.items() if value is not None}
    index = INDEXES.get(manifest.indexes[name]["type"]).load(store.index_folder(name), **given)
    if index.needs_keys:
        index.lend_keys(store.keys)
    return index
