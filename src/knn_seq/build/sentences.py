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
from knn_seq.build.index import build_index, origin
from knn_seq.models import Model, Source
from knn_seq.progress import Progress
from knn_seq.sentences import LexicalSearch, SentenceSearch, VectorSearch
from knn_seq.sentences.base import sentence_search
from knn_seq.sentences.encoder import EncoderSearch
from knn_seq.sentences.whitening import CHUNK, Whitening
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter
from knn_seq.storage.atomic import partial_of, publish_folder
from knn_seq.storage.flat import read_extents
from knn_seq.storage.keys import open_keys


class StoredSources(Sequence[Source]):
    """The source sentences of a datastore."""

    def __init__(self, folder: DatastoreFolder) -> None:
        self.texts, self.tokens = folder.texts, folder.sources

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Any) -> Any:
        return Source(self.texts[index][0], self.tokens[index].tolist())


def store_sentences(folder: DatastoreFolder, model: Model, settings: BuildSettings, quiet: bool) -> dict[str, Any]:
    """Build what finds sentences, as the settings name it, or go on with it; returns what the manifest says of it."""
    search: SentenceSearch = sentence_search(settings.sentences or "encoder", model)
    if isinstance(search, VectorSearch):
        identity = _identity(folder, settings)
        _store_vectors(folder, search, settings, identity, quiet)
        folder.__dict__.pop("sentence_vectors", None)
        chosen = replace(settings, index=settings.sentence_index, metric="l2")
        return build_index(
            folder.sentence_vectors, folder.sentence_index_folder, chosen, identity, quiet, "sentence index"
        )
    assert isinstance(search, LexicalSearch)
    with Progress(f"sentences {settings.sentences}", len(folder.values), "sentences", quiet=quiet) as progress:
        search.fit(StoredSources(folder))
        progress.update(len(folder.values))
    _publish(search, folder)
    for path in (folder.sentences_path, folder.raw_sentences_path, folder.whitening_path):
        path.unlink(missing_ok=True)
        partial_of(path).unlink(missing_ok=True)
    return {"type": "lexical"}


def _identity(folder: DatastoreFolder, settings: BuildSettings) -> dict[str, Any]:
    """What sentence vectors depend on."""
    return origin(folder) | {"sentences": settings.sentences}


class Vectors:
    """The file of sentence vectors while it is written; they are whitened when all are there.

    Args:
        folder: The datastore.
        search: Computes the vectors.
        settings: How they are stored.
    """

    def __init__(self, folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
        self.search, self.sources, self.dtype = search, StoredSources(folder), getattr(torch, settings.key_dtype)
        shape = (len(self.sources), search.unit_vectors([self.sources[0]]).shape[1])
        self.writer, done = KeyWriter.open_or_create(
            folder.raw_sentences_path, shape, settings.key_dtype, _identity(folder, settings), "vectors"
        )
        self.done: dict[str, int] = done or {"batches": 0, "tokens": 0}

    @classmethod
    def along_with_keys(
        cls, folder: DatastoreFolder, model: Model, settings: BuildSettings, batches: int
    ) -> Vectors | None:
        """For the model's own vectors, if these were written as far as the keys' batches before; else None."""
        if settings.sentences != "encoder":
            return None
        vectors = cls(folder, EncoderSearch("", model), settings)
        fits = not vectors.writer.finished and vectors.done["batches"] >= batches
        return vectors if fits else None

    def rows(self, batch: NDArray[np.int64]) -> Rows:
        """The vectors of some sentences, to be written to their places."""
        vectors = self.search.unit_vectors([self.sources[i] for i in batch])
        return batch, [1] * len(batch), vectors.to(self.dtype).cpu().numpy()


def _store_vectors(
    folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings, identity: dict[str, Any], quiet: bool
) -> None:
    if not (folder.whitening_path.exists() and _is_whole(folder.sentences_path, identity)):
        _store_raw_vectors(folder, search, settings, quiet)
        _whiten(folder, search.whitens, identity)
    folder.raw_sentences_path.unlink(missing_ok=True)


def _is_whole(path: Path, identity: dict[str, Any]) -> bool:
    return path.exists() and read_extents(path)[1].get("identity") == json.dumps(identity, sort_keys=True)


def _whiten(folder: DatastoreFolder, wanted: bool, identity: dict[str, Any]) -> None:
    raw = open_keys(folder.raw_sentences_path, "vectors")
    whitening = Whitening.fit(raw) if wanted else Whitening.none(raw.shape[1])
    folder.sentences_path.unlink(missing_ok=True)  # or a kill would leave it with a whitening that is not its own
    whitening.save(folder.whitening_path)
    writer, _ = KeyWriter.open_or_create(folder.sentences_path, raw.shape, raw.dtype, identity, "vectors")
    with writer:
        for start in range(0, len(raw), CHUNK):
            rows = torch.from_numpy(raw[start : start + CHUNK].copy())
            writer.write(start, whitening.apply(rows).to(rows.dtype).numpy())
        writer.finish()


def _store_raw_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings, quiet: bool) -> None:
    vectors = Vectors(folder, search, settings)
    label, count = f"sentences {settings.sentences}", len(vectors.sources)
    start = count if vectors.writer.finished else vectors.done["tokens"]
    with vectors.writer as writer, Progress(label, count, "sentences", start, quiet) as progress:
        if not writer.finished:
            with BackgroundWriter([writer], vectors.done, settings.checkpoint_seconds) as background:
                batches = plan_batches(folder.sources, folder.sources, 2 * settings.batch_tokens)
                for batch in islice(batches, vectors.done["batches"], None):
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
