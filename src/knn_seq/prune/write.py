"""The entries that stay, with their keys, values and places, and the text that they come from."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from knn_seq.prune.base import Selection
from knn_seq.runtime.progress import Progress
from knn_seq.storage import DatastoreFolder, KeyWriter
from knn_seq.storage.atomic import disk_errors, partial_of, publish, read_json
from knn_seq.storage.flat import FlatWriter, create_flat
from knn_seq.storage.replacement import IDENTITY, Replacement

COPIED = 1 << 15  # entries at a time


def write_entries(
    source: DatastoreFolder, folder: DatastoreFolder, selection: Selection, checkpoint_seconds: float
) -> None:
    """Copy what stays out of a datastore into an empty one, or resume that; nothing is computed again."""
    for path, copy in _copies(source, folder).items():
        _copy(path, copy)
    source.open_named(lambda: _copy_vectors(source, folder))
    rows = np.flatnonzero(selection.kept)
    _write_values(source, folder, selection)
    _write_places(source, folder, selection)
    _write_keys(source, folder, rows, checkpoint_seconds)


def _copies(source: DatastoreFolder, folder: DatastoreFolder) -> dict[Path, Path]:
    """The files that are the same for both."""
    before, after = source.base, folder.base
    after.path.mkdir(parents=True, exist_ok=True)
    return {
        before.targets_path if before.pruned else before.values_path: after.targets_path,
        before.sources_path: after.sources_path,
        before.text_path: after.text_path,
        before.pairs_path: after.pairs_path,
        **({before.raw_sentences_path: after.raw_sentences_path} if before.raw_sentences_path.exists() else {}),
    }


def _copy_vectors(source: DatastoreFolder, folder: DatastoreFolder) -> None:
    """The vectors of sentences, where the source is prepared for subset search by vectors: the next step takes them."""
    subset = source.manifest.subset
    if subset is None or subset.vectors_folder is None:
        return
    vectors = source.path / subset.vectors_folder
    replacement = Replacement(folder.path, "vectors", read_json(vectors / IDENTITY), in_use=None)
    replacement.prepare()
    if not replacement.complete:
        replacement.new.mkdir(exist_ok=True)
        for path in sorted(vectors.iterdir(), key=lambda path: path.name == IDENTITY):  # which says that all are there
            _copy(path, replacement.new / path.name)


def _copy(path: Path, copy: Path) -> None:
    if not copy.exists():
        with disk_errors(copy):
            shutil.copyfile(path, partial_of(copy))
        publish(partial_of(copy), copy)


def _write_values(source: DatastoreFolder, folder: DatastoreFolder, selection: Selection) -> None:
    offsets = source.values.offsets
    lengths = np.add.reduceat(np.append(selection.kept, False), offsets[:-1], dtype=np.int64)
    lengths[np.diff(offsets) == 0] = 0  # where a sentence has no entry, reduceat gives that of the next one
    partial = partial_of(folder.base.values_path)
    kept = int(selection.kept.sum())
    create_flat(partial, {"items": ((kept,), np.int32), "offsets": ((len(offsets),), np.int64)})
    with FlatWriter(partial) as writer:
        writer.write("items", 0, source.values.items[selection.kept])
        writer.write("offsets", 0, np.concatenate([[0], np.cumsum(lengths)]))
    publish(partial, folder.base.values_path)


def _write_places(source: DatastoreFolder, folder: DatastoreFolder, selection: Selection) -> None:
    rows = np.flatnonzero(selection.kept)
    columns: dict[str, NDArray[Any]] = {"positions": source.locate(rows)[1]}
    counts = source.counts if selection.counts is None else selection.counts
    if counts is not None:
        columns["counts"] = counts[rows]
    shapes: dict[str, tuple[tuple[int, ...], DTypeLike]] = {name: ((len(rows),), np.int32) for name in columns}
    partial = partial_of(folder.base.entries_path)
    create_flat(partial, shapes)
    with FlatWriter(partial) as writer:
        for name, column in columns.items():
            writer.write(name, 0, column)
    publish(partial, folder.base.entries_path)


def _write_keys(source: DatastoreFolder, folder: DatastoreFolder, rows: NDArray[np.int64], seconds: float) -> None:
    keys = source.keys
    assert folder.manifest.pruned is not None
    shape, identity = (len(rows), keys.shape[1]), {"pruned": folder.manifest.pruned.to_dict()}
    writer, stored = KeyWriter.open_or_create(folder.base.keys_path, shape, keys.dtype, identity)
    start, last = len(rows) if writer.finished else (stored or {"entries": 0})["entries"], time.monotonic()
    with writer, Progress("keys", len(rows), "key", start) as progress:
        for first in range(start, len(rows), COPIED):
            chosen = rows[first : first + COPIED]
            writer.write(first, keys[chosen])
            progress.update(len(chosen))
            if time.monotonic() - last >= seconds:
                writer.checkpoint({"entries": first + len(chosen)})
                last = time.monotonic()
        writer.finish()
