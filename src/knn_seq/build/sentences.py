"""Sentence vectors, or whatever else finds the sentences that are like another."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
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
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter
from knn_seq.storage.atomic import partial_of, publish_folder


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
        _store_vectors(folder, search, settings, quiet)
        folder.__dict__.pop("sentence_vectors", None)
        chosen = replace(settings, index=settings.sentence_index, metric="l2")
        identity = origin(folder) | {"sentences": settings.sentences}
        return build_index(
            folder.sentence_vectors, folder.sentence_index_folder, chosen, identity, quiet, "sentence index"
        )
    assert isinstance(search, LexicalSearch)
    with Progress(f"sentences {settings.sentences}", len(folder.values), "sentences", quiet=quiet) as progress:
        search.fit(StoredSources(folder))
        progress.update(len(folder.values))
    _publish(search, folder)
    for path in (folder.sentences_path, partial_of(folder.sentences_path)):
        path.unlink(missing_ok=True)
    return {"type": "lexical"}


class Vectors:
    """The file of sentence vectors while it is written.

    Args:
        folder: The datastore.
        search: Computes the vectors.
        settings: How they are stored.
    """

    def __init__(self, folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings) -> None:
        self.search, self.sources, self.dtype = search, StoredSources(folder), getattr(torch, settings.key_dtype)
        shape = (len(self.sources), search.vectors([self.sources[0]]).shape[1])
        identity = origin(folder) | {"sentences": settings.sentences}
        self.writer, done = KeyWriter.open_or_create(
            folder.sentences_path, shape, settings.key_dtype, identity, "vectors"
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
        vectors = self.search.vectors([self.sources[i] for i in batch])
        return batch, [1] * len(batch), vectors.to(self.dtype).cpu().numpy()


def _store_vectors(folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings, quiet: bool) -> None:
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
