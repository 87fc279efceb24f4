"""A vector of each source sentence: computed, and whitened when all are there."""

from __future__ import annotations

import json
from itertools import islice
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
from knn_seq.sentences.whitening import CHUNK, Whitening
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter
from knn_seq.storage.flat import read_extents
from knn_seq.storage.keys import open_keys

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
        vectors = self.search.unit_vectors([self.sources[i] for i in batch])
        return batch, [1] * len(batch), vectors.to(self.dtype).cpu().numpy()


def store_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
    """Compute and whiten the vectors of all sentences, or resume that."""
    identity = vectors_identity(folder, settings)
    if not _is_complete(folder, identity):
        _store_raw_vectors(folder, search, settings)
        _whiten(folder, search.whitens, identity)
    folder.raw_sentences_path.unlink(missing_ok=True)
    folder.__dict__.pop("sentence_vectors", None)


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
    return len(folder.values), search.unit_vectors([StoredSources(folder)[0]]).shape[1]


def _is_complete(folder: DatastoreFolder, identity: dict[str, Any]) -> bool:
    if not (folder.whitening_path.exists() and folder.sentences_path.exists()):
        return False
    _, attributes = read_extents(folder.sentences_path)
    return bool(attributes.get("identity") == json.dumps(identity, sort_keys=True))


def _store_raw_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
    writer = create_raw_vectors(folder, search, settings)
    if writer is None:
        return
    done = writer.progress() or {"batches": 0, "tokens": 0}
    label, vectors = f"sentences {settings.sentence_search}", SentenceVectors(folder, search, settings)
    shards = cut_shards(folder.values, settings.shard_tokens)
    batches = plan_batches(folder.sources, folder.sources, 2 * settings.batch_tokens, shards)
    with writer, Progress(label, len(vectors.sources), "sentences", done["tokens"]) as progress:
        with BackgroundWriter([writer], done, writer.checkpoint, settings.checkpoint_seconds) as background:
            for batch in islice(batches, done["batches"], None):
                background.put(vectors.rows(batch))
                progress.update(len(batch))
        writer.finish()


def _whiten(folder: DatastoreFolder, wanted: bool, identity: dict[str, Any]) -> None:
    raw = open_keys(folder.raw_sentences_path, VECTORS)
    whitening = Whitening.fit(raw) if wanted else Whitening.none(raw.shape[1])
    folder.sentences_path.unlink(missing_ok=True)  # or a kill would leave it with a whitening that is not its own
    whitening.save(folder.whitening_path)
    writer, _ = KeyWriter.open_or_create(folder.sentences_path, raw.shape, raw.dtype, identity, VECTORS)
    with writer:
        for start in range(0, len(raw), CHUNK):
            rows = torch.from_numpy(raw[start : start + CHUNK].copy())
            writer.write(start, whitening.apply(rows).to(rows.dtype).numpy())
        writer.finish()
