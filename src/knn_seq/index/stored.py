"""The indexes in a datastore's folder."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from knn_seq.errors import DamagedFile, KnnSeqError
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.index.on_server import OnServer
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.concatenated import joined_rows
from knn_seq.storage.replacement import delete_unnamed, discard_work, work_folder

log = logging.getLogger(__name__)


def open_index(store: DatastoreFolder, name: str | None = None) -> SearchIndex:
    """The index of that name, or the datastore's default one; see `indexed_keys` for what it has."""
    return store.open_named(lambda: load_index(store, name))


def load_index(store: DatastoreFolder, name: str | None) -> SearchIndex:
    """The same of the generation that the store has read, or an error if another process has replaced it."""
    manifest = store.manifest
    name = name or manifest.default_index
    folder = store.index_folder(str(name))
    index = INDEXES.get(manifest.indexes[str(name)].type).load(folder)
    if index.needs_keys:
        index.attach_keys(indexed_keys(store, str(name)))
    if isinstance(index, OnServer) and manifest.deleted is not None:
        index.lacking = manifest.deleted.tokens
    return index


def indexed_entries(store: DatastoreFolder, name: str) -> int:
    """How many of the datastore's first entries an index has: the first segment's, and what was added to it later."""
    entries = store.manifest.indexes[name].entries
    return next(iter(store.manifest.segments.values())).tokens if entries is None else entries


def indexed_keys(store: DatastoreFolder, name: str) -> NDArray[Any]:
    """The keys of an index, (entries, dimension)."""
    entries, keys = indexed_entries(store, name), [store.base.keys]
    for segment in store.segments[1:]:
        if sum(len(each) for each in keys) < entries:
            keys.append(segment.keys)
    if sum(len(each) for each in keys) != entries:
        raise DamagedFile(f"The index '{name}' of {store.path} does not fit its keys: build it again.")
    return joined_rows(keys)  # type: ignore[no-any-return]


def delete_unused(store: DatastoreFolder, *finished: str) -> None:
    """Delete the folders that the manifest does not name; for the holder of the lock.

    Args:
        store: The datastore.
        *finished: The names of folders of which no build is to be resumed.
    """
    named = store.manifest.folders()
    discard = partial(discard_index, in_use_by=[store.path / folder for folder in named])
    delete_unnamed(store.path, named, discard)
    for name in finished:
        discard_work(work_folder(store.path, name), discard)


def discard_index(folder: Path, in_use_by: Collection[Path] = ()) -> None:
    """Delete a folder with one or more saved indexes, and what they store elsewhere.

    Args:
        folder: The folder; it need not be there.
        in_use_by: The folders of other indexes: what those store elsewhere is not deleted.
    """
    known = INDEXES.names()
    for file in sorted(folder.rglob("index.*")):  # an index's file is called after its kind
        if file.suffix[1:] in known:
            try:
                INDEXES.get(file.suffix[1:]).delete_external(file.parent, in_use_by)
            except KnnSeqError as error:  # what is left elsewhere does not keep the folder from being deleted
                log.warning("%s", error)
    shutil.rmtree(folder, ignore_errors=True)
