"""The indexes in a datastore's folder."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from knn_seq.errors import KnnSeqError, NotFound
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.storage import DatastoreFolder

log = logging.getLogger(__name__)


def open_index(store: DatastoreFolder, name: str | None = None) -> SearchIndex:
    """The index of that name, or the datastore's default one."""
    manifest = store.manifest
    name = name or manifest.default_index
    if name is None or name not in manifest.indexes:
        raise NotFound(f"{store.path} has no index '{name}': it has {', '.join(manifest.indexes) or 'none'}.")
    index = INDEXES.get(manifest.indexes[name].type).load(store.index_folder(name))
    if index.needs_keys:
        index.attach_keys(store.keys)
    return index


def discard_index(folder: Path, in_use_by: Path | None = None) -> None:
    """Delete a folder with one or more saved indexes, and what they store elsewhere.

    Args:
        folder: The folder; it need not be there.
        in_use_by: The folder of another index: what that one stores elsewhere is not deleted.
    """
    known = INDEXES.names()
    for file in sorted(folder.rglob("index.*")):  # an index's file is called after its kind
        if file.suffix[1:] in known:
            try:
                INDEXES.get(file.suffix[1:]).delete_external(file.parent, in_use_by)
            except KnnSeqError as error:  # what is left elsewhere does not keep the folder from being deleted
                log.warning("%s", error)
    shutil.rmtree(folder, ignore_errors=True)
