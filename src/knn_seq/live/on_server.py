"""Deletions carried over to the servers that indexes lie on."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import KnnSeqError
from knn_seq.index import INDEXES
from knn_seq.index.on_server import OnServer
from knn_seq.index.stored import indexed_entries, load_index
from knn_seq.storage import DatastoreFolder

log = logging.getLogger(__name__)


def forget_deleted(folder: DatastoreFolder, sentences: NDArray[np.int64]) -> None:
    """Delete the entries of sentence pairs on servers, when the manifest says that these are deleted.

    Until then, and if a server does not answer, they are found there and dropped.

    Args:
        folder: The datastore, whose lock the caller holds.
        sentences: The numbers of the sentence pairs, ascending.
    """
    for name in folder.manifest.indexes:
        if not issubclass(INDEXES.get(folder.manifest.indexes[name].type), OnServer):
            continue
        entries = folder.values.places_of(sentences)
        try:
            index = load_index(folder, name)
            assert isinstance(index, OnServer)
            index.forget(entries[entries < indexed_entries(folder, name)])
        except KnnSeqError as error:
            log.warning("%s Deleted entries stay there until a compaction, and are not found.", error)
