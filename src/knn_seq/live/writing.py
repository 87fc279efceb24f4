"""One writer at a time, and the switch from one generation of a datastore to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knn_seq.index import delete_unused
from knn_seq.storage import Counts, DatastoreFolder, Manifest
from knn_seq.storage.atomic import disk_errors
from knn_seq.storage.deletions import DELETIONS, write_deletions
from knn_seq.storage.manifest import DeletionInfo

WAIT_SECONDS = 60.0  # for another writer to end


@contextmanager
def writing(path: Path, wait: float = WAIT_SECONDS) -> Iterator[DatastoreFolder]:
    """The datastore as it is now, for its only writer; what a killed one has left is deleted, or kept to be resumed.

    Args:
        path: The datastore's folder.
        wait: Seconds to wait for another writer, in this process or in another.
    """
    DatastoreFolder(path).require_complete()
    with disk_errors(path), DatastoreFolder(path).lock(wait):
        folder = DatastoreFolder(path)
        folder.require_complete()
        clean(folder)
        yield folder


def commit(folder: DatastoreFolder, manifest: Manifest, deleted: NDArray[np.int64], tokens: int) -> None:
    """Let a manifest that was changed be the datastore's next generation, in one step.

    Args:
        folder: The datastore, whose lock the caller holds.
        manifest: Lists the segments of the next generation, all of them complete.
        deleted: The numbers of the sentence pairs that are deleted in it, sorted.
        tokens: How many entries they have.
    """
    manifest.generation += 1
    manifest.deleted = None
    if len(deleted):
        manifest.deleted = DeletionInfo(f"{manifest.generation}.h5", len(deleted), tokens)
        write_deletions(folder.path / DELETIONS / manifest.deleted.file, deleted)
    segments = manifest.segments.values()
    manifest.counts = Counts(
        sum(info.sentences for info in segments) - len(deleted),
        sum(info.tokens for info in segments) - (manifest.deleted.tokens if manifest.deleted else 0),
        manifest.counts.rejected,
    )
    folder.save(manifest)
    clean(folder)


def clean(folder: DatastoreFolder) -> None:
    """Delete what the manifest does not name; what can be resumed stays."""
    delete_unused(folder)
    named = folder.manifest.deleted
    for path in (folder.path / DELETIONS).glob("*"):
        if named is None or path.name != named.file:
            path.unlink()


def entries_of(folder: DatastoreFolder, sentences: NDArray[np.int64]) -> int:
    """How many entries some sentence pairs have."""
    offsets = folder.values.offsets
    return int((offsets[sentences + 1] - offsets[sentences]).sum())
