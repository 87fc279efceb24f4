"""The sentence pairs that were deleted, until a compaction leaves them out: one small file for each generation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import DamagedFile
from knn_seq.storage.atomic import partial_of, publish
from knn_seq.storage.flat import FlatWriter, create_flat, open_flat

DELETIONS = "deletions"  # the folder, in the datastore's
_NAME = "sentences"


def write_deletions(path: Path, sentences: NDArray[np.int64]) -> None:
    """Write the numbers of deleted sentence pairs, (n,), sorted."""
    path.parent.mkdir(exist_ok=True)
    partial = partial_of(path)
    create_flat(partial, {_NAME: (sentences.shape, np.int64)})
    with FlatWriter(partial) as writer:
        writer.write(_NAME, 0, sentences)
    publish(partial, path)


def read_deletions(path: Path, total: int) -> NDArray[np.int64]:
    """What `write_deletions` wrote, of a datastore with so many sentence pairs."""
    sentences = open_flat(path).get(_NAME)
    if sentences is None or sentences.ndim != 1 or (np.diff(sentences) < 1).any():
        raise DamagedFile(f"{path} is damaged: it does not list deleted sentence pairs.")
    if len(sentences) and not (sentences[0] >= 0 and sentences[-1] < total):
        raise DamagedFile(f"{path} is damaged: it does not fit the datastore's sentence pairs.")
    return np.array(sentences, np.int64)
