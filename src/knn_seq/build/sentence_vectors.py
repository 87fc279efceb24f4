"""A vector of each source sentence: computed, and whitened when all are there."""

from __future__ import annotations

import json
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
from knn_seq.errors import DamagedFile, NotFound
from knn_seq.runtime.progress import Progress
from knn_seq.sentences import VectorSearch
from knn_seq.sentences.whitening import CHUNK
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter, Segment
from knn_seq.storage.flat import read_extents
from knn_seq.storage.folder import SENTENCES_NAME, WHITENING_NAME
from knn_seq.storage.keys import open_keys
from knn_seq.storage.replacement import Replacement

VECTORS = "vectors"  # what sentence vectors are called in their files


class SentenceVectors:
    """Computes sentence vectors of a segment, before they are whitened.

    Args:
        segment: The segment.
        search: Computes the vectors.
        settings: How they are stored.
    """

    def __init__(self, segment: Segment, search: VectorSearch, settings: BuildSettings) -> None:
        self.search, self.sources, self.dtype = search, StoredSources(segment), getattr(torch, settings.key_dtype)

    def rows(self, batch: NDArray[np.int64]) -> Rows:
        """The vectors of some sentences, and where they are to be written."""
        vectors = self.search.vectors([self.sources[i] for i in batch])
        return batch, [1] * len(batch), vectors.to(self.dtype).cpu().numpy()


def store_vectors(
    folder: DatastoreFolder, segment: Segment, search: VectorSearch, settings: BuildSettings
) -> tuple[str, dict[str, Any]]:
    """Compute and whiten the vectors of all sentences, or resume that, unless those in use are these.

    Returns:
        Their folder, in the datastore's, and what they depend on.
    """
    identity, subset = origin(folder, segment) | {"sentence_search": settings.sentence_search}, folder.manifest.subset
    replacement = Replacement(folder.path, "vectors", identity, subset.vectors_folder if subset else None)
    if replacement.in_use is not None and not replacement.needed:
        return replacement.in_use, identity
    replacement.prepare()
    if not replacement.complete:
        store_raw_vectors(segment, search, settings, folder.manifest.model.fingerprint)
        _transform(segment, search, replacement.new, identity)
    return replacement.publish(), identity


def vectors_identity(fingerprint: str, settings: BuildSettings) -> dict[str, Any]:
    """What sentence vectors of a segment depend on, before they are whitened: the model, and who encodes."""
    return {"model": fingerprint, "sentence_search": settings.sentence_search}


def create_raw_vectors(
    segment: Segment, search: VectorSearch, settings: BuildSettings, fingerprint: str
) -> KeyWriter | None:
    """The file of vectors before they are whitened, resumed or new; None if all vectors are in it."""
    identity, path = vectors_identity(fingerprint, settings), segment.raw_sentences_path
    if _has_vectors(segment, identity):
        return None
    writer, _ = KeyWriter.open_or_create(path, _raw_shape(segment, search), settings.key_dtype, identity, VECTORS)
    return writer


def resume_raw_vectors(
    segment: Segment, search: VectorSearch, settings: BuildSettings, fingerprint: str
) -> KeyWriter | None:
    """The same file if there is one that fits and is unfinished; None otherwise."""
    shape, identity = _raw_shape(segment, search), vectors_identity(fingerprint, settings)
    return KeyWriter.open_unfinished(segment.raw_sentences_path, shape, settings.key_dtype, identity, VECTORS)


def store_raw_vectors(segment: Segment, search: VectorSearch, settings: BuildSettings, fingerprint: str) -> None:
    """Compute the vectors of a segment's sentences, or resume that."""
    writer = create_raw_vectors(segment, search, settings, fingerprint)
    if writer is None:
        return
    done = writer.progress() or {"batches": 0, "tokens": 0}
    label, vectors = f"sentences {settings.sentence_search}", SentenceVectors(segment, search, settings)
    shards = cut_shards(segment.values, settings.shard_tokens)
    batches = plan_batches(segment.sources, segment.sources, 2 * settings.batch_tokens, shards)
    with writer, Progress(label, len(vectors.sources), "sentence", done["tokens"]) as progress:
        with BackgroundWriter([writer], done, writer.checkpoint, settings.checkpoint_seconds) as background:
            for batch in islice(batches, done["batches"], None):
                background.put(vectors.rows(batch))
                progress.update(len(batch))
        writer.finish()


def _has_vectors(segment: Segment, identity: dict[str, Any]) -> bool:
    """Whether all vectors are there; no encoder is asked to find that out."""
    try:
        extents, attributes = read_extents(segment.raw_sentences_path)
    except (NotFound, DamagedFile):
        return False
    rows = extents.get(VECTORS)
    return (
        attributes.get("identity") == json.dumps(identity, sort_keys=True)
        and rows is not None
        and rows.shape[0] == len(segment)
    )


def _raw_shape(segment: Segment, search: VectorSearch) -> tuple[int, int]:
    return len(segment.values), search.vectors([StoredSources(segment)[0]]).shape[1]


def _transform(segment: Segment, search: VectorSearch, new: Path, identity: dict[str, Any]) -> None:
    raw = open_keys(segment.raw_sentences_path, VECTORS)
    search.fit(raw)
    new.mkdir(exist_ok=True)
    search.whitening.save(new / WHITENING_NAME)
    writer, _ = KeyWriter.open_or_create(new / SENTENCES_NAME, raw.shape, raw.dtype, identity, VECTORS)
    with writer:
        for start in range(0, len(raw), CHUNK):
            rows = torch.from_numpy(raw[start : start + CHUNK].copy())
            writer.write(start, search.transform(rows).to(rows.dtype).numpy())
        writer.finish()
