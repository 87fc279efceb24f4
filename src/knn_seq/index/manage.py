"""The indexes that live beside each other in a datastore."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from knn_seq.errors import UserError
from knn_seq.index.base import INDEXES
from knn_seq.storage import DatastoreFolder


def require_index(store: DatastoreFolder, name: str) -> None:
    """Raise a `UserError` if a datastore has no index of that name."""
    if name not in store.manifest.indexes:
        known = ", ".join(store.manifest.indexes) or "none"
        raise UserError(f"{store.path} has no index '{name}': it has {known}.")


def choose_index(store: DatastoreFolder, name: str) -> None:
    """Let translations use the index of that name from now on."""
    store.require_complete()
    with store.lock():
        fresh = DatastoreFolder(store.path)
        require_index(fresh, name)
        fresh.manifest.default_index = name
        store.save(fresh.manifest)


def remove_index(store: DatastoreFolder, name: str) -> None:
    """Take an index away, except for the default one."""
    store.require_complete()
    with store.lock():
        fresh = DatastoreFolder(store.path)
        require_index(fresh, name)
        if name == fresh.manifest.default_index:
            raise UserError(f"'{name}' is the default index of {store.path}: make another one the default first.")
        del fresh.manifest.indexes[name]
        store.save(fresh.manifest)  # before its files: an index that is named is whole
        discard_index(store.index_folder(name))


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
                INDEXES.get(file.suffix[1:]).forget(file.parent, kept)
            except UserError as error:  # what is left elsewhere is no reason to keep the folder
                print(f"knn-seq: {error}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
