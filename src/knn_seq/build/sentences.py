"""Sentence vectors, or whatever else finds the sentences that are like another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.build.background import BackgroundWriter, Rows
from knn_seq.build.batches import plan_batches
from knn_seq.build.engine import Engine
from knn_seq.build.index import build_index, origin
from knn_seq.build.shards import cut_shards
from knn_seq.models import Model, Source
from knn_seq.runtime.progress import Progress
from knn_seq.sentences import LexicalSearch, SentenceSearch, VectorSearch
from knn_seq.sentences.base import sentence_search
from knn_seq.sentences.whitening import CHUNK, Whitening
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter
from knn_seq.storage.atomic import partial_of, publish_folder
from knn_seq.storage.flat import read_extents
from knn_seq.storage.keys import StoredRows, open_keys

VECTORS = "vectors"  # what sentence vectors are called in their files


class StoredSources(Sequence[Source]):
    """The source sentences of a datastore."""

    def __init__(self, folder: DatastoreFolder) -> None:
        self.texts, self.tokens = folder.texts, folder.sources

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Any) -> Any:
        return Source(self.texts[index][0], self.tokens[index].tolist())


def store_sentences(
    folder: DatastoreFolder, model: Model, settings: BuildSettings, engine: Engine | None = None
) -> dict[str, Any]:
    """Build what finds sentences, as the settings name it, or go on with it; returns what the manifest says of it."""
    search: SentenceSearch = sentence_search(settings.sentence_search or "encoder", model)
    if isinstance(search, VectorSearch):
        identity = vectors_identity(folder, settings)
        _store_vectors(folder, search, settings, identity)
        folder.__dict__.pop("sentence_vectors", None)
        chosen = replace(settings, index_recipe=settings.sentence_index_recipe, distance_metric="l2", index_options={})
        rows = StoredRows(folder.sentences_path.absolute(), VECTORS)
        return build_index(rows, folder.sentence_index_folder, chosen, identity, engine, "sentence index")
    assert isinstance(search, LexicalSearch)
    with Progress(f"sentences {settings.sentence_search}", len(folder.values), "sentences") as progress:
        search.fit(StoredSources(folder))
        progress.update(len(folder.values))
    _publish(search, folder)
    for path in (folder.sentences_path, folder.raw_sentences_path, folder.whitening_path):
        path.unlink(missing_ok=True)
        partial_of(path).unlink(missing_ok=True)
    return {"type": "lexical"}


def vectors_identity(folder: DatastoreFolder, settings: BuildSettings) -> dict[str, Any]:
    """What sentence vectors depend on."""
    return origin(folder) | {"sentences": settings.sentence_search}


class Vectors:
    """Computes the sentence vectors of a datastore; they are whitened when all are there.

    Args:
        folder: The datastore.
        search: Computes the vectors.
        settings: How they are stored.
    """

    def __init__(self, folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
        self.search, self.sources, self.dtype = search, StoredSources(folder), getattr(torch, settings.key_dtype)

    def rows(self, batch: NDArray[np.int64]) -> Rows:
        """The vectors of some sentences, to be written to their places."""
        vectors = self.search.unit_vectors([self.sources[i] for i in batch])
        return batch, [1] * len(batch), vectors.to(self.dtype).cpu().numpy()


def raw_vectors(
    folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings, begin: bool
) -> KeyWriter | None:
    """The file of vectors before they are whitened, to be written; None if that is done.

    Args:
        folder: The datastore.
        search: Computes the vectors.
        settings: How they are stored.
        begin: Begin one if none is there that fits; False: None in that case, too.
    """
    path, identity = folder.raw_sentences_path, vectors_identity(folder, settings)
    shape = len(folder.values), search.unit_vectors([StoredSources(folder)[0]]).shape[1]
    if not begin:
        return KeyWriter.open_unfinished(path, shape, settings.key_dtype, identity, VECTORS)
    writer, _ = KeyWriter.open_or_create(path, shape, settings.key_dtype, identity, VECTORS)
    if writer.finished:
        writer.close()
        return None
    return writer


def _store_vectors(
    folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings, identity: dict[str, Any]
) -> None:
    if not (folder.whitening_path.exists() and _is_whole(folder.sentences_path, identity)):
        _store_raw_vectors(folder, search, settings)
        _whiten(folder, search.whitens, identity)
    folder.raw_sentences_path.unlink(missing_ok=True)


def _is_whole(path: Path, identity: dict[str, Any]) -> bool:
    return path.exists() and read_extents(path)[1].get("identity") == json.dumps(identity, sort_keys=True)


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


def _store_raw_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
    writer = raw_vectors(folder, search, settings, begin=True)
    if writer is None:
        return
    done = writer.progress() or {"batches": 0, "tokens": 0}
    label, vectors = f"sentences {settings.sentence_search}", Vectors(folder, search, settings)
    shards = cut_shards(folder.values, settings.shard_tokens)
    batches = plan_batches(folder.sources, folder.sources, 2 * settings.batch_tokens, shards)
    with writer, Progress(label, len(vectors.sources), "sentences", done["tokens"]) as progress:
        with BackgroundWriter([writer], done, writer.checkpoint, settings.checkpoint_seconds) as background:
            for batch in islice(batches, done["batches"], None):
                background.put(vectors.rows(batch))
                progress.update(len(batch))
        writer.finish()


def _publish(search: LexicalSearch, folder: DatastoreFolder) -> None:
    final = folder.sentence_index_folder
    work, replaced = final.with_name(".sentences.building"), final.with_name(".sentences.replaced")
    for rest in (work, replaced):
        shutil.rmtree(rest, ignore_errors=True)
    work.mkdir()
    search.save(work)
    if final.exists():
        final.rename(replaced)
    publish_folder(work, final)
    shutil.rmtree(replaced, ignore_errors=True)
