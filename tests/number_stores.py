"""Datastores of keys that a test makes up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from knn_seq.datastore import Datastore
from knn_seq.storage.keys import KeyWriter


def store_of_keys(path: Path, like: Datastore, keys: NDArray[Any]) -> Datastore:
    """A copy of a datastore with other keys, (entries, dimension); its values are not theirs."""
    shutil.copytree(like.path, path)
    (path / "segments/1/keys.h5").unlink()
    writer, _ = KeyWriter.open_or_create(path / "segments/1/keys.h5", keys.shape, keys.dtype)
    with writer:
        writer.write(0, keys)
        writer.finish()
    return Datastore(path)
