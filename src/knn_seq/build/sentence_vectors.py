"""A vector of each source sentence: computed, and whitened when all are there."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.build.background import BackgroundWriter, Rows
from knn_seq.build.batches import plan_batches
from knn_seq.build.index import origin
from knn_seq.build.shards import cut_shards
from knn_seq.build.sources import StoredSources
from knn_seq.runtime.progress import Progress
from knn_seq.sentences import VectorSearch
from knn_seq.sentences.whitening import CHUNK
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter
from knn_seq.storage.folder import SENTENCES_NAME, WHITENING_NAME
from knn_seq.storage.keys import open_keys
from knn_seq.storage.replacement import Replacement

VECTORS = "vectors"  # what sentence vectors are called in their files


class SentenceVectors:
    """Computes sentence vectors of a datastore, before they are whitened.

    Args:
        folder: The datastore.
        search: Computes the vectors.
        settings: How they are stored.
    """

    def __init__(self, folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
        self.search, self.sources, self.dtype = search, StoredSources(folder), getattr(torch, settings.key_dtype)

    def rows(self, batch: NDArray[np.int64]) -> Rows:
        """The vectors of some sentences, and where they are to be written."""
        vectors = self.search.vectors([self.sources[i] for i in batch])
        return batch, [1] * len(batch), vectors.to(self.dtype).cpu().numpy()


def store_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> str:
    """Compute and whiten the vectors of all sentences, or resume that, unless those in use are these.

    Returns:
        Their folder, in the datastore's.
    """
    identity, subset = vectors_identity(folder, settings), folder.manifest.subset
    replacement = Replacement(folder.path, "vectors", identity, subset.vectors_folder if subset else None)
    if replacement.in_use is not None and not replacement.needed:
        return replacement.in_use
    replacement.prepare()
    if not replacement.complete:
        _store_raw_vectors(folder, search, settings)
        _transform(folder, search, replacement.new, identity)
    return replacement.publish()


def vectors_identity(folder: DatastoreFolder, settings: BuildSettings) -> dict[str, Any]:
    """What sentence vectors depend on."""
    return origin(folder) | {"sentence_search": settings.sentence_search}


def create_raw_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> KeyWriter | None:
    """The file of vectors before they are whitened, resumed or new; None if all vectors are in it."""
    shape, identity = _raw_shape(folder, search), vectors_identity(folder, settings)
    writer, _ = KeyWriter.open_or_create(folder.raw_sentences_path, shape, settings.key_dtype, identity, VECTORS)
    if writer.finished:
        writer.close()
        return None
    return writer


def resume_raw_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> KeyWriter | None:
    """The same file if there is one that fits and is unfinished; None otherwise."""
    shape, identity = _raw_shape(folder, search), vectors_identity(folder, settings)
    return KeyWriter.open_unfinished(folder.raw_sentences_path, shape, settings.key_dtype, identity, VECTORS)


def _raw_shape(folder: DatastoreFolder, search: VectorSearch) -> tuple[int, int]:
    return len(folder.values), search.vectors([StoredSources(folder)[0]]).shape[1]


def _store_raw_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
    writer = create_raw_vectors(folder, search, settings)
    if writer is None:
        return
    done = writer.progress() or {"batches": 0, "tokens": 0}
    label, vectors = f"sentences {settings.sentence_search}", SentenceVectors(folder, search, settings)
    shards = cut_shards(folder.values, settings.shard_tokens)
    batches = plan_batches(folder.sources, folder.sources, 2 * settings.batch_tokens, shards)
    with writer, Progress(label, len(vectors.sources), "sentence", done["tokens"]) as progress:
        with BackgroundWriter([writer], done, writer.checkpoint, settings.checkpoint_seconds) as background:
            for batch in islice(batches, done["batches"], None):
                background.put(vectors.rows(batch))
                progress.update(len(batch))
        writer.finish()


def _transform(folder: DatastoreFolder, search: VectorSearch, new: Path, identity: dict[str, Any]) -> None:
    raw = open_keys(folder.raw_sentences_path, VECTORS)
    search.fit(raw)
    new.mkdir(exist_ok=True)
    search.whitening.save(new / WHITENING_NAME)
    writer, _ = KeyWriter.open_or_create(new / SENTENCES_NAME, raw.shape, raw.dtype, identity, VECTORS)
    with writer:
        for start in range(0, len(raw), CHUNK):
            rows = torch.from_numpy(raw[start : start + CHUNK].copy())
            writer.write(start, search.transform(rows).to(rows.dtype).numpy())
        writer.finish()
