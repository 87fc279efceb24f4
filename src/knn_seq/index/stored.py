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


def discard_index(folder: Path, kept: Path | None = None) -> None:
    """Delete a folder with one or more saved indexes, and what they hold elsewhere.

    Args:
        folder: The folder; it need not be there.
        kept: The folder of an index: what that one holds stays.
    """
    known = INDEXES.names()
    for file in sorted(folder.rglob("index.*")):  # an index's file is called after its kind
        if file.suffix[1:] in known:
            try:
                INDEXES.get(file.suffix[1:]).delete_external(file.parent, kept)
            except KnnSeqError as error:  # what is left elsewhere is no reason to keep the folder
                log.warning("%s", error)
    shutil.rmtree(folder, ignore_errors=True)
