"""The second step: the key of every target token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from knn_seq.build.background import BackgroundWriter, Rows
from knn_seq.build.batches import plan_batches
from knn_seq.build.engine import Engine, Work, Worker
from knn_seq.build.engine.base import LOCK_TIMEOUT
from knn_seq.build.engine.local import LocalEngine
from knn_seq.build.sentence_vectors import (
    VECTORS,
    SentenceVectors,
    create_raw_vectors,
    resume_raw_vectors,
    vectors_identity,
)
from knn_seq.build.shards import Shard, cut_shards
from knn_seq.models import Model, TokenPair
from knn_seq.runtime.progress import Progress
from knn_seq.sentences.encoder import EncoderSearch
from knn_seq.settings import BuildSettings
from knn_seq.storage import FolderLock, KeyWriter, Segment
from knn_seq.storage.atomic import read_json, write_json
from knn_seq.storage.keys import KEYS
from knn_seq.storage.shard import ShardWriter, restore_borders

SHARDS_FOLDER = "keys.shards"  # the progress of each shard; there only while keys are computed


def store_keys(
    segment: Segment,
    model: Model,
    settings: BuildSettings,
    identity: dict[str, Any],
    engine: Engine | None = None,
) -> None:
    """Compute the keys shard by shard; shards that are finished are not done again.

    Sentence vectors of the model's own encoder are written together with the keys: it reads each sentence only once.

    Args:
        segment: Has its text.
        model: Computes the keys.
        settings: How.
        identity: What the keys depend on.
        engine: Who computes; None: this process.
    """
    progress_folder, shape = segment.path / SHARDS_FOLDER, (len(segment.values.items), model.dimension)
    writer, _ = KeyWriter.open_or_create(segment.keys_path, shape, settings.key_dtype, identity, shards=progress_folder)
    with writer:
        if not writer.finished:
            vectors = _prepare_shards(segment, model, settings, progress_folder)
            pieces = [
                ShardKeys(segment.path.absolute(), shard, settings, vectors is not None)
                for shard in cut_shards(segment.values, settings.shard_tokens)
            ]
            with Progress("keys", shape[0], "token", sum(piece.done() for piece in pieces)) as progress:
                unfinished = [piece for piece in pieces if not piece.finished]
                (engine or LocalEngine(settings, model)).run(unfinished, progress)
            _finish_shards(pieces, writer, vectors)
        writer.finish()
    shutil.rmtree(progress_folder, ignore_errors=True)


def _prepare_shards(segment: Segment, model: Model, settings: BuildSettings, progress_folder: Path) -> KeyWriter | None:
    """Drop the progress of shards that were cut differently; returns the file of sentence vectors.

    It is None if sentence vectors are not written together with the keys: either all shards write them, or none does.
    """
    plan = progress_folder / "plan.json"
    wanted: dict[str, Any] = {"batch_tokens": settings.batch_tokens, "shard_tokens": settings.shard_tokens}
    stored: dict[str, Any] = read_json(plan) if plan.exists() else {}
    if {name: stored.get(name) for name in wanted} != wanted:
        shutil.rmtree(progress_folder, ignore_errors=True)
        stored = {}
    vectors, identity = None, None
    if settings.sentence_search == "encoder":
        fingerprint = model.fingerprint.weights
        identity, search = json.dumps(vectors_identity(fingerprint, settings), sort_keys=True), EncoderSearch("", model)
        if not stored:
            vectors = create_raw_vectors(segment, search, settings, fingerprint)
        elif stored["vectors"] == identity:
            vectors = resume_raw_vectors(segment, search, settings, fingerprint)
    wanted["vectors"] = identity if vectors is not None else None
    if stored != wanted:
        progress_folder.mkdir(parents=True, exist_ok=True)
        write_json(plan, wanted)
    return vectors


def _finish_shards(pieces: list[ShardKeys], writer: KeyWriter, vectors: KeyWriter | None) -> None:
    for piece in pieces:
        restore_borders(piece.borders_path(KEYS), writer)
        if vectors is not None:
            restore_borders(piece.borders_path(VECTORS), vectors)
    if vectors is not None:
        vectors.finish()


@dataclass(frozen=True)
class ShardKeys(Work):
    """The keys of one shard, computed batch by batch, each written while the next is computed.

    Args:
        path: The segment's folder, as every worker sees it.
        shard: Which sentences.
        settings: How.
        with_vectors: Whether sentence vectors are written together with the keys.
    """

    path: Path
    shard: Shard
    settings: BuildSettings
    with_vectors: bool

    @property
    def folder(self) -> Path:
        """Where the shard's progress is stored."""
        return self.path / SHARDS_FOLDER / f"{self.shard.number:06}"

    def borders_path(self, name: str) -> Path:
        """The file of the rows of that name at the shard's borders."""
        return self.folder / f"{name}.borders.h5"

    @property
    def size(self) -> int:
        """Target tokens."""
        return len(self.shard.entries)

    @property
    def finished(self) -> bool:
        """Whether all of its keys are written."""
        return (self.folder / "finished.json").exists()

    def done(self) -> int:
        """See `Work.done`."""
        return self.size if self.finished else self._progress()["tokens"]

    def run(self, worker: Worker) -> None:
        """See `Work.run`."""
        with FolderLock(self.folder, LOCK_TIMEOUT):
            if not self.finished:
                self._compute(worker)
        worker.report(self.size)

    def _compute(self, worker: Worker) -> None:
        segment, start = Segment(self.path), self._progress()
        sources, targets = segment.sources, segment.values
        model, dtype = worker.model, getattr(torch, self.settings.key_dtype)
        vectors = SentenceVectors(segment, EncoderSearch("", model), self.settings) if self.with_vectors else None
        batches = plan_batches(sources, targets, self.settings.batch_tokens, [self.shard])
        done = start["tokens"]
        with ExitStack() as opened:
            writers = [opened.enter_context(writer) for writer in self._writers(segment, resume=start["batches"] > 0)]

            def checkpoint(progress: Mapping[str, int], name: str = "progress.json") -> None:
                for writer in writers:
                    writer.sync()
                write_json(self.folder / name, progress)

            with BackgroundWriter(writers, start, checkpoint, self.settings.checkpoint_seconds) as background:
                for batch in islice(batches, start["batches"], None):
                    pairs = [TokenPair(sources[i].tolist(), targets[i].tolist()) for i in batch]
                    # First, since the model remembers the encoder's states of the batch it has read last.
                    vector_rows = [vectors.rows(batch)] if vectors else []
                    keys = model.keys(pairs).to(dtype).cpu().numpy()
                    key_rows: Rows = targets.offsets[batch], [len(pair.target) for pair in pairs], keys
                    background.put(key_rows, *vector_rows)
                    done += len(keys)
                    worker.report(done)
            checkpoint(background.progress, "finished.json")

    def _writers(self, segment: Segment, resume: bool) -> list[ShardWriter]:
        writers = [ShardWriter(segment.keys_path, self.shard.entries, self.borders_path(KEYS), resume)]
        if self.with_vectors:
            path, rows = segment.raw_sentences_path, self.shard.sentences
            writers.append(ShardWriter(path, rows, self.borders_path(VECTORS), resume, VECTORS))
        return writers

    def _progress(self) -> dict[str, int]:
        path = self.folder / "progress.json"
        return dict(read_json(path)) if path.exists() else {"batches": 0, "tokens": 0}
